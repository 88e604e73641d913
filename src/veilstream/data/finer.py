"""Which `veil fit` makes a limit feasible that the states of a model are too coarse for: tried on its own readings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from veilstream.data.cost import Cost
from veilstream.data.points import points_of
from veilstream.data.recording import Recording
from veilstream.data.states import StateSpace
from veilstream.data.trajectories import Trajectories
from veilstream.data.utility import Utility
from veilstream.errors import InputError

Found = Iterator[tuple[list[str], StateSpace]]  # flags of `veil fit`, and the states that they give
REPLACED = ("--resolution", "--cells", "--grid", "--places", "--states", "--width", "--edges", "--noise")
NAME = "--name"
ROUND = (7.5, 5.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0)
FIRST, FINEST = 2.0, 0.05  # of the limit: the coarsest states tried, and the finest
ROOM = 0.9  # of the limit: what the least error may be, so that something is left to hide behind
MOST_LEVELS = 256
GENERAL = "allow more, or make a model with finer states"


def again(command: str, *flags: str, instead: bool = True) -> str:
    """The `veil fit` that made a model, with these flags: instead of those about its states, or besides."""
    if command.split()[:2] != ["veil", "fit"]:  # made in Python
        return f"vs.fit(..., {', '.join(_in_python(*pair) for pair in zip(flags[::2], flags[1::2], strict=True))})"
    words, kept = iter(shlex.split(command)), list[str]()
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        about = [word] if equals or flag not in (*REPLACED, NAME) else [word, next(words, "")]
        value = value or about[-1]
        if flag == "--option":
            flag, _, value = f"--{value}".partition("=")
        if not instead or (flag not in REPLACED and (flag != NAME or value.startswith("stop "))):  # stops stay
            kept += about
    return shlex.join([*kept, *flags])


def _in_python(flag: str, value: str) -> str:
    """A flag about states as `fit` takes it."""
    if flag == NAME:
        found, _, name = value.rpartition("=")
        return f"names={{{found!r}: {name!r}}}"
    number = re.match(r"[\d.e+-]*\d", value)
    return f"{'resolution_m' if flag == '--resolution' else flag[2:]}={number[0] if number else value}"


def finer_fit(
    utility: Utility, recording: Recording, command: str, limit: float, show: str | None, quantile: float | None = None
) -> str:
    """What to do about a limit that no release keeps: the command, tried here, that makes it feasible.

    quantile: of the readings of each state that a limit at every step is for; None: it is one on the mean.
    """
    record, cost = utility.record, utility.cost
    if record is None or cost is None or cost.measure != "absolute" or limit <= 0:
        return GENERAL
    for flags, states in (_on_map if cost.states.is_map else _of_values)(record, recording, cost.states.unit, limit):
        for shown in (show, flags[1]) if show is None and cost.states.is_map else (show,):
            if _least(record, states, shown, quantile) <= ROOM * limit:
                then = "" if shown == show else f", then solve with `show='{shown}'`"
                return f"allow more, or fit finer states: {again(command, *flags)}{then}"
    return GENERAL


def _on_map(record: Trajectories, recording: Recording, unit: str, limit: float) -> Found:
    try:
        from veilstream.data.grid import stops_and_cells
    except ImportError:
        return
    for km in _round_numbers(limit):
        metres = 1000 * km
        found = stops_and_cells(record.points, metres, metres, recording.eps_m, recording.min_samples)
        yield ["--resolution", f"{metres:g}m"], found.states


def _of_values(record: Trajectories, recording: Recording, unit: str, limit: float) -> Found:
    from veilstream.data.clusters import value_bins

    spread = float(np.ptp(record.points))
    for width in _round_numbers(limit):
        if spread / width <= MOST_LEVELS:
            yield ["--width", f"{width:g}{unit}"], value_bins(record.points, width=width, unit=unit)[0]


def _round_numbers(limit: float) -> list[float]:
    """1, 1.5, 2, ... times powers of ten, from FIRST down to FINEST of the limit."""
    top = int(np.floor(np.log10(FIRST * limit)))
    numbers = [float(f"{m}e{top - k}") for k in range(4) for m in ROUND]
    return [n for n in numbers if FINEST * limit <= n <= FIRST * limit]


def _least(record: Trajectories, states: StateSpace, show: str | None, quantile: float | None) -> float:
    """The least mean error there can be with these states, or the least that is kept at every step."""
    own = replace(record, symbols=states.encode(record.points))
    mean, most = own.felt(states, quantile or 1.0, Cost(states, points_of(states, show) or states))
    if quantile is not None:
        return float(most.min(1).max())
    return float(np.bincount(own.states, minlength=len(states)) @ mean.min(1) / len(own))


def unknown_state(name: str, utility: Utility, command: str) -> InputError:
    """A limit for a state that there is not: which there are, most visited first, and how one gets a name."""
    names = utility.names
    if utility.course is None or len(names) != utility.chain.n_symbols:
        return InputError(f"`max` names the unknown state {name!r}; states: {', '.join(names[:8])}, ..., or *")
    visits = np.bincount(utility.chain.symbols[np.concatenate(utility.course.states)], minlength=len(names))
    first = np.argsort(-visits, kind="stable")[:4]
    often = ", ".join(f"{names[x]} ({visits[x] / visits.sum():.0%} of steps)" for x in first)
    return InputError(
        f"`max` names the unknown state {name!r}; the most visited of {len(names)} are {often}; to give one that name: "
        f"{again(command, NAME, f'{names[first[0]]}={name}', instead=False)}"
    )
