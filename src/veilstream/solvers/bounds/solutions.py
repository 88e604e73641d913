"""Certificates for solutions: how close each is to the best possible.

A bound LB(w) on leakage + w * distortion also bounds leakage alone, for every policy with distortion at most D:

    leakage >= max(0, max over weights w of LB(w) - w D)
"""

from dataclasses import replace
from time import perf_counter

import numpy as np

from veilstream.control.controller import Controller
from veilstream.solvers.bounds.alternation import SMALLEST_LAW
from veilstream.solvers.bounds.certify import LARGEST_PAIRS, Certificate, Start, certify
from veilstream.solvers.bounds.witness import NATS
from veilstream.solvers.causal_ba import CausalBA
from veilstream.solvers.search import LOOKS, first_weights
from veilstream.solvers.solution import Progress, Solution

CLOSE = 0.99  # a bound on leakage this near to it needs no other weight
UNSEEN = 1e-30  # a memory less likely than this has no law of its own
FACTORS = 2.0 ** np.arange(-3, 4)  # other weights to look at, relative to the solution's


def certify_solution(solution: Solution, seconds: float, progress: Progress | None = None) -> Solution:
    """The solution with a proved lower bound on leakage + weight * distortion over all policies."""
    began = perf_counter()
    certificate = certificate_of(solution, seconds, progress)
    bound, D = certificate.lower_bound, solution.distortion
    elsewhere = 0.0
    if solution.problem.average is not None and bound - solution.weight * D < CLOSE * solution.leakage:
        elsewhere = leakage_elsewhere(solution, max(began + seconds - perf_counter(), seconds / 3), progress)
    done = solution.with_bound(bound, certificate, elsewhere)
    return replace(done, seconds=solution.seconds + perf_counter() - began)


def leakage_elsewhere(solution: Solution, seconds: float, progress: Progress | None = None) -> float:
    """LB(w) - w D for the weight that says most about leakage at this distortion, by a quick look at a few."""
    problem, D = solution.problem, solution.distortion
    weights = solution.weight * FACTORS if solution.weight > 0 else first_weights(problem, 2 * LOOKS)

    def at(weight: float, seconds: float, progress: Progress | None = None) -> float:
        other = replace(solution, weight=float(weight))
        return certificate_of(other, seconds, progress).lower_bound - weight * D

    quick = [at(w, 0.0) for w in weights]
    best = float(weights[int(np.argmax(quick))])
    if best == solution.weight:  # known, with a memory
        return max(quick)
    return max(*quick, at(best, seconds, progress))


def certify_curve(solutions: list[Solution], seconds: float, progress: Progress | None = None) -> list[Solution]:
    """Every point with its bound. Each bound is a line below the whole curve, so all of them bound each leakage."""
    left, bounds = seconds, []
    for i, s in enumerate(solutions):
        tell = (lambda f, what, i=i: progress((i + f) / len(solutions), what)) if progress else None
        bounds.append(certificate_of(s, left / (len(solutions) - i), tell))
        left -= bounds[-1].seconds

    def elsewhere(distortion: float) -> float:
        return max(c.lower_bound - s.weight * distortion for c, s in zip(bounds, solutions, strict=True))

    pairs = zip(solutions, bounds, strict=True)
    return [s.with_bound(c.lower_bound, c, elsewhere(s.distortion)) for s, c in pairs]


def certificate_of(solution: Solution, seconds: float, progress: Progress | None = None) -> Certificate:
    problem, policy = solution.problem, solution.policy
    start: Start | Controller | None = policy if isinstance(policy, Controller) else None
    if problem.chain.phases == 1:
        start = settled(solution) if seconds > 0 else None
    cost, upper = problem.cost(solution.weight), solution.objective
    return certify(problem.chain, cost, upper=upper, start=start, seconds=seconds, progress=progress)


def settled(solution: Solution) -> Start | None:
    """As many releases as the chain's order as a memory, and what a policy that remembers them does there.

    None where that is too large.
    """
    problem, chain = solution.problem, solution.problem.chain
    if problem.n_outputs ** (max(1, chain.order) + 1) * len(chain) > LARGEST_PAIRS:
        return None
    found = CausalBA(dtype="float64").least_point(problem, solution.weight, solution.policy)
    if found is None:
        return None
    sweep, tables = found.warm
    next = sweep.automaton.table
    r, beta, mu = (x[0, 0] for x in (tables.r, tables.alpha, tables.mu))
    law = np.maximum(mu.sum(1, keepdims=True), UNSEEN)
    inside = np.where(mu.sum(1, keepdims=True) > UNSEEN, mu / law, chain.stationary)
    log_mu = np.log(np.maximum(inside, SMALLEST_LAW))
    ahead = beta @ chain.transition.T  # S x Z
    x = np.log(r)[:, :, None] - NATS * (problem.cost(solution.weight).T + ahead[next])  # S x Y x Z
    top = x.max(1, keepdims=True)
    log_a = x - top - np.log(np.exp(x - top).sum(1, keepdims=True))
    return Start(next, np.log(law)[:, None] + log_mu[:, None] + log_a, NATS * beta + log_mu)
