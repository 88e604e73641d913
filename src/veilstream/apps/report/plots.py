"""Figures of what Python holds: a model, a solution, a curve, the demo. Data in, a Figure out that a notebook shows.

Colours are Okabe and Ito's, told apart by colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import NDArray

from veilstream.apps.report.layout import crowd, east_north_km, lower_curve
from veilstream.apps.report.points import example_steps
from veilstream.container import write
from veilstream.control.release import release_many
from veilstream.data.card import newest_symbol_chain
from veilstream.data.states import StateSpace
from veilstream.errors import InputError
from veilstream.solvers.baselines import Baseline

if TYPE_CHECKING:
    from veilstream.apps.report.content import Content
    from veilstream.audit.judge import Judgement
    from veilstream.model.chain import MarkovChain
    from veilstream.model.problem import Problem
    from veilstream.solvers.solution import Point, Solution

Curves = dict[str, list["Solution"]]  # by method
Families = dict[str, list["Point"]]

INK, FLOW, PLACE = "#22303c", "#3b6ea5", "#d1495b"
SHOWN_FLOWS = 0.98  # share of all moves that is drawn, largest first
MAX_LABELS = 40
STYLES = {
    "causal-ba": ("#0072B2", "-", "veilstream (exact)"),
    "myopic": ("#D55E00", "--", "myopic"),
    "belief-greedy": ("#009E73", "-.", "belief-greedy"),
    "a2c": ("#882255", ":", "A2C"),
    "a2c-paper": ("#332288", ":", "A2C as published"),
    "a2c-paper-mean": ("#AA4499", ":", "A2C as published, mean"),
    "a2c-paper-j": ("#E69F00", ":", "A2C as published, with J"),
    "a2c-paper-rows": ("#009E73", ":", "the same, credit by rows"),
    "planar-laplace": ("#CC79A7", "s", "planar Laplace"),
    "randomised-response": ("#E69F00", "^", "randomised response"),
    "rounding": ("#666666", "D", "rounding to zones"),
    "constant": ("#000000", "X", "always the same"),
}


def trade_off(curves: Curves, families: Families, unit: str, problem: Problem) -> Figure:
    """Bits per step against distortion, as a picture of its own."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    draw_trade_off(figure.subplots(), curves, families, unit, problem)
    return _shown(figure)


def draw_trade_off(ax: Axes, curves: Curves, families: Families, unit: str, problem: Problem) -> None:
    """The shaded band is where no policy can be and ours might still move."""
    for method, solutions in curves.items():
        colour, line, label = STYLES.get(method, ("#333333", "-", method))
        D, L = np.array(sorted((s.distortion, s.leakage) for s in solutions)).T
        marker, size = ("o", 3.5) if len(D) > 1 else ("*", 13.0)
        ax.plot(D, L, line, color=colour, label=label, zorder=3, marker=marker, markersize=size)
        if any(s.lower_bound is not None for s in solutions):
            grid = np.linspace(0, D.max(), 300)
            low = lower_curve(solutions, grid)
            high = np.interp(grid, D, L)
            ax.fill_between(grid, np.minimum(low, high), high, color=colour, alpha=0.2, lw=0)
            ax.plot(grid, low, color=colour, lw=0.8, label="no policy can be below (proved)")
    for method, family in families.items():
        colour, mark, label = STYLES.get(method, ("#333333", "o", method))
        D, L = np.array(sorted((p.distortion, p.leakage) for p in family)).T
        ax.plot(D, L, mark, color=colour, markersize=4.5, alpha=0.85, label=label)
    truth = problem.chain.entropy_rate
    ax.axhline(truth, color="#999999", lw=0.8, ls=":")
    ax.annotate("the truth", (1, truth), xycoords=("axes fraction", "data"), xytext=(-3, 3), textcoords="offset points",
                ha="right", color="#666666", fontsize=9)  # fmt: skip
    ax.set_xlabel(f"mean distortion ({unit})" if unit else "mean distortion")
    ax.set_ylabel("leakage (bits per step)")
    ax.set_title(f"What accuracy costs: {problem.chain.name}", loc="left", fontsize=11)
    reach = max((problem.chain.stationary @ problem.distortion).min() * 1.25, 1e-9)
    ax.set_xlim(-0.02 * reach, reach)
    ax.set_ylim(-0.03 * truth, truth * 1.15)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper right", bbox_to_anchor=(1, 0.86), fontsize=9)


