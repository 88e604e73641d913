"""What each audience of a cascade learns, against the enumeration of every path."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

import veilstream as vs
from cascades import information, paths
from veilstream.audit.audiences import EACH, ONE, columns, followed, overheard
from veilstream.audit.lateness import about_now, latenesses
from veilstream.audit.traces import Traces
from veilstream.control.cascade import Finer
from veilstream.control.controller import Controller, cycle, schedule
from veilstream.data.spec import Recording
from veilstream.data.synthetic import city
from veilstream.errors import InputError
from veilstream.model.clock import Clock

Z, Y1, Y2, STEPS = 3, 3, 2, (4, 5, 6)
RNG = np.random.default_rng(7)


def table(states, outputs, seed, w=1):
    return Controller.of_table(np.random.default_rng(seed).dirichlet(np.ones(outputs) / 2, (outputs**w, states)), w)


CHAIN = vs.MarkovChain(RNG.dirichlet(np.ones(Z), Z), initial=RNG.dirichlet(np.ones(Z)))
CLOCKED = vs.MarkovChain(RNG.dirichlet(np.ones(Z), (2, Z)), clock=Clock("steps", 2))
CASES = {
    "last release": (CHAIN, table(Z, Y1, 1), table(Y1, Y2, 2)),
    "no memory": (CHAIN, table(Z, Y1, 1, 0), table(Y1, Y2, 2, 0)),
    "schedules": (CHAIN, schedule([table(Z, Y1, 1), table(Z, Y1, 5)], [1, 1]), table(Y1, Y2, 2)),
    "clock": (CLOCKED, cycle([table(Z, Y1, 1), table(Z, Y1, 5)]), table(Y1, Y2, 2)),
}


def traces(z, y):
    n = len(z)
    return Traces(z, y, np.full(n, len(STEPS)), np.arange(n), np.full(n, STEPS[0]))


@pytest.mark.parametrize("case", CASES)
def test_bits_of_every_onlooker_are_the_information_of_every_path(case):
    chain, fine, coarse = CASES[case]
    p, x, (y1, y2), _ = paths(chain, [fine, coarse], STEPS)
    one, two = traces(x, y1), traces(y1, y2)
    likely = columns(fine, one)
    _, bits = followed(chain, likely, one)
    assert p @ bits.sum(1) == pytest.approx(information(p, x, y1), abs=1e-9)
    belief, bits = overheard(Finer.of(chain, fine), coarse, x, two)
    assert p @ bits.sum(1) == pytest.approx(information(p, x, y2), abs=1e-9)
    seen = (y2 == y2[0]).all(1)  # whoever saw these releases believes what all paths with them say
    law = np.bincount(x[seen, -1], p[seen], Z)
    np.testing.assert_allclose(belief[0, -1], law / law.sum(), atol=1e-12)
    _, bits = followed(chain, likely * np.take_along_axis(columns(coarse, two), y1[..., None], -1), one)
    assert p @ bits.sum(1) == pytest.approx(information(p, x, y1, y2), abs=1e-9)
    assert information(p, x, y2) > 0.01


def test_separate_draws_tell_what_the_enumeration_of_both_says():
    chain, fine, _ = CASES["last release"]
    other = table(Z, Y2, 3)
    a, b = (paths(chain, [q], STEPS) for q in (fine, other))
    i, j = np.nonzero((a.x[:, None] == b.x[None]).all(2))
    name = a.x @ Z ** np.arange(len(STEPS))
    p_x = np.bincount(name, a.p)[name]
    p, x, y1, y2 = a.p[i] * b.p[j] / p_x[i], a.x[i], a.releases[0][i], b.releases[0][j]
    assert p.sum() == pytest.approx(1)
    _, bits = followed(chain, columns(fine, traces(x, y1)) * columns(other, traces(x, y2)), traces(x, y1))
    assert p @ bits.sum(1) == pytest.approx(information(p, x, y1, y2), abs=1e-9)


def test_what_late_releases_say_about_now_is_the_information_of_every_path():
    """Probabilities in quarters, so that every path comes as often as it is likely."""
    quarter = np.array([[3, 1], [1, 3]]) / 4
    chain, policy = vs.MarkovChain(quarter), Controller.of_table(np.array([quarter, quarter[::-1]]), 1)
    p, x, (y,), _ = paths(chain, [policy], range(3))
    often = np.rint(p * 2 * 4**5).astype(int)
    z, shown = np.repeat(x, often, 0), np.repeat(y, often, 0)
    n = len(z)
    drawn = Traces(z, shown, np.full(n, 3), np.arange(n))
    belief, _ = followed(chain, columns(policy, drawn), drawn)
    p, x, (y,), _ = paths(chain, [policy], range(6))
    found = about_now(chain, belief, drawn, [0, 1, 3], start=2)
    for k, bits in zip([0, 1, 3], found, strict=True):
        assert bits.value == pytest.approx(information(p, x[:, 2 + k], y[:, :3]), abs=1e-9)
    assert found[0].value > 2 * found[1].value > 0


@pytest.fixture(scope="module")
def cascade(tmp_path_factory):
    """A commuter's family, the public behind it, and the readings."""
    source = city(300, seed=4)
    path = tmp_path_factory.mktemp("cascade") / "city.veil"
    vs.save(path, chain=source.chain, states=source.states, period_s=source.period_s)
    family = vs.solve(path, avg="0.04km", show="states", window=1)
    public = vs.solve(path, avg="0.5km", show="states", window=1, behind=family)
    lat, lon = source.points.T
    return public, {"time": source.t_s, "lat": lat, "lon": lon}


