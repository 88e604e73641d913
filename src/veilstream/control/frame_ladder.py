"""Frames as the rungs of a limit kept by feedback (`control.feedback` has the rule and what it guarantees)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.control.feedback import Feedback
from veilstream.control.frame import ANYWHERE, Frame
from veilstream.control.places import Places
from veilstream.control.policy import Export, Memory, Policy
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index
from veilstream.model.lattice import Lattice
from veilstream.model.problem import Average, Both, Constraint, Instantaneous


@dataclass(frozen=True, eq=False)
class FrameLadder(Policy, kind="frame-ladder"):
    """Frames by rising error on one lattice with the same places, moved between in public to keep a mean error.

    Its memory is a frame's, with the rung in it. Whatever the moves say, the meter's bound holds: each adds its bits.
    """

    frames: Sequence[Frame]
    feedback: Feedback
    first: int = 0
    chain: MarkovChain | None = ANYWHERE

    def __post_init__(self) -> None:
        object.__setattr__(self, "frames", tuple(self.frames))
        if self.feedback.rungs != len(self.frames) or not 0 <= self.first < len(self.frames):
            raise InputError(f"a ladder of {len(self.frames)} frames has a rule for {self.feedback.rungs}")
        one = self.frames[0]
        for other in self.frames[1:]:
            if other.lattice != one.lattice or not np.array_equal(other.packed, one.packed):
                raise InputError("the rungs of a ladder must be frames on one lattice, with the same places")

    # --- the loop --------------------------------------------------------------------------------------------

    @property
    def lattice(self) -> Lattice:
        return self.frames[0].lattice

    @property
    def places(self) -> Places | None:
        """That every rung knows."""
        return self.frames[0].places

    @property
    def packed(self) -> Index:
        return self.frames[0].packed

    @property
    def dearest(self) -> float:
        """Bits of the dearest release on any rung."""
        return max(frame.dearest for frame in self.frames)

    @property
    def average(self) -> float:
        """That was asked for; the rule may aim at less."""
        return self.frames[0].average

    @property
    def limit(self) -> float:
        """At every step: none, since a rung may have one and another not."""
        return np.inf

    @property
    def n_states(self) -> int:
        return 1

    @property
    def n_outputs(self) -> int:
        return 1

    def start(self, n: int | None = None) -> Memory:
        memory = self.frames[0].start(n)
        memory[..., -1] = self.first
        return memory

    def channel(self, memory: Memory) -> Array:
        return self.frames[0].channel(memory)

    def check(self) -> None:
        """Frames are checked where they are made."""

    def update(self, memory: Memory, y: ArrayLike, channel: Array | None = None) -> Memory:
        return self.frames[0].update(memory, y)

    def skip(self, memory: Memory, k: int = 1) -> Memory:
        return self.frames[0].skip(memory, k)

    @property
    def moves_by(self) -> Feedback:
        return self.feedback

    def rung(self, memory: Memory) -> Index:
        return np.asarray(memory[..., -1])

    def moved(self, memory: Memory, way: Index) -> Memory:
        """One move that way, at a boundary of its rule."""
        return np.concatenate([memory[:, :-1], self.feedback.moved(memory[:, -1], way)[:, None]], 1)

    # --- the file --------------------------------------------------------------------------------------------

    def export(self) -> Export:
        parts = [f.export() for f in self.frames]
        arrays = {f"{i}.{k}": v for i, (_, own) in enumerate(parts) for k, v in own.items()}
        rule = {**asdict(self.feedback), "felt": list(self.feedback.felt)}
        return {"kind": self.kind, "frames": [m for m, _ in parts], "feedback": rule, "first": self.first}, arrays

    @classmethod
    def restore(cls, meta: dict[str, Any], arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> "FrameLadder":
        frames = []
        for i, part in enumerate(meta["frames"]):
            own = {k.removeprefix(f"{i}."): v for k, v in arrays.items() if k.startswith(f"{i}.")}
            frames.append(Frame.restore(part, own, chain))
        return cls(frames, Feedback(**meta["feedback"]), int(meta["first"]), chain)


Framed = Frame | FrameLadder  # what has a `FrameMechanism`


def asked_of(policy: Framed) -> Constraint:
    """The limits that a frame was made for."""
    mean = None if np.isinf(policy.average) else Average(limit=policy.average)
    if np.isinf(policy.limit):
        return Average(weight=0.0) if mean is None else mean
    every = Instantaneous(policy.limit)
    return every if mean is None else Both(mean, every)
