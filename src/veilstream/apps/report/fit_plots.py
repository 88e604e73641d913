"""Pictures of a fitted model: a map of its states with the flows between them, and its transitions."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import NDArray

from veilstream.apps.report.layout import crowd, east_north_km
from veilstream.data.states import StateSpace

INK, FLOW, PLACE = "#22303c", "#3b6ea5", "#d1495b"
SHOWN_FLOWS = 0.98  # share of all moves that is drawn, largest first
MAX_LABELS = 40


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
