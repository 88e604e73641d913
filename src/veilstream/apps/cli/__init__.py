"""The command `veil`: one file per verb. Parse, call, print.

Verb modules import heavy libraries where they use them, so that `veil --help` is quick.
"""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console

import veilstream
from veilstream.apps.cli.common import in_flags
from veilstream.errors import InputError

# the base of click's errors, from whichever click typer carries
UsageProblem: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

VERBS = ["demo", "start", "fit", "advise", "solve", "curve", "release", "serve", "audit", "report"]
VERBS += ["refit", "forget", "strip", "fleet", "paper", "plan", "bench"]
READER_GONE = 141  # as a shell reports a pipe that was closed

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


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


for _verb in VERBS:
    _module = import_module(f"veilstream.apps.cli.{_verb}")
    app.command(_verb, cls=getattr(_module, "Command", None), epilog=_module.EXAMPLES)(getattr(_module, _verb))


def main() -> None:
    """Exit codes: 0 done, 1 a check or claim failed, 2 bad input or usage, 130 interrupted, 141 nobody read on."""
    Console.on_broken_pipe = _reader_gone  # type: ignore[assignment,method-assign]  # rich would end with 1: a failed claim
    try:
        code = app(standalone_mode=False)
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


def _reader_gone(console: Console) -> None:
    raise BrokenPipeError


def fail(message: str) -> int:
    line = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(message.split()))
    print("veil: " + line, file=sys.stderr)  # names come from files: they must not move the terminal
    return 2
