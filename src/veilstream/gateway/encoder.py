"""What readings and releases are to one policy: true symbols, places to be shown, and how far apart they are.

Over the states of a chain (`StateEncoder`), or over a frame's lattice, which has places anywhere on earth and levels of
any size (`LatticeEncoder`, `control.frame`). Encoding is total: whatever can be read has a nearest symbol.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilstream.control.cascade import BehindFilter, Finer
from veilstream.control.frame_ladder import Framed
from veilstream.control.frame_mechanism import FrameMechanism
from veilstream.control.mechanism import SILENT, Mechanism, MeterName
from veilstream.control.policy import Policy
from veilstream.data.states import StateSpace, apart_km
from veilstream.errors import InputError
from veilstream.gateway.owntracks import metres_off, round_up
from veilstream.gateway.wire import Point, Release
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import BLIND, TrueStates
from veilstream.model.information import Array, Index
from veilstream.model.problem import Average, Problem

if TYPE_CHECKING:
    from veilstream.artefact import Artefact

NOWHERE = math.nan, math.nan
WILD = 10  # times the farthest that the policy knows: a reading beyond it counts no more than that
Shown = tuple[int | float | str, float | None, float | None]  # released, lat, lon
Error = Callable[[Index, Index], Array]  # of releases for some of the readings, by their places; NaN: nothing was read


class StateEncoder:
    """Over the states of the problem's chain."""

    def __init__(self, artefact: "Artefact") -> None:
        self.policy, self.problem = self._asked(artefact)
        self.states, self.points, self.unit = artefact.states, artefact.shown, artefact.unit
        if self.points is not None and len(self.points) < self.policy.n_outputs:
            raise InputError(
                f"the policy releases {self.policy.n_outputs} symbols but the file describes {len(self.points)}"
            )
        self.width = 2 if self.states is not None and self.states.is_map else 1  # of a reading
        self.cost = None if self.states is None else artefact.cost
        self._in_km = artefact.measure == "absolute" and artefact.unit == "km"  # the distortion
        self.chain, self.rule, self.distances = self.problem.chain, self.policy.moves_by, self.problem.distortion
        self.true_states, self.farthest = TrueStates.of(self.chain), float(self.distances.max())
        average = self.problem.average
        self.limit = self.rule.limit if self.rule is not None else None
        if self.rule is None and isinstance(average, Average):
            self.limit = average.limit
        self.shown = [self._show(y) for y in range(self.policy.n_outputs)]
        digest = hashlib.sha256(np.ascontiguousarray(self.chain.transition).tobytes())
        if self.chain.phases > 1:
            digest.update(np.ascontiguousarray(self.chain.cycle).tobytes() + str(self.chain.clock).encode())
        if self.states is not None:
            digest.update(self.states.coordinates.tobytes())
        self.identity = digest.hexdigest()

    def _asked(self, artefact: "Artefact") -> tuple[Policy, Problem]:
        return artefact.answer()

    def mechanism(self, ceiling: float | None, meter: MeterName | None) -> Mechanism:
        return Mechanism(self.policy, self.problem, ceiling, meter or "exact")

    def encode(self, points: Sequence[Point]) -> Index:
        """The true symbol of every point, BLIND where nothing can be read."""
        xy, readable = coordinates(points, self.width)
        if self.states is None:
            symbols = np.clip(np.rint(xy[:, 0]), 0, self.chain.n_symbols - 1).astype(np.int64)
        else:
            symbols = self.states.encode(xy)
        return np.where(readable, symbols, BLIND)

    def symbol_of(self, state: int) -> int:
        """The symbol of a true state that a stream keeps."""
        return int(self.chain.symbols[state])

    def watched(self, x: Index) -> Index:
        """The symbols that the drift of a stream is told by."""
        return x

    def show(self, y: Index) -> list[Shown]:
        """Of SILENT anything."""
        return [self.shown[i] for i in y.tolist()]

    def _show(self, y: int) -> Shown:
        if self.points is None:
            return y, None, None
        if self.points.kind == "names":
            return self.points.names[y], None, None
        place = self.points.decode(y)
        return (y, float(place[0]), float(place[1])) if self.points.is_map else (float(place[0]), None, None)

    def felt(self, points: Sequence[Point]) -> Array:
        """From every point to every release, n x |Y|; NaN where nothing can be read."""
        xy, readable = coordinates(points, self.width)
        far = self.distances[self.encode(points)] if self.cost is None else self.cost.distances_from(xy)
        return np.where(readable[:, None], far, np.nan)

    def errors(self, points: Sequence[Point], x: Index) -> Error:
        """For feedback."""
        far = self.felt(points)
        return lambda at, y: np.where(y == SILENT, np.nan, far[at, y])

    def off(self, points: Sequence[Point], x: Index, y: Index) -> Array:
        """How far each reading is from its release, by its symbol where it is not kept; NaN: not read or shown."""
        if self.cost is None or not points:
            far, readable = self.distances[self.true_states.first[x], y], x != BLIND
        else:
            xy, readable = coordinates(points, self.width)
            with np.errstate(over="ignore"):
                far = np.minimum(self.cost.distance_to(xy, y), WILD * self.farthest)
        return np.where(readable & (y != SILENT), far, np.nan)

    def accuracy(self, release: Release) -> int:
        """How far off a released place is said to be, in metres; of one that an earlier policy knew, the most."""
        return self._metres.get((release.lat, release.lon), self._metres[None, None])

    @cached_property
    def _metres(self) -> dict[tuple[float | None, float | None], int]:
        assert self.states is not None and self.points is not None
        far = self.distances
        if not self._in_km:
            places = self.states.decode(self.chain.symbols)
            far = self.points.distances_from(places)[:, : self.policy.n_outputs]
        off = metres_off(self.policy, self.chain, 1000 * far)
        found: dict[tuple[float | None, float | None], int] = {(None, None): max(off)}
        for (_, lat, lon), metres in zip(self.shown, off, strict=True):
            found[lat, lon] = max(metres, found.get((lat, lon), 1))  # states may share a place
        return found


