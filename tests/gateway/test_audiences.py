"""Several audiences, one transaction: a tuple for every step, drawn once, and nobody gets a finer one than theirs."""

import json
from dataclasses import replace

import numpy as np
import pytest

import veilstream as vs
from audiencekit import HIDDEN, behind, core_of, two
from veilstream import container
from veilstream.artefact import _digest as digest
from veilstream.artefact import load, save
from veilstream.control.cascade import BehindFilter, Finer
from veilstream.control.mechanism import Mechanism
from veilstream.control.uniforms import uniforms
from veilstream.errors import InputError
from veilstream.gateway.audience import AudienceSpec
from veilstream.gateway.core import Core
from veilstream.gateway.records import Status, StoreError
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.wire import Reading
from veilstream.model.problem import leakage

SPOTS = [(39.9 + 0.01 * (i // 4), 116.3 + 0.01 * (i % 4)) for i in range(16)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("audiences")
    two(found)
    return found


def readings(steps, stream="ann", seed=0):
    at = np.random.default_rng(seed).integers(0, 16, len(steps))
    return [Reading(stream, t, t, SPOTS[i]) for t, i in zip(steps, at, strict=True)]


def told(outcomes, audience="public"):
    return [None if not (got := o.of(audience)) else got[0].message for o in outcomes]


def test_every_step_has_one_release_for_each_audience_and_the_same_one_again(folder, tmp_path):
    with core_of(folder, store=tmp_path / "a.db") as core:
        first = core.process(readings(range(30))).outcomes
        again = core.process(readings(range(30), seed=9)).outcomes  # other values for the same steps
    with core_of(folder, store=tmp_path / "a.db") as core:
        later = core.process(readings(range(30), seed=5)).outcomes
    assert None not in told(first)
    assert told(first) == told(again) == told(later)
    assert [o.message for o in first] == [o.message for o in again] == [o.message for o in later]
    assert {o.status for o in again} == {Status.repeated}


def test_a_coarser_release_is_one_of_its_own_points_and_says_its_own_bits(folder):
    with core_of(folder) as core:
        outcomes = core.process(readings(range(40))).outcomes
        points = {tuple(p) for p in core.spaces["public"].points.decode(np.arange(HIDDEN)).tolist()}
    coarse = [json.loads(m) for m in told(outcomes)]
    assert {(m["lat"], m["lon"]) for m in coarse} <= points
    assert all(set(m) == {"stream", "t", "released", "lat", "lon", "leaked_bits"} for m in coarse)
    fine = [json.loads(o.message)["leaked_bits"] for o in outcomes]
    bits = [m["leaked_bits"] for m in coarse]
    assert bits == sorted(bits) and 0 < bits[-1] < fine[-1]


def test_the_meter_of_an_audience_is_the_filter_on_its_own_releases(folder):
    with core_of(folder) as core:
        steps = [*range(10), *range(14, 20)]  # a gap in between
        coarse = [json.loads(m) for m in told(core.process(readings(steps)).outcomes)]
    art = load(folder / "public.veil")
    finer = Finer.through(art.finer.chain, art.finer.policies)
    mechanism = Mechanism(art.policy, art.problem, meter=BehindFilter(finer))
    s = mechanism.start(1)
    for k, (t, m) in enumerate(zip(steps, coarse, strict=True)):
        if k and t > steps[k - 1] + 1:
            s = mechanism.skip(s, t - steps[k - 1] - 1)
        s = mechanism.after(s, mechanism.look(s), np.array([m["released"]]))
        assert m["leaked_bits"] == pytest.approx(float(s.total[0]), abs=1e-6)


def test_the_finer_releases_are_the_same_whether_or_not_somebody_is_behind_them(folder):
    """With the same uniforms: the first draws are the finer ones."""
    with core_of(folder, uniforms=uniforms(3)) as both, core_of(folder, (), uniforms=uniforms(3)) as alone:
        a, b = (core.process(readings([0], name)).outcomes for core, name in ((both, "a"), (alone, "a")))
        assert a[0].message == b[0].message and b[0].coarser is None


def test_an_audience_that_comes_later_gets_nothing_of_old_steps_and_one_that_goes_leaves_nothing_to_draw(
    folder, tmp_path
):
    store = tmp_path / "a.db"
    with core_of(folder, (), store) as core:
        core.process(readings(range(10)))
    with core_of(folder, store=store) as core:
        outcomes = core.process(readings(range(8, 12))).outcomes
        assert [m is None for m in told(outcomes)] == [True, True, False, False]
        finer = core.spaces["public"].mechanism.meter.finer
        q = finer.law.sum(0)  # it knows nothing of what was released before
        first = json.loads(told(outcomes)[2])["leaked_bits"]
        channel = core.spaces["public"].mechanism.policy.channel(np.array([0]))
        assert first == pytest.approx(float(leakage(q[None], channel)[0]), abs=1e-6)
    with core_of(folder, (), store) as core:  # without it, no word about a space that is not served
        assert core.process(readings(range(12, 14))).outcomes[0].coarser is None
    with core_of(folder, store=store) as core:
        outcomes = core.process(readings(range(10, 16))).outcomes
        assert [m is None for m in told(outcomes)] == [False, False, True, True, False, False]


def test_a_third_audience_is_drawn_from_the_second(folder, tmp_path):
    world = tmp_path / "world.veil"
    behind(world, load(folder / "public.veil"), n=2)
    for name in ("family", "public"):
        (tmp_path / f"{name}.veil").write_bytes((folder / f"{name}.veil").read_bytes())
    with core_of(tmp_path, ("public", "world"), tmp_path / "a.db") as core:
        outcomes = core.process(readings(range(12))).outcomes
        assert None not in told(outcomes) and None not in told(outcomes, "world")
        assert told(core.process(readings(range(12))).outcomes, "world") == told(outcomes, "world")


def test_a_coarser_release_follows_the_finer_one_beyond_its_ceiling_and_where_nothing_could_be_read(folder):
    with core_of(folder, ceiling=3.0) as core:
        outcomes = core.process([Reading("ann", t, t, None if t % 3 else SPOTS[t % 16]) for t in range(40)]).outcomes
        assert None not in told(outcomes) and any(o.blind for o in outcomes)


def test_an_audience_has_a_ceiling_of_its_own(folder):
    with core_of(folder, own=1.0) as core:
        outcomes = core.process(readings(range(60))).outcomes
        bits = [json.loads(m)["leaked_bits"] for m in told(outcomes)]
        assert max(bits) <= 1.0 and outcomes[-1].of("public")[0].blind and not outcomes[-1].blind


def test_under_a_clock_every_audience_has_its_release_of_every_step(tmp_path):
    two(tmp_path, period_s=60.0)
    now = [6000.0]
    with core_of(tmp_path, store=tmp_path / "a.db", clock=True, now=lambda: now[0]) as core:
        held = core.process([Reading("ann", 100, 6000, SPOTS[2])]).outcomes
        assert held[0].coarser is None
        for step in range(100, 104):
            [o] = core.tick("", step)
            assert o.of("public")[0].message is not None
        assert core.audiences["public"].released == 4 == core.stats.released
        assert core.audiences["public"].streams == 1 == core.stats.streams


def test_what_is_known_of_an_audience_holds_no_finer_release(folder, tmp_path):
    with core_of(folder, store=tmp_path / "a.db") as core:
        outcomes = core.process(readings(range(20))).outcomes
    with core_of(folder, store=tmp_path / "a.db") as core:
        seen = core.audiences["public"].status(None)
        assert [r.leaked_bits for r in seen["recent"]] == [json.loads(told(outcomes)[-1])["leaked_bits"]]
        assert [r.leaked_bits for r in core.stats.status(None)["recent"]] == [outcomes[-1].release.leaked_bits]
        assert core.store.total_bits() == pytest.approx(outcomes[-1].release.leaked_bits, abs=1e-6)


def test_a_commit_that_fails_leaves_no_audience_ahead(folder, tmp_path, monkeypatch):
    with core_of(folder, store=tmp_path / "a.db") as core:
        core.process(readings(range(3)))
        commit = Store.commit
        monkeypatch.setattr(Store, "commit", lambda self, batch: (_ for _ in ()).throw(OSError("no")))
        with pytest.raises(OSError, match="no"):
            core.process(readings(range(3, 6)))
        monkeypatch.setattr(Store, "commit", commit)
        assert None not in told(core.process(readings(range(3, 6))).outcomes)
        assert core.store.load("public", "ann").last_step == core.store.load("", "ann").last_step == 5


def test_a_policy_behind_another_is_refused_where_it_would_look_at_readings(folder):
    art = load(folder / "public.veil")
    with pytest.raises(InputError, match="looks at the releases of a finer one"):
        Space(art)
    with pytest.raises(InputError, match="looks at the releases of a finer one"):
        art.answer()


def test_an_audience_made_behind_another_policy_is_refused(folder, tmp_path):
    two(tmp_path, map=False)
    (tmp_path / "public.veil").write_bytes((folder / "public.veil").read_bytes())
    with pytest.raises(InputError, match="behind that very policy"), core_of(tmp_path):
        pass


@pytest.mark.parametrize("text", ["", "a.veil topic", "a.veil out=", "a.veil who=me", "'a.veil", "a.veil out"])
def test_an_audience_that_cannot_be_read_is_one_line(text):
    with pytest.raises(InputError, match="`audience` takes"):
        AudienceSpec.read(text)


def test_an_audience_is_read():
    assert AudienceSpec.read("p/public.veil out=shared/+ ceiling=20") == AudienceSpec(
        "public", "p/public.veil", "shared/+", 20.0
    )


def test_the_finer_policy_inside_is_the_file_itself_and_altered_it_is_refused(folder, tmp_path):
    family, public = load(folder / "family.veil"), load(folder / "public.veil")
    assert public.finer.sha256 == family.sha256
    np.testing.assert_array_equal(public.finer.policy.kernel, family.policy.kernel)
    wrong = replace(family, provenance={"command": "another"})
    with pytest.raises(InputError, match="not as its file has it"):
        save(tmp_path / "x.veil", public.policy, problem=public.problem, states=public.states, points=public.points,
             finer=wrong, truth=public.truth)  # fmt: skip
    with pytest.raises(InputError, match="distances from the true states"):
        save(tmp_path / "x.veil", public.policy, problem=public.problem, states=public.states, points=public.points,
             finer=family, truth=public.truth[:-1])  # fmt: skip


def test_a_space_that_looks_at_readings_again_is_no_audience_any_more(folder, tmp_path):
    store = tmp_path / "a.db"
    with core_of(folder, store=store) as core:
        core.process(readings(range(3)))
        assert core.store.count_streams() == core.store.count_streams("public") == 1
    public = Space(load(folder / "family.veil"))
    opened = Store(store, {"": public.binding, "public": public.binding})
    core = Core({"": public, "public": public}, opened)
    assert core.streams == 2
    core.close()
    with pytest.raises(StoreError, match="not served"):
        Store(store, {"": public.binding})


def test_a_policy_behind_another_is_no_model_and_has_no_picture(folder):
    with pytest.raises(InputError, match="looks at the releases of a finer one"):
        vs.solve(str(folder / "public.veil"), avg=1.0)
    solution = vs.solve("builtin:binary", avg=0.2, behind=vs.solve("builtin:binary", avg=0.05))
    with pytest.raises(InputError, match="no picture"):
        solution.plot()


@pytest.mark.parametrize(
    ("forge", "line"),
    [
        (lambda m, a: m["finer"].update(sha256="0" * 64), "finer policy in it is damaged"),
        (lambda m, a: m["finer"].pop("sha256"), "finer policy in it is damaged"),
        (lambda m, a: a.update({"finer/problem/distortion": 2 * a["finer/problem/distortion"]}), "damaged or altered"),
        (lambda m, a: a.pop("problem/truth"), "not complete"),
        (lambda m, a: a.update({"problem/truth": -a["problem/truth"] - 1}), "distances from the true states"),
        (lambda m, a: a.update({"problem/truth": a["problem/truth"][:, :-1]}), "distances from the true states"),
        (lambda m, a: m.update(finer=[]), "damaged or altered"),
        (lambda m, a: m.update(finer={"finer": m["finer"]}), "damaged or altered"),
    ],
)
def test_a_forged_policy_behind_another_is_refused_in_one_line(folder, tmp_path, forge, line):
    """With a checksum of the whole that is right, as a forger would write it."""
    meta, arrays = container.unpack(folder / "public.veil", "x")
    meta.pop("sha256")
    forge(meta, arrays)
    meta["sha256"] = digest(meta, arrays)
    (tmp_path / "x.veil").write_bytes(container.pack(meta, arrays))
    with pytest.raises(InputError, match=line) as fault:
        load(tmp_path / "x.veil")
    assert "\n" not in str(fault.value)
