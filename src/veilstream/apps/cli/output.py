"""How results and progress are printed: JSON, tables that are never cut, limits first, a bar or a line a minute."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from veilstream.shown import terminal_bar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from veilstream.control.limit_check import LimitCheck
    from veilstream.shown import Progress


def print_json(value: object, to: TextIO | None = None) -> None:
    """Print one JSON value, on standard output by default."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain), file=to or sys.stdout)


def command_line() -> str:
    """As it was typed, for the file that it makes."""
    return shlex.join(["veil", *sys.argv[1:]])


def _plain(value: Any) -> object:
    return value.tolist() if hasattr(value, "tolist") else str(value)


MOST_WIDE = 1000  # columns of a terminal


def print_whole(table: "Table", console: "Console | None" = None) -> None:
    """A table as wide as it is: a terminal may break its lines, but no figure is cut."""
    from rich.console import Console
    from rich.measure import Measurement

    console = console or Console(highlight=False)
    own, options = console.width, console.options.update(max_width=MOST_WIDE)
    console.width = max(own, Measurement.get(console, options, table).maximum)
    console.print(table)
    console.width = own


def table(
    rows: Iterable[Sequence[str]],
    head: Sequence[str] = (),
    title: str | None = None,
    styles: Iterable[str] = (),
    long: bool = False,
) -> "Table":
    """Cells as plain text; every column but the first to the right, as figures are. long: the last may be folded."""
    from itertools import zip_longest

    from rich.markup import escape
    from rich.table import Table

    out = Table(title=title and escape(title), title_justify="left", box=None, show_header=any(head))
    for i, name in enumerate(head):
        last = long and i == len(head) - 1
        out.add_column(escape(name), justify="right" if i and not last else "left", no_wrap=not long, overflow="fold")
    for cells, style in zip_longest(rows, styles):
        out.add_row(*map(escape, cells), style=style)
    return out


def print_warnings(console: "Console", lines: Iterable[str]) -> None:
    from rich.markup import escape

    for line in lines:
        console.print(f"[yellow]![/] {escape(line)}", soft_wrap=True)


BACK = 0.2  # progress that falls by more is of another piece of work


class Minutes:
    """Progress as a line a minute, with an estimate of the time left; what begins anew (a proof) is timed anew."""

    def __init__(self, title: str, every_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.title, self.every_s, self.clock = title, every_s, clock
        self.start = self.last = self.began = clock()
        self.done = 0.0

    def __call__(self, done: float, what: str) -> None:
        now = self.clock()
        if done < self.done - BACK:
            self.began = now
        self.done = done
        if now - self.last < self.every_s:
            return
        self.last = now
        left = (now - self.began) * (1 - done) / done / 60 if done > 0 else None
        rest = "" if left is None else ", less than a minute left" if left < 1 else f", about {left:.0f} min left"
        print(f"{self.title}: {what}, {done:.0%} after {(now - self.start) / 60:.0f} min{rest}", file=sys.stderr)


@contextmanager
def progress_bar(title: str, quiet: bool = False) -> Iterator["Progress | None"]:
    """A bar on standard error while something long runs; a line a minute when that is no terminal."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield Minutes(title)
        return
    with terminal_bar(title) as tell:
        yield tell


COLOURS = {"kept": "green", "not shown to be kept": "bold yellow", "broken": "bold red"}


def print_limits(console: "Console", limits: Sequence["LimitCheck"]) -> None:
    """The first line of whatever has a limit: what was asked, what came out on later data, and the verdict."""
    for check in limits:
        console.print(check.words, style=COLOURS[check.verdict], soft_wrap=True, markup=False)
