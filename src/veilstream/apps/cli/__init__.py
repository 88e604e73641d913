"""The command `veil`: one file per verb. Parse, call, print.

Verb modules import heavy libraries where they use them, and flags are made of the verb that is asked for alone, so that
`veil --help` is quick.
"""

import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

import veilstream
from veilstream.apps.cli.options import command
from veilstream.apps.verbs.flags import in_flags
from veilstream.errors import Announcement, Caution, InputError

# the base of click's errors, from whichever click typer carries
UsageProblem: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

VERBS = ["demo", "start", "fit", "advise", "solve", "curve", "release", "serve", "audit", "judge", "report"]
VERBS += ["refit", "status", "forget", "strip", "fleet"]
QUIET = (["serve"],)  # prints no tables; it stays for years, and should be small
READER_GONE = 141  # as a shell reports a pipe that was closed

STYLE: dict[str, Any] = {"rich_markup_mode": "markdown", "pretty_exceptions_enable": False}


class Verbs(Mapping[str, Any]):
    """Each verb by its name, made when it is asked for."""

    listed = False  # then its first words are enough

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)

    def __getitem__(self, name: str) -> Any:
        if name not in VERBS:
            raise KeyError(name)
        module = import_module(f"veilstream.apps.cli.{name}")
        verb = getattr(module, name)
        if self.listed:
            return typer.core.TyperCommand(name, help=inspect.getdoc(verb))
        return typer.main.get_command(alone(command(verb, getattr(module, "PREFIX", "")), module, name))


class Veil(typer.core.TyperGroup):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = Verbs()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.commands.listed = True
        super().format_help(ctx, formatter)
        self.commands.listed = False


app = typer.Typer(cls=Veil, no_args_is_help=True, **STYLE)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"veil {veilstream.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Share a time series and reveal as little as possible."""


def alone(verb: Any, module: Any, name: str) -> typer.Typer:
    """A command by itself. Its module's EXAMPLES are one a line, each followed by a word on it."""
    lines = ["Examples:", *module.EXAMPLES.strip().splitlines()]
    only = typer.Typer(add_completion=False, **STYLE)
    only.command(name, cls=getattr(module, "COMMAND", None), epilog="\n\n".join(lines))(verb)
    return only


def main(command: typer.Typer | None = None) -> None:
    """Exit codes: 0 done, 1 a check or claim failed, 2 bad input or usage, 130 interrupted, 141 nobody read on."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")  # typer's: they read the whole environment's metadata
    if sys.argv[1:2] not in QUIET:
        from rich.console import Console

        Console.on_broken_pipe = _reader_gone  # type: ignore[assignment,method-assign]  # rich would end with 1: a failed claim
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Caution)  # it prints them
            warnings.simplefilter("always", Announcement)
            warnings.showwarning = _announced  # type: ignore[assignment]
            code = (command or app)(standalone_mode=False)
    except InputError as error:
        code = fail(in_flags(str(error)))
    except typer.Abort:
        code = 130
    except KeyboardInterrupt:
        print("veil: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone; nothing more to say to it
        code = READER_GONE
    except UsageProblem as error:
        code = fail(error.format_message())
    sys.exit(code)


def _announced(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
    line = (
        str(message) if issubclass(category, Announcement) else f"{filename}:{lineno}: {category.__name__}: {message}"
    )
    print(f"veil: {line}", file=sys.stderr, flush=True)


def _reader_gone(console: Any) -> None:
    raise BrokenPipeError


def fail(message: str) -> int:
    line = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(message.split()))
    print("veil: " + line, file=sys.stderr)  # names come from files: they must not move the terminal
    return 2
