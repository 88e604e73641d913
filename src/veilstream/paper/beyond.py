"""What the items beyond the paper share: the optimum, the myopic policy and planar Laplace at equal distortion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilstream.chain import MarkovChain
from veilstream.information import Array
from veilstream.problem import Average, Problem
from veilstream.solvers import curve, default_weights, solve
from veilstream.solvers.bounds import certify_curve
from veilstream.solvers.solution import Point, Solution
from veilstream.solvers.today import Today

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


def at_equal_distortion(
    chain: MarkovChain, distances: Array, share: float, certify_s: float = 0.0, seed: int = 0
) -> Equal:
    """The three at that share of the blind distortion; a certificate for ours if there is time for one."""
    problem = Problem(chain, distances, Average(limit=share * blind(chain, distances)))
    ours = solve(problem, certify=certify_s > 0, certify_seconds=certify_s, seed=seed)
    return Equal(share, ours, *(solve(problem, m, seed=seed) for m in ("myopic", "planar-laplace")))


def curves(
    chain: MarkovChain, distances: Array, points: int, certify_s: float, seed: int = 0
) -> tuple[Problem, dict[str, list[Solution]], dict[str, list[Point]]]:
    """For a picture: the certified optimum, the myopic curve, planar Laplace at several strengths."""
    problem = Problem(chain, distances, Average(weight=1.0))
    weights = default_weights(problem, points)
    ours = certify_curve(curve(problem, weights, seed=seed), certify_s)
    family = Today("planar-laplace", settings=10, seed=seed).family(problem)
    both = {"causal-ba": ours, "myopic": curve(problem, weights, "myopic", seed=seed)}
    return problem, both, {"planar-laplace": family}
