"""OwnTracks out: an allow-list, with an `acc` that is a function of the released place alone."""

import json

import numpy as np
import pytest

from gatewaykit import artefact, core_of, places, problem_of, window_policy
from veilstream.artefact import save
from veilstream.control.belief import BeliefPolicy, GreedyRule
from veilstream.control.stationary import long_run
from veilstream.control.uniforms import uniforms
from veilstream.gateway.owntracks import metres_off, round_up
from veilstream.gateway.space import Space
from veilstream.gateway.wire import Release, parse
from veilstream.model.problem import Average, Problem

ALLOWED = {"_type", "lat", "lon", "acc", "tst", "tid"}
LOCATION = {
    "_type": "location",
    "lat": 39.9,
    "lon": 116.3,
    "tst": 600,
    "tid": "jd",
    "acc": 5,
    "alt": 77,
    "vel": 3,
    "SSID": "HomeNet",
    "BSSID": "aa:bb",
    "inregions": ["home"],
    "batt": 80,
    "topic": "owntracks/jane/phone",
}


def said(core, *messages: dict, stream: str = "jane/phone", form="auto") -> list[dict]:
    """What goes out for these messages of one phone."""
    space = core.spaces[""]
    found = [r for m in messages for r in parse(json.dumps(m).encode(), space.grid, stream)]
    outcomes = core.process(found).outcomes
    return [json.loads(space.body(o.message, form, r.owntracks)) for r, o in zip(found, outcomes, strict=True)]


def test_a_location_goes_out_as_its_allow_list(tmp_path):
    art = artefact(tmp_path / "p.veil", states=places(), period_s=60.0)
    with core_of(art, now=lambda: 6000.0) as core:
        [out] = said(core, LOCATION)
    assert set(out) == ALLOWED
    assert (out["_type"], out["tst"], out["tid"]) == ("location", 600, "ne")
    assert [out["lat"], out["lon"]] in art.states.coordinates.tolist()


def test_home_assistant_takes_every_release(tmp_path):
    """Its rule: acc must be there, and not 0."""
    art = artefact(tmp_path / "p.veil", states=places(), period_s=60.0)
    with core_of(art, now=lambda: 1e6) as core:
        out = said(core, *({**LOCATION, "tst": 60 * t} for t in range(100)))
    assert all(type(o["acc"]) is int and o["acc"] >= 1 for o in out)
    assert round_up(0.0) == 1


def test_acc_is_of_the_released_place_whatever_the_reading_says(tmp_path):
    """Two phones, the same draws of the channel's uniforms, everything else different: one acc for each place."""
    art, known = artefact(tmp_path / "p.veil", states=places(), period_s=60.0), {}
    rng = np.random.default_rng(3)
    for phone in range(4):
        with core_of(art, now=lambda: 1e6, uniforms=uniforms(phone)) as core:
            messages = [
                {**LOCATION, "tst": 60 * t, "lat": 39.9 + rng.random() / 30, "acc": int(rng.integers(999))}
                for t in range(150)
            ]
            messages += [{"_type": "location", "tst": 60 * t, "lat": "x"} for t in range(150, 200)]
            for o in said(core, *messages, stream=f"phone {phone}"):
                assert known.setdefault((o["lat"], o["lon"]), o["acc"]) == o["acc"]
    assert len(known) == 16


def test_acc_is_the_felt_error_of_the_long_run():
    """Against a loop over memories and states that knows the policy's protocol only."""
    problem = problem_of("grid2x3-toy")
    policy, chain = window_policy(problem), problem.chain
    S, (Z, Y) = policy.n_memories, problem.distortion.shape
    mu, m = np.full((S, Z), 1 / (S * Z)), np.zeros((Z, Y))
    for _ in range(400):
        new, m = np.zeros_like(mu), np.zeros((Z, Y))
        for s in range(S):
            joint = mu[s, :, None] * policy.channel(np.array(s))
            m += joint
            for y in range(Y):
                new[int(policy.update(np.array(s), np.array(y)))] += joint[:, y] @ chain.transition
        mu = new
    want = 1000 * (m * problem.distortion).sum(0) / m.sum(0)
    found = np.array(metres_off(policy, chain, 1000 * problem.distortion))
    assert (found >= want - 1e-6).all()
    assert (found <= 1.1 * want + 1).all()
    assert found.tolist() == [round_up(x) for x in want]


@pytest.mark.parametrize(
    ("metres", "shown"), [(0, 1), (0.2, 1), (7, 7), (7.01, 8), (99.5, 100), (101, 110), (437, 440), (12_345, 13_000)]
)
def test_metres_are_rounded_up_to_two_digits(metres, shown):
    assert round_up(metres) == shown


def test_a_policy_without_a_computable_long_run_has_an_acc_too(tmp_path):
    problem = problem_of()
    policy = BeliefPolicy(problem.chain, GreedyRule(problem.cost(1.0), tolerance=1e-3))
    art = save(tmp_path / "p.veil", policy, problem=problem, states=places(), period_s=60.0)
    assert long_run(problem.chain, policy) is None
    with core_of(art, now=lambda: 6000.0) as core:
        assert said(core, LOCATION)[0]["acc"] >= 1


def test_what_the_policy_counts_need_not_be_metres(tmp_path):
    """A policy that counts wrong places still says how far off they are."""
    states, problem = places(), problem_of()
    plain = Problem(problem.chain, states.distances(), Average(weight=1.0))
    counted = Problem(problem.chain, 1.0 - np.eye(16), Average(weight=1.0))
    policy, found = window_policy(plain), []
    for i, (made, measure) in enumerate(((plain, "absolute"), (counted, "zero-one"))):
        art = save(tmp_path / f"{i}.veil", policy, problem=made, states=states, measure=measure)
        space = Space(art)
        found.append([space.encoder.accuracy(Release("a", 0, y, *space.encoder.shown[y][1:])) for y in range(16)])
    assert found[0] == found[1]


def test_a_place_of_an_earlier_policy_gets_the_largest_acc(tmp_path):
    space = Space(artefact(tmp_path / "p.veil", states=places()))
    known = [space.encoder.accuracy(Release("a", 0, y, *space.encoder.shown[y][1:])) for y in range(16)]
    assert space.encoder.accuracy(Release("a", 0, 3, 1.0, 2.0)) == max(known)


def test_plain_releases_are_as_before(tmp_path):
    art = artefact(tmp_path / "p.veil", states=places(), period_s=60.0)
    with core_of(art, now=lambda: 6000.0) as core:
        [out] = said(core, LOCATION, form="plain")
    assert set(out) == {"stream", "t", "released", "lat", "lon", "leaked_bits"}
