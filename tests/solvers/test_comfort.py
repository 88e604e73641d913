"""No false comfort: what must be said beside a figure is said, and nothing is said where all is well."""

import numpy as np
import pytest

import veilstream as vs
from veilstream.control.controller import Controller
from veilstream.model.builtin import builtin, builtin_problem
from veilstream.model.information import binary_entropy, entropy
from veilstream.model.problem import Average
from veilstream.solvers import solve
from veilstream.solvers.solution import Level, Point
from veilstream.solvers.warnings import (
    DataCard,
    about_data,
    about_limit,
    about_policy,
    about_stranger,
    honest,
    level,
)

RICH = {"card": {"states": 5, "effective_sample": 500.0, "no_stop": 0.1, "raw_p95": 0.2, "held_out_bits": 0.4}}
THIN = {"card": {**RICH["card"], "effective_sample": 49.0, "no_stop": 0.54}}


def test_a_policy_that_hides_nothing_or_everything_is_called_so():
    chain = builtin("grid4x4-q2")
    truth = chain.entropy_rate
    assert "hides nothing" in about_policy(truth, chain)[0]
    assert "hides nothing" in about_policy(0.995 * truth, chain)[0]
    assert "hides everything" in about_policy(0.0, chain)[0]
    assert about_policy(0.5 * truth, chain) == []


def test_fewer_than_ten_visits_a_state_make_figures_of_the_model_only():
    assert level(Level.COMPUTED, RICH) is Level.COMPUTED
    assert level(Level.COMPUTED, THIN) is Level.MODEL_ONLY
    assert about_data(RICH) == []
    thin, away = about_data(THIN)
    assert thin.startswith("thin data: 49 independent visits for 5 states")
    assert away.startswith("54% of steps are at no stop")
    solved = solve(builtin_problem("binary", Average(weight=1.0)))
    told = honest(solved, THIN)
    assert told.to_json()["level"] == "model only"
    assert told.warnings[-2:] == [thin, away]
    assert honest(solved, {}).level is solved.level


@pytest.mark.parametrize(
    "said", [None, 3, {}, {"states": "x", "effective_sample": 1}, {"states": 2}, {"states": 1e999}]
)
def test_a_card_that_says_nothing_readable_is_none(said):
    assert DataCard.of({"card": said}) is None
    assert about_data({"card": said}) == []


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("500", "km", "was 500m meant?"),
        ("500m", "km", None),  # it has a unit
        ("2", "km", None),  # it is sensible as it is
        ("20000", "km", None),  # it is sensible in neither
        ("200", "kWh", "was 200Wh meant?"),
        ("20", "mg/dL", None),
        ("home=500", "km", None),
    ],
)
def test_a_bare_number_that_was_likely_meant_in_another_unit(text, unit, says):
    found = about_limit("--avg", text, unit, blind=4.2)
    assert (says in found[0]) if says else found == []


def test_data_of_somebody_else_is_noticed_by_its_loss_or_its_distance():
    chain = builtin("grid4x4-q2")
    assert about_stranger(0.45, 0.1, chain, RICH) == []
    assert "1.50 bits per step under the chain, 0.40 on the data" in about_stranger(1.5, 0.1, chain, RICH)[0]
    assert "farther than 0.3" in about_stranger(0.45, 0.3, chain, RICH)[0]
    assert about_stranger(chain.entropy_rate, None, chain, {}) == []


def test_a_memoryless_mechanism_of_ones_own_is_judged_by_its_rate_not_by_a_loose_bound(tmp_path):
    """I(Z;Y) of it is 0.531 bits, more than the truth reveals (0.469); the rate itself is 0.298."""
    problem, e = vs.builtin_problem("binary", vs.Average(weight=1.0)), 0.1
    policy = Controller.of_table(np.array([[[1 - e, e], [e, 1 - e]]]), 0)
    law = {(): problem.chain.initial}  # the rate by enumeration: H(Y_n | Y^n-1) - H(Y|X)
    for _ in range(12):
        law = {
            (*past, y): (b * policy.channel(policy.start())[:, y]) @ problem.chain.transition
            for past, b in law.items()
            for y in (0, 1)
        }
    after = float(entropy(np.array([b.sum() for b in law.values()])))
    shorter = {past[:-1]: 0.0 for past in law}
    for past, b in law.items():
        shorter[past[:-1]] += float(b.sum())
    rate = after - float(entropy(np.array(list(shorter.values())))) - float(binary_entropy(e))
    own = Point.of(problem, policy)
    assert own.leakage == pytest.approx(rate, abs=5 * own.leakage_se + 1e-4) and own.level is Level.ESTIMATED
    assert own.distortion == pytest.approx(e)
    vs.save(tmp_path / "own.veil", policy, problem=problem)
    found = vs.audit(tmp_path / "own.veil", streams=20, steps=60)
    assert found.claim.leakage == own.leakage and not found.claim.bound
    assert not any("hides nothing" in line for line in found.warnings) and "64% of the 0.469" in found.words
