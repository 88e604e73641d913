"""Pictures of what Python holds: a model, a solution, a curve. Each is a Figure that a notebook shows by itself."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from veilstream.apps.report.fit_plots import fit_figure
from veilstream.apps.report.plots import draw_traces, draw_trade_off
from veilstream.apps.report.points import example_steps
from veilstream.control.release import release_many
from veilstream.data.card import newest_symbol_chain
from veilstream.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from veilstream.data.states import StateSpace
    from veilstream.model.chain import MarkovChain
    from veilstream.solvers.solution import Solution


def model(states: StateSpace | None, chain: MarkovChain) -> Figure:
    """A map or levels of the states, and the transitions."""
    if states is None:
        raise InputError("the file knows no places or levels, so there is nothing to draw")
    law, transition = newest_symbol_chain(chain)
    rate = f"{chain.entropy_rate:.3f} bits per step"
    return _shown(fit_figure(states, transition, law, f"{chain.name}: entropy rate {rate}"))


def curve(solutions: Sequence[Solution], ax: Axes | None = None) -> Figure:
    """Bits per step against distortion, with the certified band where there is one."""
    figure, ax = _figure(ax)
    first = solutions[0]
    draw_trade_off(ax, {first.method: list(solutions)}, {}, first.unit, first.problem)
    return figure


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
        y = y if art.points is None else np.where(y < 0, -1, states.encode(art.points.coordinates)[y])
    draw_traces(right, x[0], y, tuple(_short(names)), (art.period_s or 0.0) / 3600 or 1.0)
    right.set_xlabel("hours" if art.period_s else "steps")
    right.set_title("Drawn from the chain", loc="left", fontsize=11)
    return _shown(figure)


def _short(names: Sequence[str]) -> list[str]:
    """Every k-th name where there are many."""
    every = -(-len(names) // 24)
    return [name if i % every == 0 else "" for i, name in enumerate(names)]


def _figure(ax: Axes | None) -> tuple[Figure, Axes]:
    if ax is not None:
        return ax.figure, ax  # type: ignore[return-value]
    figure = Figure(figsize=(8, 5), layout="constrained")
    return _shown(figure), figure.subplots()


def _shown(figure: Figure) -> Figure:
    """With what a notebook asks for, whether or not pyplot is loaded."""
    figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
    return figure


def _png(figure: Figure) -> bytes:
    out = BytesIO()
    figure.savefig(out, format="png", dpi=90)
    return out.getvalue()
