"""What the verbs share: where a model comes from, limits with units, progress, JSON."""

import inspect
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TextIO, get_args, get_type_hints

from veilstream.apps.verbs.extras import need as need
from veilstream.apps.verbs.flags import in_flags as in_flags
from veilstream.data.reader_options import read_like as read_like
from veilstream.data.reader_options import remembered as remembered
from veilstream.errors import InputError
from veilstream.shown import terminal_bar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from veilstream.artefact import Artefact
    from veilstream.control.limit_check import LimitCheck
    from veilstream.data.utility import Utility
    from veilstream.solvers.solution import Progress


def grouped(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose parameters may be dataclasses of flags, each shown as a panel of the help (its PANEL)."""
    own = inspect.signature(verb).parameters
    groups: dict[str, Any] = {name: p.annotation for name, p in own.items() if is_dataclass(p.annotation)}
    flags = []
    for name, p in own.items():
        flags += [p.replace(kind=p.KEYWORD_ONLY)] if name not in groups else _flags(groups[name])

    @wraps(verb)
    def run(**given: Any) -> None:
        made = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        verb(**given, **made)

    run.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]  # what typer reads
    return run


def _flags(group: Any) -> list[inspect.Parameter]:
    hints, out = get_type_hints(group, include_extras=True), []
    for f in fields(group):
        hint, option = get_args(hints[f.name])
        option = copy(option)
        option.rich_help_panel = group.PANEL
        annotation = Annotated[hint, option]  # type: ignore[valid-type]
        out.append(inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=annotation))
    return out


def print_json(value: object, to: TextIO | None = None) -> None:
    """One JSON value on standard output, unless told where."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain), file=to or sys.stdout)


def _plain(value: Any) -> object:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def read_model(
    text: str,
    distortion: str = "felt",
    quantile: float = 1.0,
    show: str | None = None,
    pairs: bool = False,
) -> "tuple[Utility, Artefact | None]":
    """What the limits of a .veil file or of builtin:NAME are about, and the file; see `Utility`."""
    from veilstream.solvers.api import utility_of

    return utility_of(text, distortion, quantile, show, pairs)


def share_of(text: str) -> float | None:
    """--hold-out: auto is None, none is 0."""
    from veilstream.units import parse_quantity

    return {"auto": None, "none": 0.0}[text] if text in ("auto", "none") else parse_quantity(text, "", "--hold-out")


def options_of(pairs: list[str] | None) -> dict[str, Any]:
    """name=value of each --option: numbers (1,5: several), true and false are read as such, anything else as text."""
    options = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise InputError(f"--option takes name=value, found {pair!r}")
        try:
            values = json.loads(f"[{text.replace('_', '')}]")
            options[name.replace("-", "_")] = values[0] if len(values) == 1 else tuple(values)
        except (ValueError, IndexError):  # a word, or nothing
            options[name.replace("-", "_")] = text
    return options


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


def print_limits(console: "Console", limits: "Sequence[LimitCheck]") -> None:
    """The first line of whatever has a limit: what was asked, what came out on later data, and the verdict."""
    for check in limits:
        console.print(check.words, style=COLOURS[check.verdict], soft_wrap=True, markup=False)
