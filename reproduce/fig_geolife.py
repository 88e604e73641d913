"""(f) GeoLife user 016: privacy against utility, for a limit at every step and on average."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduce.fig_adc import best_at
from reproduce.geolife import WHY, model
from reproduce.item import NO, PART, YES, Budget, Desk, Finding, Item, too_few
from reproduce.learned import (
    AS_PUBLISHED,
    MARKS,
    called,
    draw_learned,
    draw_points,
    said,
    swept,
    told_of,
    trained,
)
from reproduce.learned import METHODS as LEARNED
from reproduce.points import curved, rolled, solved, today
from veilstream.apps.report.layout import lower_curve
from veilstream.apps.report.plots import STYLES, draw_trade_off
from veilstream.control.evaluate import Evaluation
from veilstream.control.policy import Policy
from veilstream.model.problem import Average, Instantaneous, Problem
from veilstream.solvers import default_weights
from veilstream.solvers.solution import Point, Solution

LIMITS_KM = (1.0, 2.0, 3.0, 5.0, 8.0, 15.0)
LEARNED_KM = 5.0  # where learned methods are told beside each other
LEARNED_WEIGHTS = (0.03, 0.15, 0.6)  # on average, where they are run without --full: at the nearest of the curve
SAME_LEVEL = 0.2  # relative
PAPER_IDC = {15.0: 0.18, 5.0: 0.39, 3.0: 0.53}  # km at every step: bits
PAPER_ADC = {9.0: 0.11, 5.7: 0.20, 1.7: 0.35}  # km on average: bits
PAPER_MYOPIC = {9.0: 0.27, 5.7: 0.33, 1.7: 0.50}
STEPS, ROLL_OUTS = 600, 1000
AS_THERE: dict[str, Any] = {"activation": "relu", "episode": STEPS}  # the paper's networks on GeoLife
AS_PUBLISHED_WEIGHTS = (0.0, 0.03, 1.0)  # for its 9, 5.7 and 1.7 km
TODAY = "planar-laplace"


def swept_as_published(desk: Desk, problem: Problem) -> list[tuple[Policy, Solution]]:
    """The paper's method on average: trained at rising weights, each on from the networks before."""
    return swept(desk, problem, AS_PUBLISHED, AS_PUBLISHED_WEIGHTS, shorter=False, **AS_THERE)


@dataclass(frozen=True)
class AtEveryStep:
    """One limit: each method's point, the planar Laplace cut to it, and the paper's own measure at its own limits."""

    found: dict[str, Solution]
    used: Point
    rolled: Evaluation | None = None

    @property
    def best(self) -> Solution:
        return self.found["causal-ba"]


Limits = dict[float, AtEveryStep]
Curves = dict[str, list[Solution]]


def make(desk: Desk) -> Finding:
    assert desk.geolife is not None
    desk.tell(0.0, "fitting")
    fitted = model(desk.geolife)
    chain, d = fitted.chain, fitted.states.distances()
    limits: Limits = {}
    for i, km in enumerate(LIMITS_KM):
        desk.tell(0.1 + 0.5 * i / len(LIMITS_KM), f"{km:g} km at every step")
        limits[km] = at_every_step(desk, Problem(chain, d, Instantaneous(km)), km)
    problem = Problem(chain, d, Average(weight=1.0))
    curves, family = on_average(desk, problem), today(desk, problem, TODAY)
    head = ["constraint", "method", "limit_km", "distortion_km", "leakage_bits", "standard_error", "lower_bound_bits"]
    desk.table([*head, "level"], rows(limits, curves, family))
    desk.figure(draw(problem, limits, curves, family))
    return replace(judge(problem, limits, curves), ran=ran(limits, curves, desk.budget))


def ran(limits: Limits, curves: Curves, budget: Budget) -> str:
    """What was run, at how many limits and weights."""
    parts, budget = [], replace(budget, a2c_runs=1)
    for m in ("causal-ba", "myopic", "belief-greedy", *LEARNED, AS_PUBLISHED):
        name = told_of(m, budget, **options_here(m, budget)) if m in (*LEARNED, AS_PUBLISHED) else STYLES[m][2]
        there = sum(m in point.found for point in limits.values())
        parts.append(f"{name}: {there} of {len(limits)} limits, {len(curves.get(m, []))} weights")
    how = f"Certificates: {budget.certify_s:g} s a point. A2C as published with ReLU, roll-outs of 600."
    return f"{'; '.join(parts)}. {how}"


def options_here(method: str, budget: Budget) -> dict[str, Any]:
    return AS_THERE if method == AS_PUBLISHED else {"updates": budget.sticky_updates}


def at_every_step(desk: Desk, problem: Problem, km: float) -> AtEveryStep:
    found = {m: solved(desk, problem, m, certify=m == "causal-ba") for m in ("causal-ba", "myopic", "belief-greedy")}
    for method in (*LEARNED, AS_PUBLISHED):
        if desk.budget.everywhere or km in PAPER_IDC:
            desk.tell(0.4, f"{method}, {km:g} km at every step")
            if (s := trained(desk, problem, method, **options_here(method, desk.budget))) is not None:
                found[method] = s
    again = rolled(desk, problem, STEPS, ROLL_OUTS) if km in PAPER_IDC else None
    return AtEveryStep(found, today(desk, problem, TODAY)[0], again)


