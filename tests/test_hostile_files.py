"""Files from a stranger, and names from anywhere: every fault is one line, nothing hangs, nothing is led astray."""

import json
import os
import random
import signal
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

import veilstream
from gatewaykit import artefact, core_of, places, problem_of, window_policy
from veilstream import artefact as artefacts
from veilstream.apps.cli import fail
from veilstream.apps.cli.gateway_flags import secret
from veilstream.artefact import load, save
from veilstream.container import pack, unpack, write
from veilstream.core.chain import MarkovChain
from veilstream.core.distortion import hamming
from veilstream.core.problem import Average, Problem
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.gateway import pipe
from veilstream.gateway.wire import Reading

MUTANTS = int(os.environ.get("VEIL_TEST_MUTANTS", "400"))


@pytest.fixture
def soon():
    """What hangs is a failure."""

    def late(*_):
        raise AssertionError("it hangs")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 60)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


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
def test_histories_that_lack_a_symbol_are_refused(soon, histories):
    """They made the releaser look for a beginning for ever."""
    with pytest.raises(InputError, match="histor"):
        MarkovChain(np.full((4, 4), 0.25), histories=histories)


def originals(tmp_path) -> list:
    toy = problem_of("grid2x3-toy")
    lifted = Problem(MarkovChain.fit(toy.chain.sample(300, 2), order=2, smoothing=0.1), hamming(6), Average(weight=1.0))
    artefact(tmp_path / "window.veil", states=places(), period_s=60.0)
    save(tmp_path / "order2.veil", window_policy(lifted), problem=lifted)
    return [tmp_path / "window.veil", tmp_path / "order2.veil"]


def mutated(rng: random.Random, meta: dict, arrays: dict) -> None:
    """One thing in a description or an array is another; the checksum will be right."""
    strange = [None, -1, 0, 1, 2**70, 1e308, float("nan"), "x", "\x1b[2J", [], {}, [[]], True, [1, 2, 3], {"kind": "x"}]
    if rng.random() < 0.5:
        at, keys = meta, list(meta)
        while True:
            key = rng.choice(keys)
            if isinstance(at[key], dict | list) and at[key] and rng.random() < 0.7:
                at = at[key]
                keys = list(at) if isinstance(at, dict) else list(range(len(at)))
                continue
            if isinstance(at, dict) and rng.random() < 0.3:
                del at[key]
            else:
                at[key] = rng.choice(strange)
            return
    name = rng.choice(sorted(arrays))
    array = arrays[name].copy()
    if rng.random() < 0.3:
        shapes = [array[:0], array[..., :1], array.ravel(), array[None], array[:-1]]
        arrays[name] = np.ascontiguousarray(rng.choice(shapes))
    elif rng.random() < 0.1:
        del arrays[name]
    else:
        values = [-1, 0, 1, 2, 7, 10**6] if array.dtype.kind == "i" else [-1.0, 0.0, 1.0, 0.5, np.inf, 1e308, 1e-300]
        array.flat[rng.randrange(max(array.size, 1)) if array.size else 0] = rng.choice(values)
        arrays[name] = array


@pytest.mark.parametrize("which", [0, 1])
def test_a_mutated_file_is_a_line_or_works(tmp_path, soon, which):
    """With a checksum that is right: loaded, served and asked for a release."""
    path, rng, refused = originals(tmp_path)[which], random.Random(which), 0
    whole, lines = unpack(path, "x"), []
    for _ in range(MUTANTS):
        meta, arrays = json.loads(json.dumps(whole[0])), dict(whole[1])
        mutated(rng, meta, arrays)
        meta.pop("sha256", None)
        try:
            meta["sha256"] = artefacts._digest(meta, arrays)
            data = pack(meta, arrays)
        except (TypeError, ValueError):
            continue  # not even JSON
        path.write_bytes(data)
        try:
            with core_of(load(path), now=lambda: 6000.0) as core:
                core.process([Reading("a", t, t, 1.0) for t in range(3)])
        except InputError as error:
            refused += 1
            lines.append(str(error))
    assert refused > MUTANTS // 4 and all(map(str.isprintable, lines))


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
    from veilstream.apps.paper import cache

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


def test_a_file_name_with_brackets_is_shown_as_it_is(tmp_path, veil):
    out = tmp_path / "p[bold].veil"
    done = veil("solve", "builtin:grid2x3-toy", "--lambda", "1", "--method", "myopic", "-o", out)
    assert done.code == 0 and "[bold]" in done.out.replace("\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
def test_a_document_type_is_refused_wherever_it_stands(tmp_path):
    from veilstream.data.readers.gpx import read_gpx
    from veilstream.data.readers.reader import ReadOptions

    file = tmp_path / "x.gpx"
    file.write_text("<?xml version='1.0'?><!--" + "x" * 5000 + "--><!DOCTYPE gpx [<!ENTITY a 'b'>]><gpx></gpx>")
    with pytest.raises(InputError, match="document type"):
        read_gpx(file, "x.gpx", ReadOptions())
