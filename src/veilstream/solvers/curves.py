"""A trade-off curve: solutions by their weight, that can be looked at."""

from __future__ import annotations

from typing import Any

from veilstream.shown import Rows, Shown, picture
from veilstream.solvers.solution import Solution


class Curve(list[Solution], Shown):
    """The list of solutions that `curve` gives.

    >>> import veilstream as vs
    >>> vs.curve("builtin:binary", weights=[1.0, 4.0])
    <Curve binary: 2 points of causal-ba, 0.14 to 0.41 bits per step>
    """

    __repr__ = Shown.__repr__

    def plot(self, ax: Any = None) -> Any:
        """A matplotlib Figure: bits per step against distortion; ax: axes to draw on instead."""
        return picture("curve", self, ax)

    def about(self) -> tuple[str, Rows]:
        if not self:
            return "without points", []
        bits = [s.leakage for s in self]
        methods = ", ".join(dict.fromkeys(s.method for s in self))
        span = f"{min(bits):.2g} to {max(bits):.2g} bits per step"
        rows = [(f"{s.distortion:.3g} {s.unit}".rstrip(), f"{s.leakage:.4f} bits per step, {s.level}") for s in self]
        return f"{self[0].problem.chain.name}: {len(self)} points of {methods}, {span}", rows