def on_average(desk: Desk, problem: Problem) -> Curves:
    desk.tell(0.6, "on average")
    weights = default_weights(problem, 16)
    curves = {"causal-ba": curved(desk, problem, weights, certify=True)}
    curves["myopic"] = curved(desk, problem, weights, "myopic")
    curves["belief-greedy"] = curved(desk, problem, weights[::3], "belief-greedy")
    near = [weights[np.abs(np.log(weights / w)).argmin()] for w in LEARNED_WEIGHTS]
    for method in LEARNED:
        points = []
        for weight in weights if desk.budget.everywhere else near:
            desk.tell(0.8, f"{method}, weight {weight:.2g}")
            at = Problem(problem.chain, problem.distortion, Average(weight=float(weight)))
            points.append(trained(desk, at, method, **options_here(method, desk.budget)))
        if there := [s for s in points if s is not None]:
            curves[method] = there
    desk.tell(0.9, "A2C as published, on average")
    if there := [s for _, s in swept_as_published(desk, problem)]:
        curves[AS_PUBLISHED] = there
    return curves


def rows(limits: Limits, curves: Curves, family: list[Point]) -> list[list[object]]:
    out: list[list[object]] = []
    for km, point in limits.items():
        low = "" if point.best.leakage_lower is None else point.best.leakage_lower
        for method, s in point.found.items():
            proved = low if method == "causal-ba" else ""
            out.append(["IDC", method, km, s.distortion, s.leakage, s.leakage_se, proved, str(s.level)])
        p, ev = point.used, point.rolled
        out.append(["IDC", f"{TODAY}, within the limit", km, p.distortion, p.leakage, p.leakage_se, "", str(p.level)])
        if ev is not None:
            how = f"estimated, {ev.streams} roll-outs of {ev.steps}"
            out.append(["IDC", "causal-ba", km, ev.distortion, ev.leakage, ev.leakage_se, low, how])
    for method, solutions in curves.items():
        for s in solutions:
            low = "" if s.leakage_lower is None else s.leakage_lower
            out.append(["ADC", method, "", s.distortion, s.leakage, s.leakage_se, low, str(s.level)])
    out += [["ADC", TODAY, "", p.distortion, p.leakage, p.leakage_se, "", str(p.level)] for p in family]
    for name, told in (("IDC", PAPER_IDC), ("ADC", PAPER_ADC), ("ADC myopic", PAPER_MYOPIC)):
        out += [
            [name, "the paper's table", km, km if name != "IDC" else "", bits, "", "", "stated"]
            for km, bits in told.items()
        ]
    return out


def judge(problem: Problem, limits: Limits, curves: Curves) -> Finding:
    blind = float((problem.chain.stationary @ problem.distortion).min())
    parts = []
    for km, told in PAPER_IDC.items():
        ev = limits[km].rolled
        assert ev is not None
        parts.append(
            f"{km:g} km: {ev.leakage:.3f} ± {1.96 * ev.leakage_se:.3f} "
            f"(proved at least {limits[km].best.leakage_lower or 0:.3f}; paper {told})"
        )
    order, level = as_stated({km: limits[km].best.leakage for km in PAPER_IDC})
    inside = not (below := under_the_bound(limits, curves))
    return Finding.judged(
        f"Limit at every step, bits per step over {STEPS} steps and {ROLL_OUTS} roll-outs: {'; '.join(parts)}. "
        f"On average: above {blind:.2f} km nothing need be revealed (always the commonest stop). "
        + ("No point is below its proved bound." if inside else f"Below the proved bound: {', '.join(below)}."),
        f"The order is {'' if order else 'not '}the paper's (a wider limit leaks less); the level is "
        f"{'the same' if level else 'another, though both columns speak of the same limits'}. "
        f"{learned_said(limits, curves)}{WHY}",
        published=by_itself(limits, (AS_PUBLISHED,)),
        better=by_itself(limits, LEARNED),
        optimum=NO if not (order and inside) else YES if level else PART,
    )


def as_stated(leak: dict[float, float]) -> tuple[bool, bool]:
    """(a wider limit leaks less, the level is the paper's) at its limits."""
    leaks = [leak[km] for km in sorted(leak)]
    level = all(abs(leak[km] / told - 1) < SAME_LEVEL for km, told in PAPER_IDC.items())
    return leaks == sorted(leaks, reverse=True), level


def by_itself(limits: Limits, methods: tuple[str, ...]) -> str:
    """The same of learned methods, the best of them at each of the paper's limits; all of these must have been run."""
    least = {km: min(s.leakage for s in there) for km in PAPER_IDC
             if (there := [limits[km].found[m] for m in methods if m in limits[km].found])}  # fmt: skip
    if len(least) < len(PAPER_IDC):
        return too_few(len(least), len(PAPER_IDC))
    order, level = as_stated(least)
    return NO if not order else YES if level else PART


