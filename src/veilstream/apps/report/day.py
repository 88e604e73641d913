"""One day of a policy that looks at the clock: how far off releases are, and what they reveal, by the hour."""

from html import escape
from typing import Any

import numpy as np

from veilstream.control.policy import Policy
from veilstream.control.stationary import long_run
from veilstream.model.information import Array
from veilstream.model.problem import Problem


def by_the_hour(problem: Problem, policy: Policy) -> tuple[Array, Array] | None:
    """Mean error and bits of the steps of each phase of the clock, day types x phases a day; of a week weekdays and
    weekends. Computed from the law at every step of a round; None where there is no clock."""
    chain, known = problem.chain, long_run(problem.chain, policy)
    if chain.clock.kind == "steps" or known is None:
        return None
    sums, n = np.zeros((chain.phases, 2)), np.bincount(chain.around, minlength=chain.phases)[:, None]
    np.add.at(sums, chain.around, np.array(known.by_step(problem.distortion)))
    bits, error = (sums / n).T.reshape(2, -1, chain.clock.n)
    return error, bits


def day_part(problem: Problem, policy: Policy, unit: str) -> tuple[str, list[dict[str, Any]] | None]:
    """The section of the page and what its script draws there; empty without a clock."""
    day = by_the_hour(problem, policy)
    if day is None:
        return "", None
    named = zip(
        ("error", "bits"), (f"mean error ({unit})" if unit else "mean error", "bits per step"), day, strict=True
    )
    drawn = [{"kind": k, "label": label, "top": f"{v.max():.3g}", "rows": v.tolist()} for k, label, v in named]
    weekend = " Weekends are dashed." if len(day[0]) > 1 else ""
    plots = "".join(f'<div id="day-{k}" class="plot"></div>' for k in range(2))
    return (
        '<section aria-labelledby="h-day"><h2 id="h-day">One day</h2>'
        f'<figure><div class="pair">{plots}</div><figcaption>By the hour, {escape(str(problem.chain.clock))}, '
        f"which everybody knows: computed exactly, of the fitted chain.{weekend}</figcaption></figure></section>"
    ), drawn
