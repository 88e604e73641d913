"""Options are said once: the fields of a frozen spec become flags, variables and keys of veil.toml, and a spec again.

A field's metadata holds its help, its group (a panel of the help), its flag where that has another name, and the unit
that the spec reads a text in. A verb takes a spec as a parameter: `spec: Annotated[FitSpec, Flags("tz", "unit")]` has
these two as flags; with `rest` the other fields go through --option NAME=VALUE.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import Field, dataclass, fields
from difflib import get_close_matches
from functools import cache, wraps
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from veilstream.apps.cli.output import print_json, progress_bar
from veilstream.errors import InputError

Options = list[str] | None  # NAME=VALUE of each --option


class Flags:
    """Which fields of a spec are flags, one of them an argument; --option takes the others where `rest` names some.

    defaults: where they are not those of the spec.
    """

    def __init__(self, *names: str, rest: str = "", argument: str = "", **defaults: Any) -> None:
        self.names, self.rest, self.argument, self.defaults = names, rest, argument, defaults


@dataclass(frozen=True)
class Answer:
    """What a verb found: an object for programs, how a person sees it, and whether every check held (else exit 1)."""

    json: Any
    show: Callable[[], None]
    holds: bool = True
    fault: InputError | None = None  # what ended the work after that
    errors: bool = False  # printed on standard error, as standard output has something else


# --- fields ----------------------------------------------------------------------------------------------


@cache
def known(spec: type) -> dict[str, tuple[Field[Any], Any]]:
    """The fields of a spec with what the command line parses, by name and by flag."""
    hints = get_type_hints(spec)
    own = {f.name: (f, kind_of(f, hints[f.name])) for f in fields(spec) if "help" in f.metadata}
    return {flag_of(f).replace("-", "_"): (f, kind) for f, kind in own.values()} | own


def flag_of(f: Field[Any]) -> str:
    """Without its dashes."""
    return str(f.metadata.get("flag") or f.name.replace("_", "-"))


def kind_of(f: Field[Any], hint: Any) -> Any:
    """A switch, a number, a path, texts that may be given again; else a text, which the spec reads."""
    kinds = set(get_args(hint)) - {NoneType} if get_origin(hint) in (Union, UnionType) else {hint}
    if any(get_origin(kind) is tuple or kind == Sequence[str] for kind in kinds):
        return list[str]
    if f.metadata.get("unit") is not None:
        return str
    if kinds <= {str, Path, PathLike[str]} and kinds != {str}:
        return Path
    return kinds.pop() if kinds in ({bool}, {int}, {float}) else str


def keywords(texts: Options) -> dict[str, Any]:
    """NAME=VALUE of each --option: numbers (1,5: several), true and false are read as such, anything else as text."""
    found = dict[str, Any]()
    for name, value in _split(texts):
        try:
            values = json.loads(f"[{value.replace('_', '')}]")
            found[name] = values[0] if len(values) == 1 else tuple(values)
        except (ValueError, IndexError):  # a word, or nothing
            found[name] = value
    if not isinstance(found.get("seed", 0), int) or found.get("seed", 0) < 0:
        raise InputError(f"--option seed must be a whole number from 0, found {found['seed']}")
    return found


def fields_of(texts: Options, *specs: type) -> dict[type, dict[str, Any]]:
    """NAME=VALUE of each --option as a field of the first of these specs that has it."""
    found: dict[type, dict[str, Any]] = {spec: {} for spec in specs}
    for name, value in _split(texts):
        spec = next((spec for spec in specs if name in known(spec)), None)
        if spec is None:
            names = [n for spec in specs for n in known(spec)]
            near = get_close_matches(name, names, 1) or [", ".join(names)]
            raise InputError(f"--option {name}: no such option; did you mean {near[0]}?")
        f, kind = known(spec)[name]
        if kind == list[str]:
            found[spec].setdefault(f.name, []).append(value)
        elif kind in (str, Path):
            found[spec][f.name] = value
        else:
            [read] = keywords([f"{name}={value}"]).values()
            if not isinstance(read, kind | int) or (kind is not bool and isinstance(read, bool)):
                called = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
                raise InputError(f"--option {name} must be {called}, found {value!r}")
            found[spec][f.name] = read
    return found


def _split(texts: Options) -> Iterator[tuple[str, str]]:
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InputError(f"--option takes name=value, found {text!r}")
        yield name.strip().replace("-", "_"), value


# --- verbs -----------------------------------------------------------------------------------------------


def command(verb: Callable[..., Answer | None], prefix: str = "") -> Callable[..., None]:
    """A verb as typer takes it: flags instead of specs, --json, a bar while it works, its answer printed.

    prefix: of the environment variables that its flags are read from; none without it.
    """
    own = inspect.signature(verb, eval_str=True).parameters
    specs: dict[str, tuple[type, Flags]] = {
        n: get_args(p.annotation)[:2]
        for n, p in own.items()
        if get_origin(p.annotation) is Annotated and isinstance(get_args(p.annotation)[1], Flags)
    }
    params = list[inspect.Parameter]()
    for n, p in own.items():
        if n in specs:
            spec, chosen = specs[n]
            params += [_flag(*known(spec)[name], chosen, prefix, name == chosen.argument) for name in chosen.names]
        elif n != "progress":
            params.append(p.replace(kind=p.KEYWORD_ONLY))
    if examples := ", ".join(chosen.rest for _, chosen in specs.values() if chosen.rest):
        text = f"Any other option, by its name in Python: {examples}."
        params.append(_keyword("option", list[str] | None, None, typer.Option(help=text, metavar="NAME=VALUE")))
    params.append(_keyword("json", bool, False, typer.Option("--json", help="Print one JSON object.")))

    @wraps(verb)
    def run(**given: Any) -> None:
        as_json, texts = given.pop("json"), given.pop("option", None) if examples else None
        more = fields_of(texts, *(spec for spec, chosen in specs.values() if chosen.rest))
        for n, (spec, chosen) in specs.items():
            told = {f.name: given.pop(_name(f)) for f, _ in (known(spec)[name] for name in chosen.names)}
            told = {k: v for k, v in told.items() if v not in (None, [])}
            given[n] = spec(**chosen.defaults | told | more.get(spec, {}))
        if "progress" in own:
            with progress_bar(verb.__name__, as_json) as progress:
                answer = verb(**given, progress=progress)
        else:
            answer = verb(**given)
        if answer is None:
            return
        if as_json:
            print_json(answer.json, sys.stderr if answer.errors else sys.stdout)
        else:
            answer.show()
        if answer.fault is not None:
            raise answer.fault
        if not answer.holds:
            raise typer.Exit(1)

    run.__signature__ = inspect.Signature(params)  # type: ignore[attr-defined]  # what typer reads
    return run


def _name(f: Field[Any]) -> str:
    """Name of the field's parameter; `in` is no name in Python."""
    return flag_of(f).replace("-", "_") + "_" * (flag_of(f) == "in")


def _flag(f: Field[Any], kind: Any, chosen: Flags, prefix: str, argument: bool) -> inspect.Parameter:
    """A field as a parameter that typer makes a flag of."""
    name, default = flag_of(f), chosen.defaults.get(f.name, f.default)
    if kind is str and default is not None and f.metadata.get("unit"):
        default = f"{default:g}{f.metadata['unit']}"
    flag = f"--{name}/--no-{name}" if kind is bool and default is None else f"--{name}"
    variable = f"{prefix}{name.upper().replace('-', '_')}" if prefix else None
    how: dict[str, Any] = {"help": f.metadata["help"], "envvar": variable, "show_envvar": False}
    if argument:
        option: Any = typer.Argument(metavar=name.upper(), **how)
    else:
        how |= {"metavar": f.metadata.get("metavar"), "rich_help_panel": f.metadata.get("group")}
        option = typer.Option(flag, **how)
    return _keyword(_name(f), kind if kind is bool and default is not None else kind | None,
                    None if kind == list[str] else default, option)  # fmt: skip


def _keyword(name: str, kind: Any, default: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
