"""The bound of `witness` over the non-zeros of a local problem; the memory is the last w releases.

The weights w_sy(z), the potential alpha_s(z) and the minimum g run over the triples (s, z, y) that can occur,
not over all. That is enough: after the first step the pair (s_t, z_t) is in the pattern whatever the mechanism, since
P and the limits leave no other way, and the first step has leakage and cost >= 0, so it may be left out of the sum.

The potential of a large grid settles as slowly as the chain mixes. But a part f(z) of it that does not depend on s can
be chosen at once. With h(z) = min over s, y of rho_s(z,y) + (P alpha_next)(z) - alpha_s(z) and pi the stationary law,

    (I - P) f = h - pi h        makes     rho + P (alpha + f) - (alpha + f)  >=  pi h      for all of s, z, y

one sparse system. pi only helps to find f: the bound itself is the minimum with alpha + f, as in `witness`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from veilstream.core.chain import LARGE
from veilstream.core.information import Array
from veilstream.core.local.pattern import Pattern, Rows, TooLarge, pattern_of
from veilstream.core.problem import Problem
from veilstream.solvers.bounds.certify import Certificate, Ending
from veilstream.solvers.bounds.witness import NATS, SMALLEST
from veilstream.solvers.size import layout_of
from veilstream.solvers.solution import Progress

if TYPE_CHECKING:
    from scipy.sparse import csr_array

LOOK_EVERY, MOST_SWEEPS = 25, 1000
STALLED = 2e-4  # relative: three looks without this much are enough
LARGEST = 1_000_000  # triples of the largest memory tried


def local_pattern(problem: Problem) -> Pattern | None:
    """The pattern without memory, where a problem is large and sparse and its chain returns everywhere."""
    if problem.n_states < LARGE or len(problem.chain.closed_classes[0]) < problem.n_states:
        return None
    if layout_of(problem, 1, 1).pattern is None:
        return None
    return pattern_of(problem.chain.sparse, Rows.of(problem.allowed), problem.n_outputs, 0)


@dataclass(frozen=True, eq=False)
class LocalWitness:
    """What proves a bound, over the triples and entries of a pattern; in nats."""

    pattern: Pattern
    log_weights: Array  # T
    alpha: Array  # E

    def bound(self, transition: "csr_array", distortion: Array, weight: float) -> float:
        """g in bits, rounding errors subtracted; transition: csr."""
        reverse = Reverse(self.pattern, transition)
        cost = weight * distortion[reverse.state, reverse.output] * NATS
        rho, log_wP = reverse.cost(cost, self.log_weights)
        g = float((rho + reverse.ahead(self.alpha) - self.alpha[reverse.entry]).min())
        largest = 1 + sum(np.abs(x).max() for x in (cost, self.log_weights, log_wP, self.alpha))
        return float((g - 8 * (self.pattern.n_states + 8) * largest * 2.0**-53) / NATS)


class Reverse:
    """The reverse channels of a pattern: (w_sy P)(z') lives on the pairs (s.y, z') that can occur."""

    def __init__(self, pattern: Pattern, transition: Any) -> None:
        from scipy.sparse import csr_array

        p = self.pattern = pattern
        self.entry = np.repeat(np.arange(len(p.entry_state)), np.diff(p.triple_start))
        self.state, self.output = p.entry_state[self.entry], p.output[p.triple_output]
        moves = Rows(transition.indptr.astype(np.int64), transition.indices.astype(np.int64))
        source, at = moves.expand(self.state)
        pairs, to = np.unique(p.triple_output[source] * p.n_states + moves.items[at], return_inverse=True)
        start = np.concatenate([[0], np.cumsum(moves.length[self.state])])
        self.moves = csr_array((transition.data[at], to, start), (p.n_triples, len(pairs)))
        self.back = self.moves.T.tocsr()
        self.by_output = np.argsort(p.triple_output, kind="stable")
        self.output_start = np.searchsorted(p.triple_output[self.by_output], np.arange(len(p.output)))

    def weights(self, log_w: Array) -> Array:
        """log w, scaled so that the largest of every s, y is 0, and none below SMALLEST."""
        top = np.maximum.reduceat(log_w[self.by_output], self.output_start)
        return np.maximum(log_w - top[self.pattern.triple_output], np.log(SMALLEST))

    def cost(self, cost: Array, log_w: Array) -> tuple[Array, Array]:
        """rho of every triple, and log (w P)."""
        log_wP = np.log(self.back @ np.exp(log_w))
        return cost + log_w - self.moves @ log_wP, log_wP

    def ahead(self, alpha: Array) -> Array:
        """(P alpha_next(s,y))(z) of every triple."""
        return np.asarray(self.pattern.follow @ alpha)[self.pattern.triple_kernel]

    def least(self, x: Array) -> Array:
        """The least over y, of every entry."""
        return np.minimum.reduceat(x, self.pattern.triple_start[:-1])


def alternate(reverse: Reverse, cost: Array, law: Array) -> Iterator[tuple[Array, Array]]:
    """`alternation.alternate` on a pattern: log m (T) and alpha (E) after every sweep."""
    p, entry = reverse.pattern, reverse.entry
    start, lead = p.triple_start[:-1], p.follow.T.tocsr()

    def normalised(x: Array) -> tuple[Array, Array]:
        top = np.maximum.reduceat(x, start)
        total = top + np.log(np.add.reduceat(np.exp(x - top[entry]), start))
        return x - total[entry], total

    mu = (law / np.bincount(p.entry_state, minlength=p.n_states))[p.entry_state]
    alpha = np.log(mu)
    log_a = normalised(-cost)[0]
    while True:
        log_m = np.log(np.maximum(mu, SMALLEST))[entry] + log_a
        rho, _ = reverse.cost(cost, reverse.weights(log_m))
        log_a, total = normalised(log_a - rho - reverse.ahead(alpha))
        alpha = total.mean() - total
        yield np.log(np.maximum(mu, SMALLEST))[entry] + log_a, alpha
        mu = lead @ np.bincount(p.triple_kernel, mu[entry] * np.exp(log_a), len(p.kernel_row))


def flattened(reverse: Reverse, transition: "csr_array", law: Array, rho: Array, alpha: Array, steps: int) -> Array:
    """A better potential: some value iteration, then the part f(z) of the module's head."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import spsolve

    p = reverse.pattern
    for _ in range(steps):
        alpha = reverse.least(rho + reverse.ahead(alpha))
        alpha = alpha - alpha.mean()
    gained = reverse.least(rho + reverse.ahead(alpha)) - alpha
    h = np.full(p.n_states, np.inf)
    np.minimum.at(h, p.entry_state, gained)
    f = np.zeros(p.n_states)
    f[1:] = spsolve((eye_array(p.n_states) - transition).tocsc()[1:, 1:], (h - law @ h)[1:])
    alpha = alpha + f[p.entry_state]
    return np.asarray(alpha - alpha.mean())


