"""Releases for one stream, one by one, and for many at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from veilstream.control.feedback import Excess
from veilstream.control.loop import Seen, replay
from veilstream.control.mechanism import SILENT, Mechanism, MeterName
from veilstream.control.policy import Policy
from veilstream.control.uniforms import uniforms
from veilstream.errors import InputError
from veilstream.model.histories import BLIND
from veilstream.model.information import Array, Index
from veilstream.model.problem import Problem

AT_HAND = 1 << 16  # belief entries that stay in a processor's cache


class Releaser:
    """One stream. `release(x)` gives what may be shown instead of the true symbol x.

    A policy from `solve` knows its chain, and the meter is exact. For a bare window policy without `problem` it
    charges each step the capacity of the channel, an upper bound for every chain. `step`: the public number of the
    first step, for a chain with a clock.

        >>> import veilstream as vs
        >>> solution = vs.solve("builtin:binary", avg=0.1)
        >>> releaser = vs.Releaser(solution.policy)            # draws come from the system's secure generator
        >>> shown = [releaser.release(x) for x in (0, 0, 1, None, 1)]
        >>> set(shown) <= {0, 1}, releaser.leaked_bits > 0
        (True, True)
    """

    def __init__(
        self,
        policy: Policy,
        problem: Problem | None = None,
        *,
        ceiling: float | None = None,
        meter: MeterName = "exact",
        seed: int | None = None,
        step: int = 0,
    ) -> None:
        _needs_problem(policy, problem)
        self.mechanism, self._problem = Mechanism(policy, problem, ceiling, meter), problem
        self._streams, self._uniforms = self.mechanism.start(1, step), uniforms(seed)
        self._private = np.array([BLIND])  # the last true state: leaves through the channel only
        rule = policy.moves_by
        self._account = None if rule is None else Excess.new(rule, self._streams.step)

    @property
    def leaked_bits(self) -> float:
        """The public meter: sum of L(b_t, a_t) so far."""
        return float(self._streams.total[0])

    def release(self, x: int | None) -> int | None:
        """The release for the true symbol x (None: nothing was read); None: the stream is silent at this step."""
        symbol = _checked_symbols(BLIND if x is None else x, len(self.mechanism.true_states.first), BLIND)
        z = self.mechanism.true_states(self._private, symbol.reshape(1))
        s, account = self._streams, self._account
        if account is not None:
            s = self.mechanism.move(s, account)
        self._streams, y = self.mechanism.step(s, z, self._uniforms(1))
        if account is not None and self._problem is not None:
            unseen = (z == BLIND) | (y == SILENT)
            account.count(np.where(unseen, np.nan, self._problem.distortion[z, y]), s.step)
        self._private = z
        return None if y[0] == SILENT else int(y[0])

    def skip(self, k: int = 1) -> None:
        """k steps without a release."""
        self._streams = self.mechanism.skip(self._streams, k)
        self._private = np.array([BLIND])


@dataclass(frozen=True, eq=False)
class Released:
    """What `release_many` gives: y is streams x steps (SILENT where nothing was released)."""

    y: Index
    leaked_bits: Array  # per stream


def release_many(
    policy: Policy,
    x: ArrayLike,
    problem: Problem | None = None,
    *,
    ceiling: float | None = None,
    meter: MeterName = "exact",
    seed: int | None = None,
    step: ArrayLike = 0,
) -> Released:
    """Many streams at once: true symbols x, streams x steps, each stream from its own start (at these public steps).

    >>> import veilstream as vs
    >>> solution = vs.solve("builtin:binary", avg=0.1)
    >>> vs.release_many(solution.policy, [[0, 0, 1], [1, 1, 1]]).y.shape
    (2, 3)
    """
    _needs_problem(policy, problem)
    mechanism, source = Mechanism(policy, problem, ceiling, meter, sighted=True), uniforms(seed)
    x = np.asarray(x)
    if x.ndim != 2:
        raise InputError(f"x must be streams x steps, found {x.ndim} axes")
    x = _checked_symbols(x, len(mechanism.true_states.first), 0)
    z = np.full(x.shape, BLIND, order="F")  # a step of all streams in one piece
    for t in range(x.shape[1]):
        z[:, t] = mechanism.true_states(z[:, t - 1] if t else z[:, t], x[:, t])

    def error(seen: Seen) -> Array:
        assert problem is not None
        return np.asarray(problem.distortion[z[seen.rows, seen.t], seen.y])

    most = max(1, AT_HAND // policy.n_states)
    return Released(*replay(mechanism, z, uniforms=source, first=step, error=error, at_once=most))


def _needs_problem(policy: Policy, problem: Problem | None) -> None:
    if policy.moves_by is not None and problem is None:
        raise InputError("a ladder needs the problem it was made for (problem=...): its moves depend on distances")


def _checked_symbols(x: ArrayLike, n: int, lowest: int) -> Index:
    """`x` as symbols 0..n-1; the line for bad ones does not say what they were."""
    x = np.asarray(x)
    if x.dtype.kind not in "iu" or (x.size and (x.min() < lowest or x.max() >= n)):
        raise InputError(f"a true symbol must be an integer from 0 to {n - 1} (use StateSpace.encode for readings)")
    return x.astype(np.int64)
