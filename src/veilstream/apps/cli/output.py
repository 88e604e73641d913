"""How results and progress are printed: JSON, tables that are never cut, limits first, a bar or a line a minute."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from veilstream.apps.verbs.flags import in_flags
from veilstream.shown import terminal_bar

if TYPE_CHECKING:
    from veilstream.control.limit_check import LimitCheck
    from veilstream.shown import Progress


def print_json(value: object, to: TextIO | None = None) -> None:
    """Print one JSON value, on standard output by default."""
    print(json.dumps(_said(value), ensure_ascii=False, allow_nan=False, default=_plain), file=to or sys.stdout)


def command_line() -> str:
    """As it was typed, for the file that it makes."""
    return shlex.join(["veil", *sys.argv[1:]])


def _said(value: Any) -> Any:
    """Fields of the library are said as flags."""
    if isinstance(value, dict):
        return {key: _said(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_said(one) for one in value]
    return in_flags(value) if isinstance(value, str) else value


def _plain(value: Any) -> object:
    return value.tolist() if hasattr(value, "tolist") else str(value)


MOST_WIDE = 1000  # columns of a terminal
COLOURS = {"kept": "green", "not shown to be kept": "bold yellow", "broken": "bold red"}


class Terminal:
    """Standard output for a person. Texts are escaped where they are put in, and no figure is cut."""

    def __init__(self, highlight: bool = False) -> None:
        from rich.console import Console

        self.console = Console(highlight=highlight)

    def say(self, words: str, *texts: object, style: str = "", whole: bool = False) -> None:
        """A line in rich's markup, each {} of it one of the texts, in which fields of the library become flags; whole:
        it is not broken where the terminal ends."""
        from rich.markup import escape

        line = words.format(*(escape(in_flags(str(text))) for text in texts))
        self.console.print(line, style=style, soft_wrap=whole)

    def warn(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.say("[yellow]![/] {}", line, whole=True)

    def limits(self, checks: Iterable["LimitCheck"]) -> None:
        """First of whatever has a limit: what was asked, what came out on later data, and the verdict."""
        for check in checks:
            self.say("{}", check.words, style=COLOURS[check.verdict], whole=True)

    def table(
        self,
        rows: Iterable[Sequence[str]],
        head: Sequence[str] = (),
        title: str | None = None,
        styles: Iterable[str] = (),
        folds: int = 0,
    ) -> None:
        """Cells as plain text; every column but the first to the right, as figures are.

        It is as wide as it is: a terminal may break its lines. folds: so many columns, the last, are folded instead.
        """
        from itertools import zip_longest

        from rich.markup import escape
        from rich.measure import Measurement
        from rich.table import Table

        out = Table(title=title and escape(title), title_justify="left", box=None, show_header=any(head))
        for i, name in enumerate(head):
            fold = i >= len(head) - folds
            justify: Any = "right" if i and not fold else "left"
            out.add_column(escape(name), justify=justify, no_wrap=not fold, overflow="fold")
        for cells, style in zip_longest(rows, styles):
            out.add_row(*(escape(in_flags(cell)) for cell in cells), style=style)
        own, options = self.console.width, self.console.options.update(max_width=MOST_WIDE)
        self.console.width = own if folds else max(own, Measurement.get(self.console, options, out).maximum)
        self.console.print(out)
        self.console.width = own


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
        timed = now - self.began >= self.every_s / 2  # less tells nothing of the rest
        left = (now - self.began) * (1 - done) / done / 60 if done > 0 and timed else None
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
