"""What the verbs share: where a model comes from, limits with units, progress, JSON."""

import inspect
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, TextIO, get_args, get_type_hints

from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.artefact import Artefact
    from veilstream.core.problem import Constraint
    from veilstream.data.readings import Readings
    from veilstream.data.utility import Utility
    from veilstream.solvers.solution import Progress


# what the command line calls a field of the library, where it is not its name with dashes
FLAGS = {
    "weight": "--lambda",
    "at_most": "--max",
    "period_s": "--period",
    "max_gap_s": "--max-gap",
    "max_speed_kmh": "--max-speed",
    "eps_m": "--eps",
    "grid_m": "--grid",
    "cells_m": "--cells",
    "resolution_m": "--resolution",
    "n_states": "--states",
    "token": "--token-file or VEIL_TOKEN",
    "urls": "--nats",
    "creds": "--nats-creds FILE",
    "key_file": "--nats-key",
    "password": "--password-file (or VEIL_NATS_PASSWORD)",
    "ca_file": "--ca",
}
_FIELD = re.compile(r"`([a-z]\w*)(?:=([^`]*))?`")


def in_flags(line: str) -> str:
    """A line of the library as the command line says it: `min_samples=3` is --min-samples 3, `force=True` is --force.

    The library names a field that a caller can set in backquotes; nothing else of one word stands in them.
    """

    def flag(found: re.Match[str]) -> str:
        name = FLAGS.get(found[1], "--" + found[1].replace("_", "-"))
        value = (found[2] or "True").strip("'")
        return name if value == "True" else f"{name} {repr(value) if ' ' in value else value}"

    return _FIELD.sub(flag, line)


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
    """What the limits of a .veil file or of builtin:NAME are about, and the file; see `Utility`.

    pairs: the same process on pairs of symbols, so that a release may look at x_t and x_{t-1}.
    """
    from veilstream.data.utility import Utility

    if text.startswith("builtin:"):
        from veilstream.core.builtin import builtin_problem
        from veilstream.core.problem import Average

        problem = builtin_problem(text.removeprefix("builtin:"), Average(weight=1.0))
        chain = problem.chain.lift(2) if pairs else problem.chain
        return Utility(chain, problem.distortion, "", tuple(map(str, range(problem.n_outputs)))), None
    from veilstream.artefact import load

    if not Path(text).is_file():
        raise InputError(f"no model file {text!r}; make one with veil fit, or use builtin:grid4x4-q2")
    artefact = load(text)
    states, solved = artefact.states, artefact.problem
    if pairs and (artefact.chain.histories is not None or artefact.chain.phases > 1):
        raise InputError("--pairs needs a chain of order 1 without a clock: fit with --order 1 --cycle none")
    chain = artefact.chain.lift(2) if pairs else artefact.chain
    if states is not None:
        held_out = artefact.held_out
        return Utility.of(chain, states, artefact.record, distortion, quantile, held_out, show), artefact
    if solved is None:
        raise InputError(f"{text} has no states, so distances between them are unknown")
    names = tuple(map(str, range(solved.n_outputs)))
    return Utility(chain, solved.distortion, "", names), artefact


# how `veil fit` was told to read; its files remember it, so that the other verbs read alike. What may be dropped is
# not remembered: that is for whoever releases to say.
READING = ("columns", "tz", "time_format", "unit")


