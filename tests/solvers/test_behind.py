"""A policy behind another: met in truth, priced against the best from the truth, kept in a file."""

import json

import numpy as np
import pytest

import veilstream as vs
from veilcli import veil
from veilstream.control.cascade import Behind, BehindFilter, Finer
from veilstream.control.cascade_replay import BehindReplay
from veilstream.control.controller import Controller, schedule
from veilstream.control.loop import replay
from veilstream.control.mechanism import Mechanism
from veilstream.control.replay import Replay
from veilstream.data.synthetic import city_chain
from veilstream.errors import Infeasible, InputError
from veilstream.model.histories import BLIND

KM = 0.5


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The synthetic city as it is: chain and places, no readings."""
    chain, states = city_chain()
    path = tmp_path_factory.mktemp("behind") / "city.veil"
    vs.save(path, chain=chain, states=states, period_s=300.0)
    return path


@pytest.fixture(scope="module")
def family(model):
    return vs.solve(model, avg="0.04km", show="states")


@pytest.fixture(scope="module")
def public(model, family):
    return vs.solve(model, avg=f"{KM}km", show="states", behind=family)


def test_the_limit_is_met_in_truth_and_costs_little_more_than_the_best_from_the_truth(public, family, model):
    chain, states = city_chain()
    run = Behind(Finer.of(chain, family.policy), public.policy)
    assert public.distortion == pytest.approx(run.rates(states.distances()).distortion, rel=1e-9)
    assert 0.999 * KM <= public.distortion <= KM * (1 + 1e-9)
    own = vs.solve(model, avg=f"{KM}km", show="states")
    assert own.leakage * 0.999 < public.leakage <= 1.02 * own.leakage
    assert public.behind.pays(public.leakage) == pytest.approx(public.leakage / own.leakage - 1, abs=1e-3)
    assert public.behind.finest == pytest.approx(family.leakage, rel=1e-9)


def test_what_is_printed_is_what_an_exact_filter_hears(model, family, public):
    """By draws: 64 streams whose coarse releases come from their law given the earlier ones."""
    mechanism = Mechanism(public.policy, meter=BehindFilter(Finer.of(family.problem.chain, family.policy)))
    bits = np.zeros(64)

    def observe(seen):
        if seen.t >= 100:
            bits[seen.rows] += seen.view.bits

    replay(mechanism, np.full((64, 300), BLIND), observe, uniforms=np.random.default_rng(3).random)
    mean, error = bits.mean() / 200, bits.std(ddof=1) / 200 / 8
    assert mean - 4 * error < public.leakage < 1.03 * mean + 4 * error
    assert error < 0.1 * mean


@pytest.mark.parametrize("coarser", ["window", "schedule"])
@pytest.mark.parametrize("finer", ["window", "none", "schedule"])
def test_the_error_on_a_record_is_that_of_every_draw(finer, coarser):
    """Against a sum over all fine and coarse releases of two short streams, one with a gap."""
    rng = np.random.default_rng(5)

    def policy(kind, states, outputs):
        made = [
            Controller.of_table(rng.dirichlet(np.ones(outputs), (outputs**w, states)), w)
            for w in ((0, 0) if kind == "none" else (1, 1))
        ]
        return schedule(made, [1, 2]) if kind == "schedule" else made[0]

    fine, coarse = policy(finer, 3, 3), policy(coarser, 3, 2)
    chain = vs.MarkovChain(np.full((3, 3), 1 / 3))
    stream, step = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 4, 5, 8])
    states, far = rng.integers(0, 3, 6), rng.random((6, 2))
    found = BehindReplay(Finer.of(chain, fine), Replay(stream, step, states, far)).errors(coarse)
    for rows in (slice(0, 3), slice(3, 6)):
        law = {(int(fine.start()), int(coarse.start())): 1.0}
        law = {(int(fine.at(np.array(a), step[rows][0])), int(coarse.at(np.array(b), step[rows][0]))): p
               for (a, b), p in law.items()}  # fmt: skip
        before = step[rows][0] - 1
        for t in range(rows.start, rows.stop):
            skipped, after, error = step[t] - before - 1, {}, 0.0
            for (m1, m2), p in law.items():
                m1, m2 = (int(q.at(q.skip(np.array(m), skipped), step[t])) for q, m in ((fine, m1), (coarse, m2)))
                for y1, a in enumerate(fine.channel(np.array(m1))[states[t]]):
                    for y2, c in enumerate(coarse.channel(np.array(m2))[y1]):
                        error += p * a * c * far[t, y2]
                        to = int(fine.update(np.array(m1), y1)), int(coarse.update(np.array(m2), y2))
                        after[to] = after.get(to, 0) + p * a * c
            assert found[t] == pytest.approx(error, abs=1e-12)
            law, before = after, step[t]


def test_the_least_error_behind_a_policy_is_that_of_the_best_release_for_each_fine_one():
    rng = np.random.default_rng(6)
    fine = Controller.of_table(rng.dirichlet(np.ones(3), (3, 3)), 1)
    chain, far = vs.MarkovChain(np.full((3, 3), 1 / 3)), rng.random((5, 2))
    replayed = BehindReplay(Finer.of(chain, fine), Replay(np.zeros(5, int), np.arange(5), rng.integers(0, 3, 5), far))
    best = min(
        replayed.error(Controller.of_table(np.eye(2)[[a, b, c]], 0)) for a in (0, 1) for b in (0, 1) for c in (0, 1)
    )
    assert replayed.least(np.ones((3, 2), bool)) == pytest.approx(best, abs=1e-12)


def test_a_budget_and_a_weight_are_about_the_true_bits(model, family):
    bits = vs.solve(model, budget=0.05, show="states", behind=family)
    assert 0.049 <= bits.leakage <= 0.05 + 1e-9
    weight = vs.solve(model, weight=0.1, show="states", behind=family)
    assert weight.weight == 0.1 and weight.leakage < family.leakage


def test_a_limit_at_every_step_holds_for_every_state_that_may_be_behind_a_fine_release(model):
    fine = vs.solve(model, max="3km", show="states")
    coarse = vs.solve(model, max="7km", show="states", behind=fine)
    chain, states = city_chain()
    run = Behind(Finer.of(chain, fine.policy), coarse.policy)
    assert (run.joint[states.distances() > 7] < 1e-12).all()
    assert coarse.leakage < fine.leakage


def test_what_cannot_be_had_behind_a_policy_is_one_line(model, family):
    with pytest.raises(InputError, match="without a limit at every step"):
        vs.solve(model, max="5km", show="states", behind=family)
    with pytest.raises(Infeasible, match="smaller error"):
        vs.solve(model, avg="0.03km", show="states", behind=family)
    with pytest.raises(InputError, match="goes without `feedback`"):
        vs.solve(model, avg="1km", feedback="day", behind=family)
    with pytest.raises(InputError, match="made for another model"):
        vs.solve("builtin:grid4x4-q2", avg=1.0, behind=family)
    with pytest.raises(InputError, match="method is one of"):
        vs.solve(model, avg="1km", show="states", behind=family, method="planar-laplace")
    with pytest.raises(InputError, match="no policy file"):
        vs.solve(model, avg="1km", behind="nowhere.veil")


def test_a_chain_of_three_audiences_falls_in_bits(model, public):
    world = vs.solve(model, avg="1.5km", show="states", behind=public)
    assert world.distortion <= 1.5 * (1 + 1e-9)
    assert world.leakage < public.leakage and world.behind.finest == pytest.approx(public.behind.finest)


def test_the_command_line_makes_both_and_releases_them_from_one_draw(tmp_path, model, family, public):
    family.save(tmp_path / "family.veil")
    done = veil("solve", model, "--avg", "500m", "--show", "states", "--behind", tmp_path / "family.veil", "-o",
                tmp_path / "public.veil", "--json")  # fmt: skip
    said = json.loads(done.stdout)
    assert said["behind"]["policy"] == vs.load(tmp_path / "family.veil").sha256
    assert said["behind"]["coalition"] == pytest.approx(family.leakage) and 0 <= said["behind"]["pays"] < 0.02
    assert said["leakage"] == pytest.approx(public.leakage, rel=1e-3)
    shown = veil("solve", model, "--avg", "500m", "--show", "states", "--behind", tmp_path / "family.veil").stdout
    assert "all audiences" in shown and "more than the best from the truth" in shown
    places = city_chain()[1].coordinates
    lines = [{"stream": "ann", "t": 300 * k, "lat": a, "lon": b} for k, (a, b) in enumerate(places.tolist())]
    data = "\n".join(json.dumps(line) for line in lines)
    behind = veil("release", tmp_path / "family.veil", "--audience", tmp_path / "public.veil", input=data)
    fine = veil("release", tmp_path / "family.veil", input=data)
    again = veil("release", tmp_path / "family.veil", "--audience", tmp_path / "public.veil", input=data)
    assert behind.stdout == again.stdout != fine.stdout and len(behind.stdout.splitlines()) == len(lines)
    assert "leaked: 0.0 bits" in fine.stderr  # nothing was drawn for it
    refused = veil("release", tmp_path / "public.veil", input=data)
    assert refused.returncode == 2 and "looks at the releases of a finer one" in refused.stderr
