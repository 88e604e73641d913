"""Files from a stranger, and names from anywhere: every fault is one line, nothing hangs, nothing is led astray."""

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

import veilstream
from attack import files
from attack.drill import Drill
from gatewaykit import artefact
from veilcli import veil
from veilstream.apps.cli import fail
from veilstream.container import write
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.gateway import pipe
from veilstream.gateway.spec import secret
from veilstream.model.chain import MarkovChain


@pytest.mark.parametrize(
    "histories",
    [
        ((0, 0), (0, 1), (1, 0), (0, 2)),  # no state for symbol 2
        ((1,), (1, 1), (1, 2), (1, 3)),  # none for 0
        ((0,), (1,), (1,), (0, 1)),  # the same twice
        ((0,), (1,), (), (0, 1)),
        ((0,), (1,), (-1,), (0, 1)),
    ],
)
def test_histories_that_lack_a_symbol_are_refused(histories):
    """They made the releaser look for a beginning for ever."""
    with files.soon(), pytest.raises(InputError, match="histor"):
        MarkovChain(np.full((4, 4), 0.25), histories=histories)


@pytest.mark.parametrize("number", range(2))
def test_a_mutated_file_is_a_line_or_works(number):
    """With a checksum that is right, or bytes flipped: loaded, served and asked for a release. More: `make attack`."""
    done = Drill("veil files", "", files.veil).run("mutants", number, 1.3)
    assert done.finding is None, done.finding.where
    assert done.attacks > 300


def test_files_are_for_their_owner_and_follow_no_link(tmp_path):
    os.umask(0o022)
    artefact(tmp_path / "p.veil")
    assert stat.S_IMODE((tmp_path / "p.veil").stat().st_mode) == 0o600
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / f".q.veil.{os.getpid()}.part").symlink_to(victim)
    write(tmp_path / "q.veil", b"data")
    assert victim.read_text() == "untouched" and (tmp_path / "q.veil").read_bytes() == b"data"
    assert not list(tmp_path.glob(".*.part"))


def test_whatever_is_written_beside_its_place_follows_no_link(tmp_path):
    """Figures of the paper and checkpoints: somebody who may write there puts a link where the new file is made."""
    from reproduce import cache

    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "x.json.part").symlink_to(tmp_path / "victim")
    (tmp_path / f".x.json.{os.getpid()}.part").symlink_to(tmp_path / "victim")
    cache.write(tmp_path / "x.json", "figures")
    assert (tmp_path / "victim").read_text() == "untouched" and (tmp_path / "x.json").read_text() == "figures"
    own = [f for f in (Path(veilstream.__file__).parent).rglob("*.py") if '".part"' in f.read_text()]
    assert not own  # container.write is the only one


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    file = tmp_path / "token"
    file.write_text("a token of decent length\n")
    file.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        secret("VEIL_TOKEN", file)
    file.chmod(0o600)
    assert secret("VEIL_TOKEN", file) == "a token of decent length"


def test_names_cannot_move_the_terminal_or_be_formulas(tmp_path, capsys):
    fail("no model file '\x1b]0;owned\x07\x1b[2J'")
    assert "\x1b" not in capsys.readouterr().err
    with pytest.raises(InputError, match="printable"):
        StateSpace("places", np.zeros((2, 2)), ("home", "\x1b[2J"), "km")
    assert [pipe.no_formula(n) for n in ("=1+1", "@x", "-3", "+4", "a=b", "7")] == [
        "'=1+1",
        "'@x",
        "'-3",
        "'+4",
        "a=b",
        "7",
    ]


def test_a_file_name_with_brackets_is_shown_as_it_is(tmp_path):
    out = tmp_path / "p[bold].veil"
    done = veil("solve", "builtin:grid2x3-toy", "--lambda", "1", "--method", "myopic", "-o", out)
    assert done.returncode == 0 and "[bold]" in done.stdout.replace("\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_a_document_type_is_refused_wherever_it_stands(tmp_path):
    from veilstream.data.readers.gpx import READER
    from veilstream.data.readers.reader import ReadOptions

    file = tmp_path / "x.gpx"
    file.write_text("<?xml version='1.0'?><!--" + "x" * 5000 + "--><!DOCTYPE gpx [<!ENTITY a 'b'>]><gpx></gpx>")
    with pytest.raises(InputError, match="document type"):
        READER.read(file, "x.gpx", ReadOptions())
