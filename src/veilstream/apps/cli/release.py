"""`veil release`: a pipe from true readings to releases."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli.common import grouped
from veilstream.apps.cli.gateway_flags import Promise
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.gateway.stats import Stats

EXAMPLES = """
Examples:

  veil release policy.veil < true.jsonl > shared.jsonl

  veil release policy.veil --key user < true.csv > shared.csv

  tail -f readings.jsonl | veil release policy.veil --ceiling 20

The same step again gets the same release, also in a later run: the store beside the policy remembers.
"""


@grouped
def release(
    policy: Annotated[Path, typer.Argument(help="The policy file (.veil).")],
    promise: Promise,
    form: Annotated[str, typer.Option("--format", help="auto, csv or jsonl.")] = "auto",
    key: Annotated[str | None, typer.Option(help="CSV column that tells streams apart (default: stream).")] = None,
    seed: Annotated[int | None, typer.Option(help="For tests only: draws that can be repeated protect nobody.")] = None,
    json_out: Annotated[bool, typer.Option("--json", help="The account on stderr as JSON.")] = False,
) -> None:
    """Read true readings from standard input, write releases to standard output. CSV or JSON lines."""
    from veilstream.core.release import uniforms
    from veilstream.gateway import pipe
    from veilstream.gateway.core import Core
    from veilstream.gateway.settle import Serving

    if form not in ("auto", "csv", "jsonl"):
        raise InputError(f"unknown format {form!r}; known: auto, csv, jsonl")
    if seed is not None:
        print("warning: --seed makes the noise repeatable; whoever knows it can remove it", file=sys.stderr)
    spaces, draws = {"": promise.space(policy)}, None if seed is None else uniforms(seed)
    store = promise.open_store(policy, spaces, lambda line: print(line, file=sys.stderr))
    with closing(Core(spaces, store, Serving(max_ahead=promise.max_ahead), uniforms=draws)) as core:
        pipe.run(core, sys.stdin.buffer, sys.stdout.buffer, form, key)  # type: ignore[arg-type]
    print(json.dumps(account(core.stats)) if json_out else _line(account(core.stats)), file=sys.stderr)


def account(stats: "Stats") -> dict[str, object]:
    refused = {k: n for k, n in stats.refused.items() if n}
    return {"released": stats.released, "repeated": stats.repeated, "silent": stats.silent, "refused": refused}


def _line(found: dict[str, object]) -> str:
    refused = found["refused"]
    assert isinstance(refused, dict)
    reasons = f" ({', '.join(f'{k} {n}' for k, n in refused.items())})" if refused else ""
    silent = f", silent {found['silent']}" if found["silent"] else ""
    return f"released {found['released']}, again {found['repeated']}{silent}, refused {sum(refused.values())}{reasons}"
