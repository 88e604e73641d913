"""Starting without history: a limit is enough, wherever the phone is; her own policy later, one store all the way."""

import json

import numpy as np
import pytest

import veilstream as vs
from gatewaykit import core_of
from veilcli import refused, veil
from veilstream.artefact import load
from veilstream.control.frame import Frame
from veilstream.data.states import apart_km
from veilstream.gateway.encoder import LatticeEncoder
from veilstream.gateway.wire import Reading

HOME, OFFICE, FAR = (48.137, 11.575), (48.20, 11.60), (-33.868, 151.209)
STEP = 300.0


def ok(*args):
    done = veil(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A policy with a limit at every step, and one for a meter."""
    folder = tmp_path_factory.mktemp("start")
    ok("start", "--max", "2km", "-o", folder / "me.veil")
    ok("start", "--avg", "0.4kW", "-o", folder / "meter.veil")
    return folder


def readings(places, first=0):
    return [Reading("ann", first + k, (first + k) * STEP, place) for k, place in enumerate(places)]


def test_what_it_says_and_writes(made, tmp_path):
    told = json.loads(ok("start", "--avg", "400W", "--max", "2kW", "-o", tmp_path / "m.veil", "--json"))
    assert (told["avg"], told["max"], told["unit"], told["level"]) == (400, 2000, "W", "model only")
    assert told["bits_stay"] < told["bits_at_most"] and told["distortion"] <= told["avg"]
    policy = load(tmp_path / "m.veil")
    assert isinstance(policy.policy, Frame) and policy.record is None and not policy.study_only
    shown = ok("start", "--max", "2km")
    assert "at most 2 km at every step, anywhere" in shown and "proved, whoever it is" in shown
    assert "model only" in shown and "nothing written" in shown


def test_a_file_gives_back_the_policy(made):
    policy, same = load(made / "me.veil").policy, vs.start(max="2km", progress=False).policy
    for name in ("values", "moves", "jumps", "rates"):
        np.testing.assert_allclose(getattr(policy, name), getattr(same, name), rtol=1e-9)
    assert (policy.lattice, policy.limit, policy.average) == (
        same.lattice,
        same.limit,
        same.average,
    )


def test_a_trip_around_the_world_keeps_the_limit_and_is_drawn_once(made, tmp_path):
    places = [*[HOME] * 5, OFFICE, *[HOME] * 3, *[FAR] * 4, HOME]
    with core_of(load(made / "me.veil"), tmp_path / "s.db") as core:
        assert isinstance(core.spaces[""].encoder, LatticeEncoder)
        first = [o.release for o in core.process(readings(places)).outcomes]
        again = [o.release for o in core.process(readings(places[::-1])).outcomes]
    assert again == first
    shown = np.array([(r.lat, r.lon) for r in first])
    assert apart_km(np.array(places), shown).max() <= 2
    bits = np.diff([r.leaked_bits for r in first], prepend=0)
    assert bits[[0, 9]].min() > 20 > bits[1:5].max()  # a new place is dear, staying near is not
    with core_of(load(made / "me.veil"), tmp_path / "s.db") as core:
        (later,) = core.process(readings([HOME], len(places))).outcomes
        assert later.release.leaked_bits >= first[-1].leaked_bits


def test_a_meter_without_a_highest_level(made):
    with core_of(load(made / "meter.veil")) as core:
        out = core.process(
            [Reading("m", k, k * 1800.0, v) for k, v in enumerate([0.3, 0.3, 55.0, 55.0, -7.0])]
        ).outcomes
    assert [abs(o.release.released - v) < 4 for o, v in zip(out[3:4], [55.0], strict=True)] == [True]
    assert all(o.release.lat is None for o in out)


def test_what_cannot_be_read_says_nothing_of_a_place(made):
    """With a limit at every step a stream that does not look is silent; without one it draws from the output law."""
    with core_of(load(made / "me.veil")) as core:
        assert [o.release for o in core.process(readings([None])).outcomes] == [None]
    with core_of(load(made / "meter.veil")) as core:
        (blind,) = core.process([Reading("m", 0, 0.0, None)]).outcomes
        assert blind.release is not None


def test_a_ceiling_ends_the_looking(made):
    with core_of(load(made / "meter.veil"), ceiling=45.0) as core:
        out = core.process([Reading("m", k, k * 1800.0, float(k % 7)) for k in range(40)]).outcomes
    bits = [o.release.leaked_bits for o in out]
    assert bits[-1] <= 45 and bits[-1] == pytest.approx(bits[-2])


def test_her_own_policy_takes_over_and_the_store_goes_on(made, tmp_path):
    store, served = tmp_path / "s.db", tmp_path / "policy.veil"
    served.write_bytes((made / "meter.veil").read_bytes())
    with core_of(load(served), store) as core:
        out = core.process([Reading("ann", k, k * 1800.0, 1.0) for k in range(30)]).outcomes
    before = [o.release for o in out]
    rng = np.random.default_rng(0)
    rows = "".join(f"{1_700_000_000 + 1800 * k},{1 + (k // 20) % 3 + 0.1 * rng.random():.3f}\n" for k in range(600))
    (tmp_path / "two-weeks.csv").write_text("time,kW\n" + rows)
    ok("fit", tmp_path / "two-weeks.csv", "--states", "3", "-o", tmp_path / "ann.veil")
    ok("solve", tmp_path / "ann.veil", "--avg", "0.4kW", "-o", served)
    with core_of(load(served), store) as core:
        assert core.store.changed == {""}
        again = core.process([Reading("ann", k, k * 1800.0, 2.9) for k in range(30)]).outcomes
        assert [o.release for o in again] == before  # never a second draw
        (later,) = core.process([Reading("ann", 30, 30 * 1800.0, 1.0)]).outcomes
        assert later.release.leaked_bits >= before[-1].leaked_bits  # the bits add up


@pytest.mark.parametrize("verb", [("solve", "--avg", "1km"), ("advise",), ("curve",)])
def test_verbs_that_need_a_record_say_so(made, verb):
    refused(verb[0], made / "me.veil", *verb[1:], says="believes no chain")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "say how far off"),
        (["--avg", "0km"], "larger than zero"),
        (["--avg", "1kW", "--jump", "3km"], "jump"),
        (["--avg", "1km", "--stay", "soon"], "stay"),
        (["--avg", "1km", "--max", "2kW"], "unit"),
    ],
)
def test_bad_input_is_one_line(args, says):
    refused("start", *args, says=says)


def test_no_other_meter(made):
    refused("serve", made / "me.veil", "--http", "1", "--option", "meter=exact", says="has a meter of its own")


def test_a_table_is_released_by_it():
    times = 1_700_000_000 + 300 * np.arange(12)
    table = {"time": times, "lat": np.full(12, HOME[0]), "lon": np.full(12, HOME[1])}
    shown = vs.release(vs.start(max="2km", progress=False), table, store=False)
    assert apart_km(np.tile(HOME, (12, 1)), np.stack([shown["lat"], shown["lon"]], 1)).max() <= 2
