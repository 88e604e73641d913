"""Certificates for solutions: how close each is to the best possible."""

from dataclasses import replace
from time import perf_counter

from veilstream.solvers.bounds.certify import Certificate, certify
from veilstream.solvers.solution import Progress, Solution


def certify_solution(solution: Solution, seconds: float, progress: Progress | None = None) -> Solution:
    """The solution with a proved lower bound on leakage + weight * distortion over all policies."""
    began = perf_counter()
    certificate = certificate_of(solution, seconds, progress)
    done = solution.with_bound(certificate.lower_bound, certificate)
    return replace(done, seconds=solution.seconds + perf_counter() - began)


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
    problem = solution.problem
    return certify(
        problem.chain.transition,
        problem.cost(solution.weight),
        law=problem.chain.stationary,
        upper=solution.objective,
        seconds=seconds,
        progress=progress,
    )
