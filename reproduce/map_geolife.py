"""(h) A true and a released GeoLife trajectory on a map: PDRP-ADC, lambda 1, at most 5 km on average."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import NDArray

from reproduce.fig_geolife import swept_as_published
from reproduce.geolife import WHY, model
from reproduce.item import NO, NOT_RUN, PART, YES, Desk, Finding, Item
from reproduce.learned import AS_PUBLISHED, available, told_of
from veilstream.apps.report.layout import east_north_km
from veilstream.apps.report.points import stretch
from veilstream.audit.traces import Ints, release
from veilstream.data.states import StateSpace
from veilstream.model.information import Array
from veilstream.model.problem import Average, Instantaneous, Problem
from veilstream.solvers import solve

WEIGHT, LIMIT_KM, STEPS = 1.0, 5.0, 60
CROWDED, MANY = 0.15, 4  # that many stops nearer to one than this part of half the map are drawn apart
TRUE, SHOWN = "#0072B2", "#D55E00"
OPTIMUM, PUBLISHED = "the optimum", "A2C as published"
AT_EVERY_STEP = f"the optimum within {LIMIT_KM:g} km at every step"  # at weight 1 hardly a step is hidden


def make(desk: Desk) -> Finding:
    assert desk.geolife is not None
    desk.tell(0.0, "fitting")
    fitted = model(desk.geolife)
    d = fitted.states.distances()
    problem = Problem(fitted.chain, d, Average(weight=WEIGHT))
    true = stretch(fitted.runs.sequences, STEPS)
    desk.tell(0.3, "solving")
    best = solve(problem, seed=desk.budget.seed)
    paths = {OPTIMUM: release(best.policy, [true], seed=desk.budget.seed).y[0]}
    rates = {OPTIMUM: (best.distortion, best.leakage)}
    within = solve(Problem(fitted.chain, d, Instantaneous(LIMIT_KM)), seed=desk.budget.seed)
    paths[AT_EVERY_STEP] = release(within.policy, [true], seed=desk.budget.seed).y[0]
    rates[AT_EVERY_STEP] = (within.distortion, within.leakage)
    if available():
        desk.tell(0.5, "A2C as published")
        policy, learned = swept_as_published(desk, problem)[-1]
        assert learned.weight == WEIGHT
        paths[PUBLISHED] = release(policy, [true], seed=desk.budget.seed).y[0]
        rates[PUBLISHED] = learned.distortion, learned.leakage
    off = {name: d[true, shown] for name, shown in paths.items()}
    desk.table(
        ["step", *(f"distance_km, {name}" for name in off)],
        [[t + 1, *(float(v[t]) for v in off.values())] for t in range(len(true))],
    )
    desk.figure(draw(fitted.states, true, paths))
    return Finding.judged(
        " ".join(told(name, v, *rates[name]) for name, v in off.items()),
        f"One stretch of the recorded data, drawn once; the limit is one on average (PDRP-ADC), {LIMIT_KM:g} km, and "
        f"weight {WEIGHT:g} was given. {WHY}",
        published=verdict(off[PUBLISHED], rates[PUBLISHED][0]) if PUBLISHED in off else NOT_RUN,
        optimum=verdict(off[OPTIMUM], rates[OPTIMUM][0]),
        ran=f"the exact solver; {told_of(AS_PUBLISHED, desk.budget)}, ReLU, roll-outs of 600, the last of the sweep of "
        "fig-geolife; one release of each.",
    )


def told(name: str, off: Array, km: float, bits: float) -> str:
    return (
        f"{name[0].upper()}{name[1:]}: the released path differs in {int((off > 0).sum())} of {len(off)} steps, by "
        f"{off.mean():.2f} km on average and {off.max():.2f} at most; in the long run {km:.2f} km for {bits:.3f} bits "
        "per step."
    )


def verdict(off: Array, km: float) -> str:
    """The path differs and the mean limit is kept, in the long run and in this draw."""
    kept = km <= LIMIT_KM and float(off.mean()) <= LIMIT_KM
    return YES if kept and (off > 0).any() else PART if kept else NO


def draw(states: StateSpace, true: Ints, paths: dict[str, Ints]) -> Figure:
    places = east_north_km(states)
    used = places[np.unique(np.concatenate([true, *paths.values()]))]
    whole = Frame((used.min(0) + used.max(0)) / 2, max(np.ptp(used, axis=0).max() * 0.6, 0.3))
    crowd = crowded(places, whole)
    figure = Figure(figsize=(5 * (1 + len(paths)), 5.8 * (2 if crowd else 1)), layout="constrained")
    axes = figure.subplots(2 if crowd else 1, 1 + len(paths), squeeze=False)
    shown = {"true": true, **{f"released, {name}": path for name, path in paths.items()}}
    for column, (name, path), colour in zip(axes.T, shown.items(), ("#000000", *[SHOWN] * len(paths)), strict=True):
        draw_path(column[0], places, path, colour, whole, crowd)
        column[0].set_title(name, loc="left", fontsize=11)
        if crowd:
            draw_path(column[1], places, path, colour, crowd)
            column[1].set_title("the dashed part", loc="left", fontsize=11)
    figure.suptitle(
        f"GeoLife user 016, PDRP-ADC, lambda {WEIGHT:g}, at most {LIMIT_KM:g} km on average, {len(true)} steps of 5 "
        "minutes. Blue: number of the stop; black: steps spent there; red ring: the start",
        fontsize=11,
    )
    return figure


@dataclass(frozen=True)
class Frame:
    """A square part of the map."""

    middle: Array
    half: float

    def holds(self, places: Array) -> NDArray[np.bool_]:
        return np.asarray(np.abs(places - self.middle).max(1) <= self.half)


def crowded(places: Array, whole: Frame) -> Frame | None:
    """Where most stops lie close together, if they are too many to be told apart in the whole."""
    near = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) < CROWDED * whole.half
    most = places[near[near.sum(1).argmax()]]
    if len(most) < MANY:
        return None
    middle = (most.min(0) + most.max(0)) / 2
    return Frame(middle, 1.2 * float(np.abs(most - middle).max()))


def draw_path(ax: Axes, places: Array, path: Ints, colour: str, frame: Frame, apart: Frame | None = None) -> None:
    """Numbered stops, how many steps are spent in each, where it starts, and the moves; `apart` is drawn elsewhere."""
    ax.plot(*places.T, "o", color="#b4bec7", markersize=5, zorder=1)
    spent = np.bincount(path, minlength=len(places))
    for a, b in {(int(a), int(b)) for a, b in pairwise(path) if a != b}:
        moved: dict[str, Any] = {"arrowstyle": "->", "color": colour, "alpha": 0.7, "mutation_scale": 10}
        arc = FancyArrowPatch(places[a], places[b], connectionstyle="arc3,rad=0.15", shrinkA=7, shrinkB=7, **moved)
        ax.add_patch(arc).set_zorder(2)
    told = frame.holds(places) & ~(np.zeros(len(places), bool) if apart is None else apart.holds(places))
    ax.plot(*places[told & (spent > 0)].T, "o", color="#cfe3f3", mec=TRUE, markersize=11, zorder=3)
    ax.plot(*places[path[0]], "o", color="none", mec="#c00000", mew=2.5, markersize=17, zorder=4)
    for k in np.flatnonzero(told):
        beside: dict[str, Any] = {
            "xytext": (-8, 7),
            "textcoords": "offset points",
            "ha": "right",
            "annotation_clip": True,
        }
        ax.annotate(str(k + 1), places[k], color=TRUE, fontsize=9, zorder=6, **beside)
        if spent[k]:
            ax.annotate(str(spent[k]), places[k], ha="center", va="center", fontsize=8, zorder=5)
    if apart is not None:
        corner, side = apart.middle - apart.half, 2 * apart.half
        ax.add_patch(Rectangle(tuple(corner), side, side, fill=False, ls="--", ec="#666666", zorder=6))
    (x, y), half = frame.middle, frame.half
    ax.set(
        xlabel="east (km)", ylabel="north (km)", aspect="equal", xlim=(x - half, x + half), ylim=(y - half, y + half)
    )
    ax.grid(color="#e5e9ed", linewidth=0.6)
    ax.set_axisbelow(True)


ITEM = Item(
    "map-geolife",
    "GeoLife user 016: a true and a released trajectory",
    "PDRP-ADC with weight 1 and at most 5 km on average: the released path differs from the true one, the limit holds.",
    make,
    needs_geolife=True,
    after=("fig-geolife",),
)
