"""What runs does not depend on the value (the drill `same path`, every kind of file), nor how releases are packed."""

import random

import pytest

from attack.drill import Trial
from attack.path import KINDS, RECORDINGS, Told, followed, parting, walked
from attack.same import force
from gatewaykit import artefact, core_of
from veilstream.gateway.wire import Grid, parse


@pytest.mark.parametrize("clock", [False, True], ids=["", "clock"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0].__name__)
def test_the_same_instructions_run_whatever_is_true(kind, clock, tmp_path):
    for k, recording in enumerate(RECORDINGS[clock:]):
        (tmp_path / str(k)).mkdir()
        trial = Trial(random.Random(f"{kind[0].__name__} {k}"), tmp_path / str(k), 0.1)
        assert walked(trial, kind, recording, clock, 3.0 if k == 1 else None) == 4


@pytest.mark.parametrize("value", ["NaN", "1e400", "-Infinity", "9" * 80, '"home"', "null", "[1]", "true", '"4"'])
def test_every_value_takes_the_same_way(value):
    """No value is parsed a second time, by another parser: that took longer, which could be seen."""
    paths = [], []
    for path, said in zip(paths, ("3.25", value), strict=True):
        parse(b'{"stream":"a","t":1,"value":1}', Grid())
        with followed(path):
            parse(b'{"stream":"a","t":1,"value":%s}' % said.encode(), Grid())
    assert parting(*paths) is None and len(paths[0]) > 100


def test_where_two_paths_part_is_told():
    def looks(x):
        return 1 if x > 0 else x * 2

    paths = [], []
    for path, x in zip(paths, (1, -1), strict=True):
        with followed(path):
            looks(x)
    assert "test_same_path.py" in parting(*paths) and "looks" in parting(*paths)


def test_how_releases_are_packed_does_not_tell_how_long_readings_were(tmp_path):
    """A batch whose releases are more than 4 kB: they came in messages as large as the batch, digits and all."""
    said = []
    for value in ("1", "1." + "0" * 40):
        with core_of(artefact(tmp_path / "p.veil")) as core:
            force(core, [3] * 200)
            told = Told(core)
            told.over_mqtt(b"[" + b",".join(b'{"t":%d,"value":%s}' % (k, value.encode()) for k in range(100)) + b"]")
            said.append(told.broker.said)
    assert len(said[0]) > 1 and said[0] == said[1]
