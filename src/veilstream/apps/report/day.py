"""One day of a policy that looks at the clock, drawn: how far off releases are, and what they reveal, by the hour."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np

from veilstream.apps.report import svg
from veilstream.control.policy import Policy
from veilstream.control.stationary import long_run
from veilstream.model.clock import Clock
from veilstream.model.information import Array
from veilstream.model.problem import Problem

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 440, 144, 72, 32, 22, 18  # the label stands above the curve
COLOURS = {"distance": "released", "bits": "true"}  # of the page: lighter where it is dark


@dataclass(frozen=True, eq=False)
class Day:
    """Means of the steps of each phase of the clock; of a week weekdays and weekends."""

    bits: Array  # day types x phases a day
    distance: Array

    @classmethod
    def of(cls, problem: Problem, policy: Policy) -> Day | None:
        """Computed from the law at every step of a round; None where there is no clock."""
        chain, known = problem.chain, long_run(problem.chain, policy)
        if chain.clock.kind == "steps" or known is None:
            return None
        found = known.by_step(problem.distortion)
        sums, n = np.zeros((chain.phases, 2)), np.bincount(chain.around, minlength=chain.phases)[:, None]
        np.add.at(sums, chain.around, np.array(found))
        bits, distance = (sums / n).T.reshape(2, -1, chain.clock.n)
        return cls(bits, distance)


def day_part(problem: Problem, policy: Policy, unit: str) -> str:
    """The section of the page; empty without a clock."""
    day, chain = Day.of(problem, policy), problem.chain
    if day is None:
        return ""
    panels = [("distance", day.distance, f"mean error ({unit})" if unit else "mean error")]
    panels.append(("bits", day.bits, "bits per step"))
    pictures = "".join(_picture(kind, values, label, chain.clock) for kind, values, label in panels)
    weekend = " Weekends are dashed." if len(day.bits) > 1 else ""
    return (
        '<section aria-labelledby="h-day"><h2 id="h-day">One day</h2>'
        f'<figure class="plot"><div class="pair">{pictures}</div><figcaption>By the hour, {escape(str(chain.clock))}, '
        f"which everybody knows: computed exactly, of the fitted chain.{weekend}</figcaption></figure></section>"
    )


def _picture(kind: str, values: Array, label: str, clock: Clock) -> str:
    top = float(values.max()) or 1.0
    x = LEFT + (WIDTH - LEFT - GAP) * np.arange(clock.n + 1) / clock.n
    lines = []
    for row, dash in zip(values, ("", ' stroke-dasharray="5 4"'), strict=False):
        y = TOP + (HEIGHT - BOTTOM - TOP) * (1 - row / top)
        points = " ".join(f"{a:.1f},{b:.1f} {c:.1f},{b:.1f}" for a, b, c in zip(x, y, x[1:], strict=False))
        lines.append(
            f'<polyline fill="none" stroke="var(--{COLOURS[kind]})" stroke-width="2"{dash} points="{points}"/>'
        )
    base, right = HEIGHT - BOTTOM, WIDTH - GAP
    hours = [svg.text(LEFT + (right - LEFT) * h / 24, HEIGHT - 6, f"{h}:00") for h in range(0, 25, 6)]
    axis = svg.path("axis", f"M{LEFT} {base}H{right}")
    words = [
        (LEFT - 6, TOP + 4, f"{top:.3g}", "end"),
        (LEFT - 6, base, "0", "end"),
        (LEFT + 4, TOP - 14, label, "start"),
    ]
    parts = [axis, *(svg.text(*word) for word in words), *hours, *lines]
    return svg.picture(WIDTH, HEIGHT, f"{label} by the hour, at most {top:.3g}", parts)
