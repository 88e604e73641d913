"""What the items beyond the paper share: the optimum, the myopic policy and planar Laplace at equal distortion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reproduce.item import Desk
from reproduce.points import curved, solved, today
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.problem import Average, Problem
from veilstream.solvers import default_weights
from veilstream.solvers.solution import Point, Solution

SHARES = (0.1, 0.25, 0.5)  # of the mean distortion at which nothing need be revealed
HEAD = [
    "case",
    "method",
    "share_of_blind",
    "distortion",
    "unit",
    "leakage_bits",
    "standard_error",
    "lower_bound_bits",
    "level",
]


@dataclass(frozen=True)
class Equal:
    """Three policies at one average distortion."""

    share: float
    ours: Solution
    myopic: Solution
    laplace: Solution

    @property
    def ratio(self) -> float:
        """How many times as much planar Laplace leaks."""
        return self.laplace.leakage / max(self.ours.leakage, 1e-12)

    def rows(self, case: str, unit: str) -> list[list[object]]:
        return [row(case, s, unit, self.share) for s in (self.ours, self.myopic, self.laplace)]


def row(case: str, s: Solution, unit: str, share: float | str = "") -> list[object]:
    low = "" if s.leakage_lower is None else s.leakage_lower
    return [case, s.method, share, s.distortion, unit, s.leakage, s.leakage_se, low, str(s.level)]


def blind(chain: MarkovChain, distances: Array) -> float:
    """The least mean distortion of always releasing the same state, which reveals nothing."""
    return float((np.bincount(chain.symbols, chain.stationary, minlength=len(distances)) @ distances).min())


def at_equal_distortion(desk: Desk, chain: MarkovChain, distances: Array, share: float, certify: bool = False) -> Equal:
    """The three at that share of the blind distortion; ours with a certificate if asked."""
    problem = Problem(chain, distances, Average(limit=share * blind(chain, distances)))
    others = (solved(desk, problem, method) for method in ("myopic", "planar-laplace"))
    return Equal(share, solved(desk, problem, certify=certify), *others)


def curves(
    desk: Desk, chain: MarkovChain, distances: Array, points: int
) -> tuple[Problem, dict[str, list[Solution]], dict[str, list[Point]]]:
    """For a picture: the certified optimum, the myopic curve, planar Laplace at several strengths."""
    problem = Problem(chain, distances, Average(weight=1.0))
    weights = default_weights(problem, points)
    both = {
        "causal-ba": curved(desk, problem, weights, certify=True),
        "myopic": curved(desk, problem, weights, "myopic"),
    }
    return problem, both, {"planar-laplace": today(desk, problem, "planar-laplace")}
