"""A frame at work (`control.frame`): readings anywhere on earth or of any size, releases wherever it has travelled."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veilstream.control.frame_ladder import Framed
from veilstream.control.frame_mechanism import FrameMechanism
from veilstream.control.mechanism import SILENT, MeterName
from veilstream.data.states import apart_km
from veilstream.errors import InputError
from veilstream.gateway.drift import Watch
from veilstream.gateway.owntracks import Seals, round_up
from veilstream.gateway.space import Job, Shown, Space
from veilstream.gateway.wire import Point, Release
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import BLIND, TrueStates
from veilstream.model.information import Array, Index

if TYPE_CHECKING:
    from veilstream.artefact import Artefact

ONE = MarkovChain(np.ones((1, 1)))  # nobody's habits are known: drift is the error alone


def space_of(
    artefact: "Artefact",
    ceiling: float | None = None,
    meter: MeterName | None = None,
    force: bool = False,
    seals: Seals | None = None,
) -> Space:
    """The space of a policy, whatever its kind."""
    kind = FrameSpace if isinstance(artefact.policy, Framed) else Space
    return kind(artefact, ceiling, meter, force, seals)


class FrameSpace(Space):
    def __init__(
        self,
        artefact: "Artefact",
        ceiling: float | None = None,
        meter: MeterName | None = None,
        force: bool = False,
        seals: Seals | None = None,
    ) -> None:
        policy = artefact.policy
        assert isinstance(policy, Framed)
        if meter is not None:
            raise InputError(f"a policy of veil start has a meter of its own; leave out `meter={meter!r}`")
        self.frame, self.lattice = policy, policy.lattice
        self.states = self.points = self.lattice  # type: ignore[assignment]
        self.unit, self.rule, self.cost, self.keeps_state = self.lattice.unit, policy.moves_by, None, False
        self.farthest = np.inf
        self.mechanism = FrameMechanism(policy, ceiling)  # type: ignore[assignment]
        self.watch = Watch(ONE, artefact.recording, TrueStates.plain(1))
        self._begin(artefact, ceiling, seals, f"frame {self.lattice}")

    @property
    def limit(self) -> float | None:
        return None if np.isinf(self.frame.average) else self.frame.average

    def show(self, y: NDArray[np.int64]) -> list[Shown]:
        """As fine as the lattice, no digits more."""
        at = [[float(f"{v:.9g}") for v in place] for place in self.lattice.decode(np.maximum(y, 0)).tolist()]
        return [(i, *p) if self.lattice.is_map else (p[0], None, None) for i, p in zip(y.tolist(), at, strict=True)]

    def encode(self, points: Sequence[Point]) -> NDArray[np.int64]:
        xy, readable = self._coordinates(points)
        return np.where(readable, self.lattice.encode(xy), BLIND)

    def _far(self, x: Index, y: Index) -> Array:
        """NaN where nothing was read or shown."""
        a, b = (self.lattice.decode(np.maximum(v, 0)) for v in (x, y))
        far = apart_km(a, b) if self.lattice.is_map else np.abs(a - b)[:, 0]
        return np.where((x != BLIND) & (y != SILENT), far, np.nan)

    def _off(self, jobs: list[Job], x: Index, y: Index) -> list[float]:
        found: list[float] = self._far(x, y).tolist()
        return found

    def _errors(self, jobs: list[Job], x: Index) -> Callable[[Index, Index], Array]:
        return lambda at, y: self._far(x[at], y)

    def symbol_of(self, state: int) -> int:
        return state

    def watched(self, x: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(x, 0)  # that something was read

    def accuracy(self, release: Release) -> int:
        asked = min(self.frame.average, self.frame.limit)
        return round_up(1000 * asked)
