"""Values as they come to the gateway: faults are released like any other, what cannot be read is refused."""

import math

import numpy as np
import pytest

from gatewaykit import artefact, core_of, places, window_policy
from veilstream.artefact import save
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.gateway.records import Status
from veilstream.gateway.space import Space
from veilstream.gateway.wire import Grid, Reading, Refusal, parse
from veilstream.model.chain import MarkovChain
from veilstream.model.distortion import hamming
from veilstream.model.problem import Average, Problem

GRID = Grid()


@pytest.fixture
def plain(tmp_path):
    return artefact(tmp_path / "policy.veil")


def one(core, *readings):
    return core.process(readings).outcomes


# --- values ----------------------------------------------------------------------------------------------

STRANGE = [
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"9" * 5000,
    b'"home"',
    b"null",
    b"[1]",
    b"{}",
    b"true",
    b"-5",
    b"1e300",
    b"16",
    b"999999",
]


@pytest.mark.parametrize("value", STRANGE)
def test_a_fault_of_value_is_released_like_any_other(plain, value):
    with core_of(plain) as core:
        for t in range(3):
            found = parse(b'{"stream":"a","t":%d,"value":%s}' % (t, value), GRID)
            outcome = one(core, *found)[0]
            assert outcome.status is Status.released
            assert 0 <= outcome.release.released < 16
        assert sum(core.stats.refused.values()) == 0
        faults = core.store.load("", "a").private.faults
    assert faults == (0 if value in (b"-5", b"1e300", b"16", b"999999") else 3)  # the last four have a nearest state


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xfe\x00", Refusal.unreadable),
        (b"", Refusal.unreadable),
        (b"3", Refusal.unreadable),
        (b'{"stream":"a","t":1,"value":2', Refusal.unreadable),
        (b"[" * 100_000, Refusal.unreadable),
        (b'{"stream":"a","t":1,"value":' + b"[" * 50_000 + b"]" * 50_000 + b"}", Refusal.unreadable),
        (b'{"stream":"a","t":1,"x":"' + b"y" * 10_000_000 + b'"}', Refusal.too_large),
        (b'{"stream":7,"t":1,"value":2}', Refusal.unreadable),
    ],
)
def test_syntactic_faults_are_refused(data, reason):
    assert parse(data, GRID) in (reason, [reason])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"t":1,"value":2}', Refusal.stream),
        (b'{"stream":"","t":1,"value":2}', Refusal.stream),
        (b'{"stream":"%s","t":1,"value":2}' % (b"n" * 201), Refusal.stream),
        (b'{"stream":"a\\u0000b","t":1,"value":2}', Refusal.stream),
        (b'{"stream":"a","value":2}', Refusal.time),
        (b'{"stream":"a","t":1.5,"value":2}', Refusal.time),
        (b'{"stream":"a","t":1e300,"value":2}', Refusal.time),
        (b'{"_type":"transition","desc":"home"}', Refusal.not_a_location),
        (b'{"_type":"encrypted","data":"x"}', Refusal.sealed),
    ],
)
def test_faults_of_stream_and_time_are_refused(data, reason):
    assert parse(data, GRID) == [reason]


@pytest.mark.parametrize(
    ("data", "points"),
    [
        (b'{"stream":"NaN: Infinity, \\"NaN","t":1,"value":NaN}', ["nan"]),
        (
            b'[{"stream":"a","t":1,"lat":NaN,"lon":-Infinity},{"stream":"a","t":2,"value": Infinity }]',
            ["(nan, nan)", "nan"],
        ),
        (b'{"stream":"a","t":1,"value":NaN,"lat":1,"lon":2}', ["nan"]),
        (b'{"stream":"a","t":1,"value":null,"lat":"1.5","lon":2e0}', ["(1.5, 2.0)"]),
        (b'{"stream":"a","t":1,"value":" 7 ","x":{"y":[NaN,"\\\\"]}}', ["7.0"]),
    ],
)
def test_numbers_that_json_does_not_know_are_points_that_cannot_be_read(data, points):
    found = parse(data, GRID)
    assert [str(r.point) for r in found] == points
    assert all(r.stream in ("a", 'NaN: Infinity, "NaN') for r in found)


@pytest.mark.parametrize("data", [b'{"t":1,"value":Nan}', b'{"t":1,"value":N', b'{"t":1,"v":"', b"NaN"])
def test_what_only_looks_like_such_a_number_is_refused(data):
    assert parse(data, GRID, "a") in (Refusal.unreadable, [Refusal.unreadable])


def test_a_bad_item_does_not_spoil_its_batch():
    found = parse(b'[{"stream":"a","t":1,"value":2},{"stream":5},{"stream":"b","t":NaN},{"stream":"c","t":1}]', GRID)
    assert [f if isinstance(f, Refusal) else f.stream for f in found] == ["a", Refusal.unreadable, Refusal.time, "c"]


def test_out_of_area_takes_the_nearest_place(tmp_path):
    art = artefact(tmp_path / "p.veil", states=places())
    space = Space(art)
    assert space.encoder.encode([(39.9, 116.3), (39.0, 116.3), (0.0, 116.0), (math.nan, 1.0), None, 3.0]).tolist()[
        :2
    ] == [0, 0]
    assert space.encoder.encode([(math.nan, 1.0), None, 3.0]).tolist() == [-1, -1, -1]
    assert 0 <= space.encoder.encode([(91.0, 500.0)])[0] < 16
    assert 0 <= space.encoder.encode([(1e300, -1e300)])[0] < 16
    with core_of(art) as core:
        release = one(core, Reading("a", 0, 0, (39.93, 116.33)))[0].release
    assert (release.lat, release.lon) == tuple(art.states.coordinates[release.released])


def test_value_bins_are_released_as_their_level(tmp_path):
    states = StateSpace("bins", np.array([[0.1], [0.5], [2.0]]), ("low", "mid", "high"), "kWh", np.array([0.3, 1.0]))
    problem = Problem(MarkovChain(np.full((3, 3), 1 / 3)), states.distances(), Average(weight=1.0))
    art = save(tmp_path / "p.veil", window_policy(problem), problem=problem, states=states)
    with core_of(art) as core:
        assert {o.release.released for o in one(core, *(Reading("a", t, t, 0.4) for t in range(60)))} == {0.1, 0.5, 2.0}


def test_a_file_that_is_not_for_release_is_refused(tmp_path):
    problem = Problem(MarkovChain([[0.5, 0.5], [1.0, 0.0]]), hamming(2), Average(weight=1.0))
    impossible = save(tmp_path / "p.veil", window_policy(problem), problem=problem)
    with pytest.raises(InputError, match="study only"):
        Space(impossible)
    assert Space(impossible, force=True)
    with pytest.raises(InputError, match="veil solve"):
        Space(save(tmp_path / "m.veil", chain=problem.chain))