def remembered(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """How the data behind a file was read; a file may say anything."""
    said = provenance.get("reading")
    known = said if isinstance(said, dict) else {}
    return {k: known[k] for k in READING if isinstance(known.get(k), str) and known[k]}


def read_like(provenance: Mapping[str, Any], sources: list[str], **told: Any) -> "Readings":
    """Data read as that behind the file was, but for what is told; in the common way where that does not fit."""
    try:
        from veilstream.data.sources import read
    except ImportError as missing:
        raise InputError(f"this needs {missing.name}: pip install 'veilstream[data]'") from None
    told = {k: v for k, v in told.items() if v}
    try:
        return read(sources, **(remembered(provenance) | told))
    except InputError as fault:
        if not remembered(provenance).keys() - told.keys():
            raise
        try:
            return read(sources, **told)
        except InputError:
            if ": no column " in str(fault):  # another file, with names of its own: what is wrong with it is the second
                raise
            raise fault from None


def quantile_of(text: str | None) -> tuple[str | None, float]:
    """A limit with the share of readings it is for: "500m@99%" is ("500m", 0.99); for all of them unless told."""
    if text is None or "@" not in text:
        return text, 1.0
    limit, _, share = text.rpartition("@")
    try:
        part = float(share.removesuffix("%")) / 100
    except ValueError:
        part = 0.0
    if not share.endswith("%") or not 0 < part <= 1:
        raise InputError(f"`at_most`: {share!r} is no share of the readings; write it like 500m@99%")
    return limit, part


def constraint_of(
    model: "Utility", avg: str | None, at_most: str | None, weight: float | None, budget: float | None
) -> "Constraint":
    """--avg, --lambda or --budget, alone or with --max."""
    from veilstream.core.problem import Average, Both, Budget, Instantaneous

    given = [name for name, v in (("--avg", avg), ("--lambda", weight), ("--budget", budget)) if v is not None]
    if len(given) > 1:
        raise InputError(f"give one of {', '.join(given)}, not several")
    average: Average | Budget | None = None
    if avg is not None:
        average = Average(limit=mean_limit(model, avg))
    elif weight is not None:
        average = Average(weight=weight)
    elif budget is not None:
        average = Budget(budget)
    if at_most is None:
        if average is None:
            raise InputError("say how much utility is needed: --avg 2km, --max 5km, --lambda 1.0 or --budget 0.1")
        return average
    limit = Instantaneous(limits(model, at_most))
    return limit if average is None else Both(average, limit)


def mean_limit(model: "Utility", text: str) -> float:
    """2km, or 25%: of what revealing nothing costs."""
    from veilstream.units import parse_quantity

    if text.strip().endswith("%") and model.unit != "%":
        return parse_quantity(text.strip().removesuffix("%"), "", "--avg") / 100 * model.blind
    return parse_quantity(text, model.unit, "--avg")


def limits(model: "Utility", text: str) -> float | tuple[float, ...]:
    """One limit for all, or name=limit pairs with * for the rest: home=5km,*=500m."""
    from veilstream.units import parse_quantity

    if "=" not in text:
        return parse_quantity(text, model.unit, "--max")
    by_name: dict[str, float] = {}
    for part in text.split(","):
        given, _, value = part.partition("=")
        name = _as_shown(given.strip(), model.names)
        if name not in (*model.names, "*"):
            raise InputError(f"--max names the unknown state {name!r}; states: {', '.join(model.names)}, or *")
        by_name[name] = parse_quantity(value, model.unit, f"--max {name}")
    missing = [n for n in model.names if n not in by_name and "*" not in by_name]
    if missing:
        raise InputError(f"--max says nothing about {missing[0]!r}; add it, or *=LIMIT for the rest")
    return tuple(by_name.get(n, by_name.get("*", 0.0)) for n in model.names)


def _as_shown(name: str, names: tuple[str, ...]) -> str:
    """A state by the number that plots show for it: 4 is "stop 4", where no state is called 4."""
    meant = [n for n in names if n in (f"stop {name}", f"cell {name}")]
    return meant[0] if name not in names and len(meant) == 1 else name


def share_of(text: str) -> float | None:
    """--hold-out: auto is None, none is 0."""
    from veilstream.units import parse_quantity

    return {"auto": None, "none": 0.0}[text] if text in ("auto", "none") else parse_quantity(text, "", "--hold-out")


def options_of(pairs: list[str] | None) -> dict[str, Any]:
    """name=value of each --option: numbers, true and false are read as such, anything else as text."""
    options = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise InputError(f"--option takes name=value, found {pair!r}")
        try:
            options[name.replace("-", "_")] = json.loads(text.replace("_", ""))
        except ValueError:
            options[name.replace("-", "_")] = text
    return options


def check_writable(out: Path, name: str) -> None:
    """Say now, not after the work, that the file has nowhere to go. name: what such a file is called."""
    if out.is_dir():
        raise InputError(f"{out} is a folder; name a file, as in {out / name}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None
    if not os.access(out.parent, os.W_OK):
        raise InputError(f"{out}: cannot be written (no permission in {out.parent})")


class Minutes:
    """Progress as a line a minute, with an estimate of the time left."""

    def __init__(self, title: str, every_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.title, self.every_s, self.clock = title, every_s, clock
        self.start = self.last = clock()

    def __call__(self, done: float, what: str) -> None:
        now = self.clock()
        if now - self.last < self.every_s:
            return
        self.last = now
        left = (now - self.start) * (1 - done) / done / 60 if done > 0 else None
        rest = "" if left is None else f", about {max(left, 1):.0f} min left"
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
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), *times
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)

        def tell(done: float, what: str) -> None:
            bar.update(task, completed=done, description=f"{title}: {what}")

        yield tell


def need(module: str, extra: str, otherwise: str = "") -> ModuleType:
    """An optional library, or a line saying how to install it (and what to do without it)."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"this needs {module.split('.')[0]}: pip install 'veilstream[{extra}]'{otherwise}") from None