def under_the_bound(limits: Limits, curves: Curves) -> list[str]:
    """Points below what was proved, beyond their intervals: there must be none."""
    below = [
        f"{method} at {km:g} km"
        for km, point in limits.items()
        for method, s in point.found.items()
        if s.leakage + 3 * s.leakage_se < (point.best.leakage_lower or 0) - 1e-9
    ]
    points = [(m, s) for m, row in curves.items() for s in row]
    floor = lower_curve(curves["causal-ba"], np.array([s.distortion + 3 * s.distortion_se for _, s in points]))
    return below + [
        f"{m} at {s.distortion:.2f} km on average"
        for (m, s), low in zip(points, floor, strict=True)
        if s.leakage + 3 * s.leakage_se < low - 1e-9
    ]


def learned_said(limits: Limits, curves: Curves) -> str:
    """What the learned methods got on our chain: whether the data or the training makes the difference."""
    here, told = limits[LEARNED_KM], PAPER_IDC[LEARNED_KM]
    names = [m for m in (*LEARNED, AS_PUBLISHED) if m in here.found]
    if not names:
        return ""
    text = " and ".join(f"{called(m)} {said(here.found[m])}" for m in names)
    as_published = [f"{said(s)} at {km:g} km" for km in PAPER_IDC if (s := limits[km].found.get(AS_PUBLISHED))]
    points = (
        "; a part of the difference must lie in the data" if min(here.found[m].leakage for m in names) < told else ""
    )
    at = [(s, s.objective / best_at(curves["causal-ba"], s.weight) - 1) for s in curves.get("a2c", [])]
    each = "; ".join(f"{said(s)} bits at {s.distortion:.2f} km, {100 * off:.1f} %" for s, off in at)
    average = f"On average, {STYLES['a2c'][2]}, and how far above the best table at its weight: {each}. " if at else ""
    return (
        f"Trained on our chain, {text} bits at {LEARNED_KM:g} km (optimum {here.best.leakage:.3f}, paper "
        f"{told}){points}. As published: {', '.join(as_published) or 'not run'}. {average}"
    )


def draw(problem: Problem, limits: Limits, curves: Curves, family: list[Point]) -> Figure:
    figure = Figure(figsize=(15.5, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_limits(left, limits)
    draw_trade_off(right, {m: curves[m] for m in ("causal-ba", "myopic")}, {TODAY: family}, "km", problem)
    draw_points(right, curves)
    for told, fill, label in (
        (PAPER_ADC, "full", "the paper's PDRP-ADC"),
        (PAPER_MYOPIC, "none", "the paper's myopic"),
    ):
        right.plot(list(told), list(told.values()), "v", color="#000000", fillstyle=fill, label=label)
    right.set_xlim(-0.15, 9.4)
    right.legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1, 1))  # points stand everywhere
    right.set_title("A limit on average (PDRP-ADC)", loc="left", fontsize=11)
    figure.suptitle(
        f"GeoLife user 016: {problem.n_outputs} stops, steps of 5 minutes; rows for x_t (singles), bits (log2)",
        fontsize=12,
    )
    return figure


def draw_limits(ax: Axes, limits: Limits) -> None:
    colour, line, label = STYLES["causal-ba"]
    ours = [point.best for point in limits.values()]
    ax.fill_between(
        LIMITS_KM, [s.leakage_lower or 0 for s in ours], [s.leakage for s in ours], color=colour, alpha=0.2, lw=0
    )
    ax.plot(LIMITS_KM, [s.leakage for s in ours], f"o{line}", color=colour, label=f"PDRP-IDC, {label}, certified band")
    colour, line, label = STYLES["myopic"]
    bits = [point.found["myopic"].leakage for point in limits.values()]
    ax.plot(LIMITS_KM, bits, line, marker="x", color=colour, lw=1.2, label=label)
    for method in MARKS:
        at = {km: point.found[method] for km, point in limits.items() if method in point.found}
        if at:
            draw_learned(ax, method, at, at.values())
    colour, mark, label = STYLES[TODAY]
    ax.plot(
        LIMITS_KM,
        [p.used.leakage for p in limits.values()],
        mark,
        color=colour,
        ms=5,
        label=f"{label}, within the limit",
    )
    ax.plot(list(PAPER_IDC), list(PAPER_IDC.values()), "v", color="#000000", label="the paper's table")
    ax.set(xlabel="distance allowed at every step (km)", ylabel="leakage (bits per step)", xlim=(0, 15.5))
    ax.set_ylim(0, 0.6)
    ax.set_title("A limit at every step (PDRP-IDC)", loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8.5, loc="upper right")


ITEM = Item(
    "fig-geolife",
    "GeoLife user 016: privacy against utility",
    "With 16 stops: 0.18 / 0.39 / 0.53 bits at 15 / 5 / 3 km at every step; 0.11 / 0.20 / 0.35 at 9 / 5.7 / 1.7 km on "
    "average, where the myopic policy leaks 0.27 / 0.33 / 0.50.",
    make,
    needs_geolife=True,
)
