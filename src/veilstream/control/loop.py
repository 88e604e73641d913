"""The release loop along streams: one driver for simulation, audit, held-out figures and feedback.

s = skip(s, k)          where k steps were missed
s = move(s, account)    a public move, of policies that make any
view = look(s)          what anybody knows before the release
y = draw(s, view, z)    unless it is known what was released
s = after(s, view, y)   and the error of y is counted, where feedback asks for it
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from veilstream.control.accountant import Streams
from veilstream.control.feedback import Excess
from veilstream.control.mechanism import MOST_CELLS, SILENT
from veilstream.control.policy import Policy
from veilstream.control.uniforms import Uniforms
from veilstream.model.histories import BLIND
from veilstream.model.information import Array, Index


class Loop(Protocol):
    """What can be replayed: `Mechanism`, or whatever offers the same. `move` is asked of policies with feedback alone,
    `density` by `Replay.run` alone."""

    @property
    def policy(self) -> Policy: ...
    def start(self, n: int, step: ArrayLike = 0) -> Streams: ...
    def skip(self, s: Streams, k: int = 1) -> Streams: ...
    def move(self, s: Streams, account: Excess) -> Streams: ...
    def look(self, s: Streams) -> Any: ...
    def draw(self, s: Streams, view: Any, z: Index, u: Array) -> Index: ...
    def after(self, s: Streams, view: Any, y: Index) -> Streams: ...
    def density(self, s: Streams, view: Any, z: Index, y: Index) -> Array: ...


class Seen(NamedTuple):
    """One step of a replay, for whoever observes it."""

    t: int
    rows: slice  # which streams: those that still run
    before: Streams  # their public state, after gap and move
    view: Any
    y: Index
    moved: Array  # bits that the public move before it added


def replay(
    mechanism: Loop,
    z: Index,
    observe: Callable[[Seen], None] | None = None,
    *,
    uniforms: Uniforms | None = None,
    y: Index | None = None,
    first: ArrayLike = 0,
    lengths: Index | None = None,
    gaps: Index | None = None,
    error: Callable[[Seen], Array] | None = None,
    at_once: int | None = None,
) -> tuple[Index, Array]:
    """Releases of n streams, n x steps, and the bits that the meter counted of each.

    z: n x steps, true states (BLIND: do not look), or what the mechanism looks at instead. uniforms: where draws come
    from; y: what was released, where nothing is to be drawn. first: the public numbers of the first steps. lengths: of
    the streams, longest first. gaps: steps missed before each, the same for all. error: of the releases of a step, for
    policies with feedback. at_once: streams that run side by side.
    """
    n, steps = z.shape
    first, lengths = np.broadcast_to(first, n), np.full(n, steps) if lengths is None else lengths
    shown, total, policy = np.zeros(z.shape, np.int64, order="F"), np.zeros(n), mechanism.policy
    most = max(1, MOST_CELLS // (policy.n_states * policy.n_outputs)) if at_once is None else at_once
    now = [mechanism.start(len(part), part) for part in np.split(first, range(most, n, most))]
    accounts = [None if policy.moves_by is None else Excess.new(policy.moves_by, s.step) for s in now]
    for t, running in enumerate((lengths[:, None] > np.arange(steps)).sum(0).tolist()):
        u = np.zeros(running) if uniforms is None else uniforms(running)
        for k, start in enumerate(range(0, running, most)):
            rows = slice(start, min(start + most, running))
            s, account, m = now[k], accounts[k], rows.stop - start
            if m < len(s.step):
                s, account = s[:m], None if account is None else account[:m]
            if gaps is not None and gaps[t]:
                s = mechanism.skip(s, int(gaps[t]))
            moved = np.zeros(m)
            if account is not None:
                before, s = s, mechanism.move(s, account)
                moved = s.total - before.total
            view = mechanism.look(s)
            y_t = shown[rows, t] = mechanism.draw(s, view, z[rows, t], u[rows]) if y is None else y[rows, t]
            seen = Seen(t, rows, s, view, y_t, moved)
            if observe is not None:
                observe(seen)
            if account is not None and error is not None:
                unseen = (z[rows, t] == BLIND) | (y_t == SILENT)
                account.count(np.where(unseen, np.nan, error(seen)), s.step)
            s = mechanism.after(s, view, y_t)
            now[k], accounts[k], total[rows] = s, account, s.total
    return shown, total