def draw_traces(
    ax: Axes, true: NDArray[np.int64], released: NDArray[np.int64], names: tuple[str, ...], period_h: float
) -> None:
    """True and released state over time, states as rows."""
    hours = np.arange(len(true) + 1) * period_h
    true, released = np.append(true, true[-1]), np.append(released, released[-1])  # the last step is drawn whole
    ax.step(hours, true, where="post", color="#0072B2", lw=2.2, alpha=0.9, label="true")
    ax.step(hours, released, where="post", color="#D55E00", lw=1.3, ls=(0, (4, 1.5)), label="released")
    ax.set_yticks(range(len(names)), names, fontsize=9)
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.set_xlim(0, hours[-1])
    ax.set_xlabel("hours")
    ax.grid(axis="y", color="#eeeeee")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1.0), fontsize=9)


def save_figure(figure: Figure, path: Path, dpi: int = 150) -> None:
    """To a file whose ending says the format; the owner's alone, as it may show places."""
    try:
        drawn = _drawn(figure, dpi, path.suffix[1:] or "png")
    except ValueError as error:
        raise InputError(f"{path}: the picture cannot be written ({error}); use .png, .svg or .pdf") from None
    write(path, drawn)


def demo_figure(
    content: Content,
    rows: list[tuple[float, Solution, Solution]],
    day: tuple[NDArray[np.int64], NDArray[np.int64]],
    period_h: float,
) -> Figure:
    """The trade-off with the operating points asked for, and one day, true and released."""
    figure = Figure(figsize=(9, 9), layout="constrained")
    top, bottom = figure.subplots(2, 1, height_ratios=[1.25, 1])
    families = {"planar-laplace": content.family, "rounding": Baseline("rounding").family(content.problem)}
    draw_trade_off(top, {"causal-ba": content.solutions}, families, "km", content.problem)
    for limit, ours, laplace in rows:
        top.annotate("", (limit, ours.leakage), (limit, laplace.leakage),
                     arrowprops={"arrowstyle": "->", "color": "#444444", "lw": 1})  # fmt: skip
        top.annotate(f"{laplace.leakage / max(ours.leakage, 1e-9):.0f}x less", (limit, laplace.leakage), xytext=(4, 6),
                     textcoords="offset points", fontsize=9, color="#444444")  # fmt: skip
    draw_traces(bottom, *day, content.names, period_h)
    _, ours, _ = rows[1]
    bottom.set_title(f"One day at {rows[1][0]:g} km: {ours.leakage:.3f} bits per step", loc="left", fontsize=11)
    return figure


# --- what `plot` of a model, a curve, a solution gives ---------------------------------------------------------


def model(states: StateSpace | None, chain: MarkovChain) -> Figure:
    """A map or levels of the states, and the transitions."""
    if states is None:
        raise InputError("the file knows no places or levels, so there is nothing to draw")
    law, transition = newest_symbol_chain(chain)
    rate = f"{chain.entropy_rate:.3f} bits per step"
    return _shown(fit_figure(states, transition, law, f"{chain.name}: entropy rate {rate}"))


def curve(solutions: Sequence[Solution], ax: Axes | None = None) -> Figure:
    """Bits per step against distortion, with the certified band where there is one; on these axes, if any."""
    first = solutions[0]
    curves = {first.method: list(solutions)}
    if ax is None:
        return trade_off(curves, {}, first.unit, first.problem)
    draw_trade_off(ax, curves, {}, first.unit, first.problem)
    return ax.figure  # type: ignore[return-value]


def solution(one: Solution, seed: int = 0) -> Figure:
    """Where it lies between truth and nothing, and a day drawn from the chain, true and as it would be released."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.4])
    draw_trade_off(left, {one.method: [one]}, {}, one.unit, one.problem)
    blind = float((one.problem.chain.stationary @ one.problem.distortion).min())
    left.plot([blind], [0], "o", color="#666666", markersize=5, label="reveals nothing")
    left.legend(frameon=False, fontsize=9)
    chain, art = one.problem.chain, one.artefact
    x = chain.symbols[chain.sample(example_steps(art.period_s), seed=seed)]
    y = release_many(one.policy, x, one.problem, seed=seed).y[0]  # of made-up data: no secret is in a seed
    states, names = art.states, tuple(map(str, range(chain.n_symbols)))
    if states is not None:
        names = states.names
        y = y if art.points is None else np.where(y < 0, -1, art.cost.lies_at[y])
    draw_traces(right, x[0], y, tuple(_short(names)), (art.period_s or 0.0) / 3600 or 1.0)
    right.set_xlabel("hours" if art.period_s else "steps")
    right.set_title("Drawn from the chain", loc="left", fontsize=11)
    return _shown(figure)


def judged(found: Judgement, ax: Axes | None = None) -> Figure:
    """Bits per step against error: each mechanism above our policy of that error, and the floor under it."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    ax = figure.subplots() if ax is None else ax
    for row in found.rows:
        at, bits = row.error.value, row.leakage
        if row.ours is not None and row.floor is not None:
            best = row.ours.leakage.value
            ax.plot([at, at], [best, bits.value], color="#999999", lw=0.8, zorder=1)
            ax.plot([at], [best], "o", color="#0072B2", markersize=5, zorder=3)
            ax.plot([at], [row.floor], "_", color="#009E73", markersize=12, zorder=2)
        reach = np.nan_to_num([[bits.value - bits.low], [bits.high - bits.value]])
        ax.errorbar([at], [bits.value], yerr=np.maximum(reach, 0), fmt="o", color="#D55E00", markersize=6, zorder=3)
        ax.annotate(row.label, (at, bits.value), xytext=(6, 4), textcoords="offset points", fontsize=8)
    for colour, mark, label in (("#D55E00", "o", "the mechanism"), ("#0072B2", "o", "ours"), ("#009E73", "_", "floor")):
        ax.plot([], [], mark, color=colour, label=label)
    ax.axhline(found.truth, color="#999999", lw=0.8, ls=":")
    ax.set(xlabel=f"mean error ({found.unit})" if found.unit else "mean error", ylabel="bits per step", xlim=(0, None))
    ax.set_ylim(0)
    ax.legend(frameon=False)
    return _shown(ax.figure)  # type: ignore[arg-type]


