"""Where causal Blahut-Arimoto starts: output models, how each is annealed, and policies that cost nothing to find."""

import numpy as np

from veilstream.control.automaton import window
from veilstream.control.controller import Controller
from veilstream.control.stationary import rates
from veilstream.model.information import Array, Index
from veilstream.model.problem import Problem
from veilstream.solvers.solution import Point
from veilstream.solvers.sweep import FLOOR

MIXED = 0.05  # of the uniform law, in an output model to start from


def starting_models(problem: Problem, w: int, random: int, seed: int) -> Array:
    """Output models r(y|newest) to start from, 1 x starts x S x Y.

    Uniform; what publishing the nearest symbol would show; holding the last release; and random ones. Sticky chains
    are the reason for the second and third: from a uniform model they often end 1-3 % above the best.
    """
    n, chain = problem.n_outputs, problem.chain
    uniform = np.full((n, n), 1 / n)
    nearest = np.eye(n)[np.where(problem.allowed, problem.distortion, np.inf).argmin(1)]  # Z x Y
    flow = nearest.T @ (chain.stationary[:, None] * chain.transition) @ nearest + 1e-12
    truth = (1 - MIXED) * flow / flow.sum(1, keepdims=True) + MIXED * uniform
    hold = (1 - MIXED) * np.eye(n) + MIXED * uniform
    rng = np.random.default_rng(seed)
    others = [(1 - MIXED) * rng.dirichlet(np.full(n, 0.3), n) + MIXED * uniform for _ in range(random)]
    models = np.stack([uniform, truth, hold, truth, uniform, *others])
    if w == 0:
        return np.asarray(models.mean(1, keepdims=True))[None]
    return np.asarray(models[:, newest(n, w)])[None]


def newest(n: int, w: int) -> Index:
    """The last release of every window of `automaton.window`."""
    return np.arange(n**w) // n % n if w > 1 else np.arange(n)


def annealing(n_starts: int) -> Array:
    """How much the weight of each start is stretched at first: the fourth comes from above, the fifth from below."""
    factors = np.ones(n_starts)
    factors[3:4], factors[4:5] = 4.0, 0.25
    return factors


def constants(problem: Problem, w: int) -> list[Point]:
    """Always the same symbol, where one is always allowed: nothing leaks. With a public clock, the same at each phase.

    Without a limit the one of least distortion will do; under one each may still leak a little, by its floor.
    """
    n, chain, points, memory = problem.n_outputs, problem.chain, [], window(problem.n_outputs, w)
    free, open = problem.allowed.all(), problem.allowed.all(0)
    if chain.phases > 1:
        costs = [chain.at(phase).initial @ problem.distortion for phase in range(chain.phases)]
        shown = [tuple(int(np.where(open, cost, np.inf).argmin()) for cost in costs)] if open.any() else []
    else:
        cost = chain.stationary @ problem.distortion
        shown = [(int(cost.argmin()),)] if free else [(int(y),) for y in np.flatnonzero(open)]
    K = np.broadcast_to(problem.allowed.astype(float), (chain.phases, len(memory.to), *problem.allowed.shape))
    for outputs in shown:
        models = np.stack([np.where(np.arange(n) == y, 1 - FLOOR * (n - 1), FLOOR) for y in outputs])
        r = np.repeat(models[:, None], len(memory), 1)
        first = int(np.flatnonzero(newest(n, w) == outputs[0])[0]) if w else 0
        policy = Controller(memory, r, K, first, window=w, chain=chain)
        if free:
            law = [chain.at(phase).initial if chain.phases > 1 else chain.stationary for phase in chain.around]
            mean = np.mean([pi @ problem.distortion @ models[i] for pi, i in zip(law, chain.around, strict=True)])
            points.append(Point(policy, 0.0, float(mean)))
        else:
            points.append(Point(policy, *rates(problem, policy)))
    return points