def test_all_learn_what_the_finest_learns_and_no_more_than_is_computed(cascade):
    public, readings = cascade
    found = vs.audit(public, readings, streams=30, steps=60, copies=2)
    assert found.stands and not found.fails and not found.contradictions
    rows = {row.name: row for row in found.rows}
    for name in ("chain", "traces"):
        one, first = rows[ONE].learnt[name], rows["audience 1"].learnt[name]
        assert one.bits.value == pytest.approx(first.bits.value, abs=1e-9) and one.guess.top1 == first.guess.top1
        assert rows["audience 2"].learnt[name].bits.value < 0.6 * first.bits.value
        assert rows[EACH].learnt[name].bits.value == pytest.approx(one.bits.value + found.extra[name].value)
    assert rows["audience 2"].leakage == pytest.approx(public.leakage, rel=1e-9)
    assert rows[ONE].leakage == rows["audience 1"].leakage == pytest.approx(public.behind.finest)
    said = json.loads(json.dumps(found.to_json()))
    assert said["audiences"][1]["traces"]["leakage"]["value"] == rows["audience 2"].learnt["traces"].bits.value
    bits = [one.value for one in rows["audience 1"].now]
    assert len(bits) == len(found.delays) and found.delays["1 h"] == 12
    assert all(a > b - 1e-9 for a, b in pairwise(bits)) and bits[-1] < 0.01 * bits[0]
    assert latenesses(Recording())["5 steps"] == 5
    with pytest.raises(InputError, match="look at readings"):
        vs.audit(public, against=["myopic"])


def test_a_page_shows_the_truth_and_what_each_audience_sees_of_it(cascade, tmp_path):
    public, readings = cascade
    page = vs.report(public, readings, tmp_path / "r.html", progress=False)
    text = page.path.read_text()
    drawn = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    titles = [panel["title"] for panel in drawn["panels"]]
    assert titles == ["truth", "audience 1: error 0.04 km", "audience 2: error 0.5 km"]
    truth, fine, coarse = (np.array(panel["at"]) for panel in drawn["panels"])
    near, far = (np.hypot(*(at - truth).T).mean() for at in (fine, coarse))
    assert len(truth) == drawn["steps"] and near < far < 2
    assert page.private and "PRIVATE" in text and "all, a draw for each" in text
    assert str(readings["lat"].mean())[:6] not in text  # kilometres only
    shared = vs.report(public, out=tmp_path / "s.html", shareable=True, progress=False)
    assert not shared.private and "command" not in shared.path.read_text().split("<main>")[1].split("<script")[0]
