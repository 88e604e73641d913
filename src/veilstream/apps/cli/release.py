"""`veil release`: a pipe from true readings to releases."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilstream.apps.cli.common import grouped, print_json, read_like
from veilstream.apps.cli.gateway_flags import Promise
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.data.readings import Readings
    from veilstream.gateway.core import Core
    from veilstream.gateway.pipe import Format
    from veilstream.gateway.space import Space
    from veilstream.gateway.summary import Summary

EXAMPLES = """
Examples:

  veil release policy.veil walk.gpx > shared.csv

  veil release policy.veil geolife/016 --format jsonl > shared.jsonl

  veil release policy.veil --columns stream=who,time=when < true.csv > shared.csv

  tail -f readings.jsonl | veil release policy.veil --ceiling 20

Without a SOURCE standard input is released line by line as it comes; - reads it to its end first, as veil fit does.
The same step again gets the same release, also in a later run: the store beside the policy remembers.
"""
READ = "Reading"


@grouped
def release(
    policy: Annotated[Path, typer.Argument(help="The policy file (.veil).")],
    promise: Promise,
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SOURCE...]", help="What veil fit reads; by default standard input, as it comes."),
    ] = None,
    form: Annotated[str, typer.Option("--format", help="Of the output: csv, jsonl, or auto (as the input).")] = "auto",
    per_reading: Annotated[
        bool, typer.Option("--per-reading", help="A line for every reading, not one a step.")
    ] = False,
    columns: Annotated[
        str | None,
        typer.Option(help="Which column is what, as in time=ts,lat=y,lon=x,stream=id.", rich_help_panel=READ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Drop and count rows that cannot be read.", rich_help_panel=READ)
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="For tests only: draws that can be repeated protect nobody.", min=0)
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="The account on stderr as JSON.")] = False,
) -> None:
    """Read true readings, write releases to standard output: one line a step, as CSV or JSON lines."""
    from veilstream.control.uniforms import uniforms
    from veilstream.data.columns import parse_columns
    from veilstream.gateway import pipe
    from veilstream.gateway.core import Core
    from veilstream.gateway.scheduler import Serving

    if form not in pipe.FORMATS:
        raise InputError(f"unknown format {form!r}; known: {', '.join(pipe.FORMATS)}")
    told = parse_columns(columns)
    if skip_bad and not sources:
        raise InputError("--skip-bad needs a SOURCE; - reads standard input to its end first")
    if seed is not None:
        print("warning: --seed makes the noise repeatable; whoever knows it can remove it", file=sys.stderr)
    spaces, draws = {"": promise.space(policy)}, None if seed is None else uniforms(seed)
    readings = read(sources, told, skip_bad, spaces[""]) if sources else None
    store = promise.open_store(policy, spaces, lambda line: print(line, file=sys.stderr))
    with closing(Core(spaces, store, Serving(max_ahead=promise.max_ahead), uniforms=draws)) as core:
        out = sys.stdout.buffer
        if readings is None:
            tally = pipe.run(core, sys.stdin.buffer, out, form, told, per_reading)  # type: ignore[arg-type]
        else:
            auto: Format = "csv" if readings.iso else "jsonl"
            sink = pipe.Sink(core, out, auto if form == "auto" else form, per_reading)  # type: ignore[arg-type]
            from veilstream.apps.verbs.release import batches

            for batch in batches(readings, spaces[""]):
                sink.release(batch)
            tally = sink.tally
        found = account(core, tally)
    if json_out:
        print_json(found, sys.stderr)
    else:
        for line in in_words(found):
            print(line, file=sys.stderr)


def read(sources: list[str], columns: dict[str, str], skip_bad: bool, space: "Space") -> "Readings":
    """What `veil fit` would read, and that it is what the policy is about."""
    readings = read_like(space.provenance, sources, columns=columns, skip_bad=skip_bad)
    from veilstream.apps.verbs.release import check_fits

    check_fits(readings, space)
    return readings


# --- what it came to -------------------------------------------------------------------------------------


def account(core: "Core", tally: "Summary") -> dict[str, Any]:
    """Counts, bits and the distance that was felt, for the owner."""
    stats, states = core.stats, core.spaces[""].states
    total = core.store.total_bits()
    return {
        "released": stats.released,
        "repeated": stats.repeated,
        "silent": stats.silent,
        "blind": stats.blind,
        "ceiling_bits": core.spaces[""].ceiling,
        "refused": {k: n for k, n in stats.refused.items() if n},
        "steps": tally.steps,
        "streams": stats.streams,
        "felt": tally.felt,
        "unit": "" if states is None else states.unit,
        "leaked_bits": total - tally.bits_before,
        "leaked_bits_total": total,
    }


def in_words(found: dict[str, Any]) -> Iterator[str]:
    from veilstream.gateway.wire import Refusal
    from veilstream.units import counted

    silent = f", {found['silent']:,} silent" if found["silent"] else ""
    again = f", {counted(found['repeated'], 'reading')} got one again" if found["repeated"] else ""
    told = counted(found["released"], "step")
    yield f"released {told}{silent}{again}; {counted(found['streams'], 'stream')} in the store"
    if found["felt"] is not None:
        unit = f" {found['unit']}" if found["unit"] else ""
        yield f"mean error: {found['felt']:.3g}{unit} from a reading to its release (private)"
    rate = f" ({found['leaked_bits'] / found['released']:.3f} a step)" if found["released"] else ""
    before = found["leaked_bits_total"] - found["leaked_bits"]
    ever = f", {found['leaked_bits_total']:.1f} with earlier runs" if before > 0 else ""
    yield f"leaked: {found['leaked_bits']:.1f} bits{rate}{ever}"
    if found["blind"]:
        yield (
            f"! {found['blind']:,} of {told} were released without looking at the data: their streams had reached "
            f"--ceiling {found['ceiling_bits']:g} bits; raise it, or ask veil solve for a policy that leaks less"
        )
    refused = found["refused"]
    if refused:
        yield f"! refused {counted(sum(refused.values()), 'reading')}: " + "; ".join(
            f"{n:,} {name} ({Refusal[name].value})" for name, n in refused.items()
        )
