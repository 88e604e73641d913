"""`veil release`: a pipe from true readings to releases."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.gateway.space import Space
    from veilstream.gateway.stats import Stats
    from veilstream.gateway.store import Store

EXAMPLES = """
Examples:

  veil release policy.veil < true.jsonl > shared.jsonl

  veil release policy.veil --key user < true.csv > shared.csv

  tail -f readings.jsonl | veil release policy.veil --ceiling 20

The same step again gets the same release, also in a later run: the store beside the policy remembers.
"""


def release(
    policy: Annotated[Path, typer.Argument(help="The policy file (.veil).")],
    store: Annotated[Path | None, typer.Option(help="Where releases are remembered (default: POLICY.db).")] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Remember nothing after this run.")] = False,
    form: Annotated[str, typer.Option("--format", help="auto, csv or jsonl.")] = "auto",
    key: Annotated[str | None, typer.Option(help="CSV column that tells streams apart (default: stream).")] = None,
    ceiling: Annotated[float | None, typer.Option(help="Bits per stream beyond which releases do not look.")] = None,
    meter: Annotated[str, typer.Option(help="exact (belief), or table (faster; window policies).")] = "exact",
    max_ahead: Annotated[int | None, typer.Option(help="Steps a reading may lie ahead.")] = None,
    seed: Annotated[int | None, typer.Option(help="For tests only: draws that can be repeated protect nobody.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Release with a model marked study only.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="The account on stderr as JSON.")] = False,
) -> None:
    """Read true readings from standard input, write releases to standard output. CSV or JSON lines."""
    from veilstream.core.release import uniforms
    from veilstream.gateway import pipe
    from veilstream.gateway.core import Core

    if form not in ("auto", "csv", "jsonl"):
        raise InputError(f"unknown format {form!r}; known: auto, csv, jsonl")
    if seed is not None:
        print("warning: --seed makes the noise repeatable; whoever knows it can remove it", file=sys.stderr)
    space = open_space(policy, ceiling, meter, force)
    opened = open_store(policy, store, no_store, {"": space}, lambda line: print(line, file=sys.stderr))
    core = Core({"": space}, opened, max_ahead=max_ahead, uniforms=None if seed is None else uniforms(seed))
    try:
        pipe.run(core, sys.stdin.buffer, sys.stdout.buffer, form, key)  # type: ignore[arg-type]
    finally:
        core.close()
    print(json.dumps(account(core.stats)) if json_out else _line(account(core.stats)), file=sys.stderr)


def open_space(policy: Path, ceiling: float | None, meter: str, force: bool) -> "Space":
    from veilstream.artefact import load
    from veilstream.gateway.space import Space

    name: Literal["exact", "table"] = meter  # type: ignore[assignment]  # Mechanism checks it
    try:
        return Space(load(policy), ceiling, name, force)
    except InputError as error:
        raise InputError(str(error) if str(policy) in str(error) else f"{policy}: {error}") from None


def open_store(
    policy: Path, store: Path | None, no_store: bool, spaces: "dict[str, Space]", tell: Callable[[str], None]
) -> "Store":
    from veilstream.gateway.store import MEMORY, Store

    if no_store and store is not None:
        raise InputError("--store and --no-store exclude each other")
    if no_store:
        tell("warning: --no-store: a second run draws again, and two draws of one step leak more")
    opened = Store(
        MEMORY if no_store else store or Path(f"{policy}.db"), {name: s.binding for name, s in spaces.items()}
    )
    if opened.changed:
        tell("note: the policy changed since the last run; steps and the meter are kept")
    return opened


def account(stats: "Stats") -> dict[str, object]:
    refused = {k: n for k, n in stats.refused.items() if n}
    return {"released": stats.released, "repeated": stats.repeated, "silent": stats.silent, "refused": refused}


def _line(found: dict[str, object]) -> str:
    refused = found["refused"]
    assert isinstance(refused, dict)
    reasons = f" ({', '.join(f'{k} {n}' for k, n in refused.items())})" if refused else ""
    silent = f", silent {found['silent']}" if found["silent"] else ""
    return f"released {found['released']}, again {found['repeated']}{silent}, refused {sum(refused.values())}{reasons}"
