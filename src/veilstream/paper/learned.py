"""A2C at one point of a figure, where its library is installed."""

from __future__ import annotations

from importlib.util import find_spec

from veilstream.paper.item import Budget
from veilstream.problem import Problem
from veilstream.solvers import solve
from veilstream.solvers.solution import Solution

LIBRARY = "jax"


def a2c(problem: Problem, budget: Budget) -> Solution | None:
    """One run of the paper's algorithm within the budget; None without the extra `deep`."""
    if find_spec(LIBRARY) is None:
        return None
    return solve(problem, "a2c", seed=budget.seed, steps=budget.a2c_steps, width=budget.a2c_width)
