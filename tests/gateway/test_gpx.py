"""Releases as GPX tracks, which our own reader reads back."""

import io
import json

import numpy as np
import pytest

from audiencekit import core_of, two
from veilcli import veil
from veilstream.data.sources import read
from veilstream.errors import InputError
from veilstream.gateway.gpx import gpx
from veilstream.gateway.pipe import Sink
from veilstream.gateway.wire import Release


def test_every_stream_is_a_track_that_reads_back_point_by_point(tmp_path):
    names = ["ann & <bob>", "b\x1bad"]
    found = [Release(name, 1.7e9 + 60 * k, k, 47.25 + k, -125.5 + k, 0.1 * k) for k in range(4) for name in names]
    (tmp_path / "a.gpx").write_bytes(gpx([*found, Release("x", 0, None, None, None, 1.0)]))
    frame = read([str(tmp_path / "a.gpx")]).frame
    seen = [(r.t, r.lat, r.lon) for name in names for r in found if r.stream == name]
    assert frame["t"].to_list() == [round(1e6 * t) for t, _, _ in seen]
    np.testing.assert_array_equal(frame.select("lat", "lon").to_numpy(), [p for _, *p in seen])
    text = (tmp_path / "a.gpx").read_text()
    assert "ann &amp; &lt;bob&gt;" in text and "b?ad" in text and "leaked" not in text


def test_the_command_writes_what_csv_would_say_and_nothing_finer_for_an_audience(tmp_path):
    two(tmp_path, period_s=60.0)
    lines = [{"stream": "ann", "t": 60 * k, "lat": 39.9 + 0.01 * (k % 4), "lon": 116.3} for k in range(8)]
    data = "".join(json.dumps(line) + "\n" for line in lines)
    asked = ["release", tmp_path / "family.veil", "--audience", tmp_path / "public.veil"]
    track = veil(*asked, "--format", "gpx", input=data).stdout
    rows = [line.split(",") for line in veil(*asked, "--format", "csv", input=data).stdout.splitlines()[1:]]
    (tmp_path / "a.gpx").write_text(track)
    frame = read([str(tmp_path / "a.gpx")]).frame
    assert frame["t"].to_list() == [round(1e6 * float(row[1])) for row in rows] and len(rows) == 8
    np.testing.assert_array_equal(frame.select("lat", "lon").to_numpy(), [list(map(float, row[3:5])) for row in rows])


def test_what_is_no_place_or_has_no_time_is_refused_before_anything_is_drawn(tmp_path):
    two(tmp_path)  # steps that are numbers
    (tmp_path / "values").mkdir()
    two(tmp_path / "values", period_s=60.0, map=False)
    for folder in (tmp_path, tmp_path / "values"):
        with core_of(folder) as core:
            with pytest.raises(InputError, match="gpx is for places with times"):
                Sink(core, io.BytesIO()).begin("gpx")
            assert core.streams == 0
