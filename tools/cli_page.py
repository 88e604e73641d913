"""The page of the command line, made from the flags themselves.

python tools/cli_page.py           writes docs/cli.md
python tools/cli_page.py --check   says whether it is up to date (exit code 1 if not)
"""

import sys
from pathlib import Path
from typing import Any

import typer

from pages import keep
from veilstream.apps.cli import VERBS, app

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
HEAD = """# The command line

Every command and every flag, as `veil COMMAND --help` says them; written by `tools/cli_page.py`, checked by the tests.
Every command takes `--json` for programs ([what is in it](json.md)); a file `-` is standard input; errors are one line.
Limits carry units where the model has them (`2km`, `500m`, `0.2kWh`, `25%` of what revealing nothing costs). A MODEL
is a file of `veil fit` or `veil start`, or `builtin:NAME`: `grid4x4-q0`, `grid4x4-q1`, `grid4x4-q2`, `grid2x3-toy`,
`binary`, `grid32x32-local`.

| exit code | |
|---|---|
| 0 | done |
| 1 | a check or a claim failed |
| 2 | bad input or usage |
| 130 | interrupted |
| 141 | nobody read on |
"""
KINDS = {"int range": "number", "float range": "number", "int": "number", "float": "number", "str": "text"}


def page() -> str:
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    table = ["| command | |", "|---|---|", *(f"| [`{v}`](#veil-{v}) | {first(verbs[v].help)} |" for v in VERBS)]
    version = "`veil --version` prints the version, `veil --install-completion` lets the shell complete commands."
    return "\n".join([HEAD, *table, "", version, *(entry(v, verbs[v]) for v in VERBS)])


def entry(name: str, verb: Any) -> str:
    given = [p for p in verb.params if p.param_type_name == "argument"]
    usage = " ".join([f"veil {name} [OPTIONS]", *map(argument, given)])
    out = [f"\n## `veil {name}`\n", verb.help, f"\n```text\n{usage}\n```\n"]
    panels: dict[str, list[Any]] = {}
    for p in verb.params:
        panels.setdefault(getattr(p, "rich_help_panel", None) or "", []).append(p)
    for title, flags in panels.items():
        out += [f"**{title}**\n"] if title else []
        out += ["| | takes | |", "|---|---|---|", *map(row, flags), ""]
    return "\n".join([*out, f"```sh\n{examples(verb.epilog)}\n```"]) + ("\n" if name == VERBS[-1] else "")


def argument(p: Any) -> str:
    word = p.metavar or p.name.upper()
    word = word + "..." if p.nargs != 1 and not word.endswith("...") else word
    return word if p.required else f"[{word}]"


def row(p: Any) -> str:
    """A flag as it is typed, what it takes, what it does and what it is if nobody says."""
    names = [argument(p)] if p.param_type_name == "argument" else [*p.opts, *p.secondary_opts]
    takes = (
        ""
        if p.param_type_name == "argument" or p.type.name == "boolean"
        else p.metavar or KINDS.get(p.type.name, p.type.name)
    )
    usual = p.show_default if isinstance(p.show_default, str) else p.default
    said = f" Default: {usual}." if p.show_default and usual not in (None, "") and usual is not False else ""
    more = " Repeatable." if getattr(p, "multiple", False) and "repeatable" not in (p.help or "").lower() else ""
    typed = ", ".join(f"`{n}`" for n in sorted(names, key=len))
    return f"| {typed} | {cell(takes)} | {cell(p.help)}{cell(more)}{cell(said)} |"


def cell(text: str | None) -> str:
    return (" " if (text or "").startswith(" ") else "") + " ".join((text or "").split()).replace("|", "\\|")


def first(text: str) -> str:
    return cell(text.partition("\n\n")[0])


def examples(epilog: str) -> str:
    """The lines of the help, with what is said about them as comments."""
    lines = [line.strip() for line in epilog.strip().splitlines()[1:] if line.strip()]
    return "\n".join(f"{typed:<70}  # {said.strip()}" if said else typed for typed, said in map(halves, lines))


def halves(line: str) -> tuple[str, str]:
    typed, _, said = line.partition("   ")
    return typed, said.strip()


if __name__ == "__main__":
    sys.exit(keep(PAGE, page()))