def _short(names: Sequence[str]) -> list[str]:
    """Every k-th name where there are many."""
    every = -(-len(names) // 24)
    return [name if i % every == 0 else "" for i, name in enumerate(names)]


def _shown(figure: Figure) -> Figure:
    """With what a notebook asks for, whether or not pyplot is loaded."""
    figure._repr_png_ = partial(_drawn, figure, 90)  # type: ignore[attr-defined]
    return figure


def _drawn(figure: Figure, dpi: int, format: str = "png") -> bytes:
    out = BytesIO()
    figure.savefig(out, dpi=dpi, format=format)
    return out.getvalue()


# --- a fitted model: a map of its states with the flows between them, and its transitions ----------------------


def fit_figure(states: StateSpace, transition: NDArray[np.float64], law: NDArray[np.float64], title: str) -> Figure:
    """The states with the flows between them, and P(next | now). `law` is each state's share of time.

    Where most places crowd in a small part of the map, that part is drawn a second time, enlarged.
    """
    if not states.is_map:
        figure = Figure(figsize=(13, 6), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_levels(left, states, law)
    else:
        places = east_north_km(states)
        near = crowd(places, law)
        figure = Figure(figsize=(13 if near is None else 18, 6), layout="constrained")
        left, *zoom, right = figure.subplots(1, 2 if near is None else 3)
        draw_map(left, states, places, transition, law, np.ones(len(states), bool) if near is None else ~near)
        few = "" if len(states) <= MAX_LABELS else ", the most visited named"
        left.set_title(f"{len(states)} {states.kind}: circles are time spent, lines moves{few}", fontsize=10)
        if near is not None:
            draw_map(zoom[0], states, places, transition, law, near)
            frame(zoom[0], left, places[near])
            zoom[0].set_title("the framed part, enlarged", fontsize=10)
    draw_transitions(right, transition, states)
    figure.suptitle(title, color=INK)
    return figure


def frame(zoom: Axes, overview: Axes, places: NDArray[np.float64]) -> None:
    """Limits of the enlarged part, and its frame on the overview."""
    low, high = places.min(0), places.max(0)
    middle, half = (low + high) / 2, max((high - low).max() * 0.6, 0.1)
    zoom.set_adjustable("box")
    zoom.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    overview.add_patch(
        Rectangle(tuple(middle - half), 2 * half, 2 * half, fill=False, edgecolor=INK, linewidth=0.8, zorder=4)
    )


def draw_map(
    ax: Axes,
    states: StateSpace,
    places: NDArray[np.float64],
    transition: NDArray[np.float64],
    law: NDArray[np.float64],
    labelled: NDArray[np.bool_],
) -> None:
    """Circle area is the share of time, line width the moves per step; the largest moves are drawn."""
    flow = law[:, None] * transition
    np.fill_diagonal(flow, 0)
    order = np.argsort(flow, axis=None)[::-1]
    total, largest = max(flow.sum(), 1e-300), max(flow.max(), 1e-300)
    drawn = order[: int(np.searchsorted(np.cumsum(flow.ravel()[order]) / total, SHOWN_FLOWS)) + 1]
    for i, j in zip(*np.unravel_index(drawn[::-1], flow.shape), strict=True):
        size = float(flow[i, j] / largest)
        ax.add_patch(
            FancyArrowPatch(
                tuple(places[i]),
                tuple(places[j]),
                connectionstyle="arc3,rad=0.15",
                arrowstyle="-|>",
                mutation_scale=6 + 5 * size,
                shrinkA=4,
                shrinkB=5,
                linewidth=0.3 + 2.7 * size,
                color=FLOW,
                alpha=0.25 + 0.6 * size,
                zorder=1,
                clip_on=True,
            )
        )
    ax.scatter(
        places[:, 0], places[:, 1], s=15 + 300 * np.sqrt(law), color=PLACE, edgecolor="white", linewidth=0.8, zorder=2
    )
    named = np.flatnonzero(labelled)
    named = named[np.argsort(-law[named], kind="stable")][:MAX_LABELS]  # the most visited, which get a free place first
    place_labels(ax, places[named], [short(states.names[i]) for i in named])
    ax.set(xlabel="east (km)", ylabel="north (km)", aspect="equal")
    ax.set_adjustable("datalim")
    ax.margins(0.12)
    ax.grid(color="#e5e9ed", linewidth=0.6)
    ax.set_axisbelow(True)


def place_labels(ax: Axes, places: NDArray[np.float64], names: list[str]) -> None:
    """Labels around their points, each at the nearest place that is free; none where there is none near."""
    x, y = places.T
    span = 1.2 * max(np.ptp(x), np.ptp(y), 1e-9)
    width, height, dot = 0.026 * span, 0.034 * span, 0.014 * span  # of a character and a point, for this figure's size
    low, high = places - dot, places + dot  # corners of what is taken
    angles = np.radians([20, -20, 160, 200, 90, -90, 50, 130, -50, -130])
    for place, name in zip(places, names, strict=True):
        half = np.array([width * max(len(name), 1), height]) / 2
        for radius in np.arange(1, 16) * 0.025 * span:
            way = np.stack([np.cos(angles), np.sin(angles)], axis=1)
            spots = place + radius * way + np.sign(way.round(6)) * half * (1, 0)
            taken = ((spots[:, None] - half < high) & (spots[:, None] + half > low)).all(2).any(1)
            if not taken.all():
                break
        else:
            continue
        spot = spots[int(taken.argmin())]
        low, high = np.vstack([low, spot - half]), np.vstack([high, spot + half])
        if radius > 0.05 * span:
            ax.plot(*np.stack([place, spot]).T, color="#8a97a3", linewidth=0.5, zorder=1)
        box = {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
        ax.text(spot[0], spot[1], name, ha="center", va="center", fontsize=8, color=INK, zorder=3, bbox=box)


def draw_levels(ax: Axes, states: StateSpace, law: NDArray[np.float64]) -> None:
    """Value bins: share of time over the levels."""
    unit = f" ({states.unit})" if states.unit else ""
    at = np.arange(len(states))
    ax.bar(at, law, color=FLOW)
    names = states.kind == "names"
    levels = list(states.names) if names else [f"{level:.3g}" for level in states.coordinates[:, 0]]
    label_ticks(ax.xaxis, levels, rotation=90 if len(states) > 10 else 0)
    ax.set(xlabel="name" if names else f"mean level of the bin{unit}", ylabel="share of time")
    ax.set_title(f"{len(states)} {states.kind}", fontsize=10)


def draw_transitions(ax: Axes, transition: NDArray[np.float64], states: StateSpace) -> None:
    """P(next | now) on a logarithmic scale, down to 1e-3; of values the low ones are at the bottom."""
    image = ax.imshow(np.maximum(transition, 1e-3), norm=LogNorm(1e-3, 1), cmap="YlGnBu")
    if not states.is_map:
        ax.invert_yaxis()
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.85)
    bar.set_label("probability per step (0.001 and below: lightest)")
    unit = "" if states.is_map or not states.unit else states.unit
    names = [short(name).removesuffix(f" {unit}") for name in states.names]
    label_ticks(ax.xaxis, names, rotation=90)
    label_ticks(ax.yaxis, names)
    of = f" ({unit})" if unit else ""
    ax.set(xlabel=f"next state{of}", ylabel=f"state now{of}")
    ax.set_title("transition probabilities", fontsize=10)


def label_ticks(axis: Axis, names: list[str], rotation: float = 0) -> None:
    """One tick per state, or every k-th where there are many."""
    every = -(-len(names) // MAX_LABELS)
    at = range(0, len(names), every)
    axis.set_ticks(list(at), [names[i] for i in at], fontsize=8 if len(names) <= 24 else 6, rotation=rotation)


def short(name: str) -> str:
    """ "stop 12" -> "12": the kind is in the title."""
    return name.removeprefix("stop ").removeprefix("cell ")