def certify_locally(
    problem: Problem,
    weight: float,
    pattern: Pattern,
    *,
    upper: float,
    seconds: float,
    tolerance: float = 1e-3,
    progress: Progress | None = None,
) -> Certificate:
    """Bound leakage + weight * distortion from below over all causal mechanisms: no memory, then the last releases."""
    began = perf_counter()
    transition, law = problem.chain.sparse, problem.chain.stationary
    nearest = np.where(problem.allowed, problem.distortion, np.inf).min(1)
    bound = weight * float(law @ nearest) * (1 - 1e-12)
    best: LocalWitness | None = None
    history: list[dict[str, float]] = []
    outcome, steps, memory = Ending.SIZE, 0, 1

    def tight() -> bool:
        return bound >= (1 - tolerance) * upper

    while not tight():
        reverse = Reverse(pattern, transition)
        cost = weight * problem.distortion[reverse.state, reverse.output] * NATS
        before, looks = bound, []
        for k, (log_m, alpha) in enumerate(alternate(reverse, cost, law), 1):
            steps += 1
            late = perf_counter() - began > seconds
            if k % LOOK_EVERY and not late:
                continue
            log_w = reverse.weights(log_m)
            alpha = flattened(reverse, transition, law, reverse.cost(cost, log_w)[0], alpha, 10)
            witness = LocalWitness(pattern, log_w, alpha)
            looks.append(witness.bound(transition, problem.distortion, weight))
            if looks[-1] > bound:
                bound, best, memory = looks[-1], witness, len(pattern.windows)
                history.append({"seconds": perf_counter() - began, "bound": bound, "memory": memory})
            if progress:
                spent = min(1.0, (perf_counter() - began) / max(seconds, 1e-9))
                progress(spent, f"proved {bound:.4f} bits, window {pattern.window}")
            stalled = len(looks) > 3 and looks[-1] < looks[-4] + STALLED * upper
            if late or tight() or stalled or k >= MOST_SWEEPS:
                break
        if tight() or late:
            outcome = Ending.TIGHT if tight() else Ending.TIME
            break
        if pattern.window and bound - before < STALLED * upper:
            break
        try:
            allowed = Rows.of(problem.allowed)
            pattern = pattern_of(transition, allowed, problem.n_outputs, pattern.window + 1, LARGEST)
        except TooLarge:
            break
    else:
        outcome = Ending.TIGHT
    took = perf_counter() - began
    return Certificate(bound, upper, memory, steps, outcome, took, history, [best])