class AudienceEncoder(StateEncoder):
    """Over the releases of a finer policy, which come as symbols; the meter is of whoever sees what is made of them."""

    def __init__(self, artefact: "Artefact") -> None:
        super().__init__(artefact)
        assert artefact.finer is not None
        self.finer = Finer.through(artefact.person.chain, artefact.finer.policies)
        self.identity = f"behind {artefact.finer.sha256}"  # beliefs are about that policy's memory

    def _asked(self, artefact: "Artefact") -> tuple[Policy, Problem]:
        assert artefact.policy is not None and artefact.problem is not None
        return artefact.policy, artefact.problem

    def mechanism(self, ceiling: float | None, meter: MeterName | None) -> Mechanism:
        return Mechanism(self.policy, self.problem, ceiling, meter or BehindFilter(self.finer))


class LatticeEncoder:
    """Over the places of a frame: readings anywhere, releases wherever it has travelled."""

    chain = MarkovChain(np.ones((1, 1)))  # nobody's habits are known: drift is the error alone
    true_states, farthest = TrueStates.plain(1), math.inf

    def __init__(self, policy: Framed) -> None:
        self.frame, self.lattice = policy, policy.lattice
        self.states: StateSpace = self.lattice  # type: ignore[assignment]  # all of it that is used here
        self.points, self.width = self.states, 2 if self.lattice.is_map else 1
        self.unit, self.rule, self.identity = self.lattice.unit, policy.moves_by, f"frame {self.lattice}"
        self.limit = None if math.isinf(policy.average) else policy.average

    def mechanism(self, ceiling: float | None, meter: MeterName | None) -> Mechanism:
        if meter is not None:
            raise InputError(f"a policy of veil start has a meter of its own; leave out `meter={meter!r}`")
        return FrameMechanism(self.frame, ceiling)  # type: ignore[return-value]  # as above

    def encode(self, points: Sequence[Point]) -> Index:
        xy, readable = coordinates(points, self.width)
        return np.where(readable, self.lattice.encode(xy), BLIND)

    def symbol_of(self, state: int) -> int:
        return state

    def watched(self, x: Index) -> Index:
        return np.minimum(x, 0)  # that something was read

    def show(self, y: Index) -> list[Shown]:
        """As fine as the lattice, no digits more."""
        at = self.lattice.decode(np.maximum(y, 0)).tolist()
        if self.lattice.is_map:
            return [(i, lat, lon) for i, (lat, lon) in zip(y.tolist(), at, strict=True)]
        return [(float(f"{v:.9g}"), None, None) for (v,) in at]

    def errors(self, points: Sequence[Point], x: Index) -> Error:
        return lambda at, y: self.off((), x[at], y)

    def off(self, points: Sequence[Point], x: Index, y: Index) -> Array:
        a, b = (self.lattice.decode(np.maximum(v, 0)) for v in (x, y))
        far = apart_km(a, b) if self.lattice.is_map else np.abs(a - b)[:, 0]
        return np.where((x != BLIND) & (y != SILENT), far, np.nan)

    def accuracy(self, release: Release) -> int:
        return round_up(1000 * min(self.frame.average, self.frame.limit))


Encoder = StateEncoder | LatticeEncoder


def encoder_of(artefact: "Artefact", audience: bool = False) -> Encoder:
    """audience: of a space whose readings are a finer one's releases."""
    if audience:
        return AudienceEncoder(artefact)
    return LatticeEncoder(artefact.policy) if isinstance(artefact.policy, Framed) else StateEncoder(artefact)


def coordinates(points: Sequence[Point], width: int) -> tuple[Array, NDArray[np.bool_]]:
    """The points as rows of numbers, and which of them can be read; the others are 0."""
    if width == 2:
        rows: list[Point] = [p if isinstance(p, tuple) else NOWHERE for p in points]
    else:
        rows = [math.nan if p is None or isinstance(p, tuple) else p for p in points]
    xy = np.array(rows, float).reshape(-1, width)
    readable = np.isfinite(xy).all(1)
    return np.where(readable[:, None], xy, 0), readable
