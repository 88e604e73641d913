"""What a prompt or notebook shows: a line, a small table, a picture, a bar. Pictures are known by name only."""

from __future__ import annotations

import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any

from veilstream.errors import Caution, InputError

Rows = list[tuple[str, str]]
Progress = Callable[[float, str], None]  # fraction done, what is going on
EVERY_S = 0.2  # between two drawings of a bar
AFTER_S = 1.0  # what is done sooner needs none
PICTURES = "veilstream.apps.report.plots"


class Shown(ABC):
    """An object with a short name for itself and a few lines about it."""

    @abstractmethod
    def about(self) -> tuple[str, Rows]:
        """A line that stands for it, and what else there is to say: pairs of a word and a figure."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.about()[0]}>"

    def _repr_html_(self) -> str:
        """Every text escaped: names come from data."""
        line, rows = self.about()
        cells = "".join(
            f'<tr><th style="text-align:left;vertical-align:top">{escape(word)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for word, text in rows
        )
        return f"<div><p><b>{type(self).__name__} {escape(line)}</b></p><table>{cells}</table></div>"


def picture(name: str, *what: Any, **how: Any) -> Any:
    """The figure of that name, where matplotlib is installed."""
    try:
        pictures = import_module(PICTURES)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "matplotlib":
            raise
        raise InputError("`plot` needs matplotlib; install it with: pip install 'veilstream[plot]'") from None
    return getattr(pictures, name)(*what, **how)


def caution(lines: Iterable[str]) -> None:
    """Lines that must stand beside a result, as warnings of the script that asked for it; notebooks show them."""
    for line in () if in_notebook() else lines:
        warnings.warn(line, Caution, stacklevel=3)


# --- progress --------------------------------------------------------------------------------------------


def within(progress: Progress | None, first: float, last: float, label: str = "") -> Progress:
    """Progress of a part of some work, as progress of the whole from one share to another."""

    def tell(done: float, what: str) -> None:
        if progress:
            progress(first + (last - first) * done, label + what)

    return tell


class _Bar:
    """How far something is, for a notebook: redrawn in place."""

    def __init__(self, title: str) -> None:
        self.title, self.done, self.what = title, 0.0, ""

    def __repr__(self) -> str:
        return f"{self.title}: {self.what} {self.done:.0%}" if self.done < 1 else ""

    def _repr_html_(self) -> str:
        if self.done >= 1:
            return ""
        return f'{escape(self.title)} <progress value="{self.done:.3f}" max="1"></progress> {escape(self.what)}'


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel; asks only what is loaded already."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def watching(title: str, progress: Progress | bool | None = None) -> Iterator[Progress | None]:
    """A function that shows progress: for None a bar in a notebook, for True also in a terminal, for False none."""
    if callable(progress):
        yield progress
    elif progress is not False and in_notebook():
        with notebook_bar(title) as tell:
            yield tell
    elif progress:
        with terminal_bar(title) as tell:
            yield tell
    else:
        yield None


@contextmanager
def notebook_bar(title: str) -> Iterator[Progress]:
    from IPython.display import display

    bar, last, handle = _Bar(title), time.monotonic() + AFTER_S, None

    def tell(done: float, what: str) -> None:
        nonlocal last, handle
        now = time.monotonic()
        if now - last < EVERY_S:
            return
        last, bar.done, bar.what = now, min(done, 0.999), what
        if handle is None:
            handle = display(bar, display_id=True)  # type: ignore[no-untyped-call,unused-ignore]
        else:
            handle.update(bar)

    try:
        yield tell
    finally:
        if handle is not None:
            bar.done = 1.0
            handle.update(bar)


@contextmanager
def terminal_bar(title: str) -> Iterator[Progress]:
    """On standard error, gone when done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), *times
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)

        def tell(done: float, what: str) -> None:
            bar.update(task, completed=done, description=f"{title}: {what}")

        yield tell
