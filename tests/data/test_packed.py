"""Archives, folders with other things in them, and a reader that is new."""

import gzip
import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

import veilstream
from exportkit import KOMOOT, STRAVA, database
from veilcli import VEIL
from veilstream.data.sources import read
from veilstream.errors import InputError


def test_a_folder_of_packed_tracks_is_read_as_it_is(put, tmp_path):
    put("ann/a.gpx.gz", gzip.compress(STRAVA.encode()))
    put("ann/b.gpx", KOMOOT)
    found = read([str(tmp_path / "ann")])
    assert (found.streams, found.n_traces) == (("ann",), 2)
    with zipfile.ZipFile(tmp_path / "strava.zip", "w") as archive:
        archive.write(tmp_path / "ann/a.gpx.gz", "activities/1.gpx.gz")
        archive.writestr("../../evil.gpx", KOMOOT)
        archive.writestr("profile.txt", "x")
    assert read([str(tmp_path / "strava.zip")]).n_traces == 2
    assert not (tmp_path.parent.parent / "evil.gpx").exists()


def test_what_else_lies_in_a_folder_is_left_alone(put, tmp_path):
    """Settings, a store beside a policy, a page: endings that exports have too."""
    put("ann/a.gpx", KOMOOT)
    put("ann/settings.json", '{"theme": "dark"}')
    put("ann/page.xml", "<html/>")
    database(tmp_path / "ann/policy.veil.db", "CREATE TABLE x (y)")
    assert read([str(tmp_path / "ann")]).frame.height == 2
    put(
        "ann/Records.json",
        json.dumps(
            {"locations": [{"timestamp": "2024-01-01T09:00:00Z", "latitudeE7": 481000000, "longitudeE7": 115000000}]}
        ),
    )
    assert read([str(tmp_path / "ann")]).frame.height == 3


def test_what_unpacks_without_end_is_refused(put, monkeypatch):
    monkeypatch.setattr("veilstream.data.sources.SMALL", 1000)
    with pytest.raises(InputError, match="unpacks to more than 200 times its size"):
        read([put("x.csv.gz", gzip.compress(b"time,value\n" + b"0" * 10_000_000))])
    with pytest.raises(InputError, match="damaged or locked"):
        read([put("y.csv.gz", gzip.compress(b"time,value\n" * 99)[:-9])])


NEW_READER = '''
"""Dots: a stamp, two dots, a value."""
from veilstream.data.readers.reader import Reader
from veilstream.data.readers.records import VALUES, table_of


def read_dots(path, name, options):
    return table_of((line.split("..") for line in path.read_text().splitlines()), VALUES, name, options, "no dots")


READER = Reader("Dots", (".dots",), read_dots, lambda text: ".." in text)
'''


@pytest.mark.slow
def test_a_new_reader_is_one_file_and_nothing_else(tmp_path):
    shutil.copytree(
        Path(veilstream.__file__).parent, tmp_path / "veilstream", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "veilstream/data/readers/dots.py").write_text(NEW_READER)
    (tmp_path / "x.dots").write_text("".join(f"{1704096000 + 300 * k}..{k % 3}\n" for k in range(60)))
    run = [*VEIL, "fit"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"}
    done = subprocess.run([*run, str(tmp_path / "x.dots"), "--json"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["points"] == 60
    helped = subprocess.run([*run, "--help"], capture_output=True, text=True, env=env).stdout
    assert "Dots (.dots)" in re.sub(r"\s+", " ", helped)
