"""`veil release`: a pipe from true readings to releases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.specs import ReleaseSpec
from veilstream.apps.verbs.flags import in_flags
from veilstream.data.columns import parse_columns
from veilstream.data.fit import read_as_fitted
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.gateway.core import Core
    from veilstream.gateway.pipe import Sink

EXAMPLES = """
veil release policy.veil walk.gpx > shared.csv
veil release policy.veil geolife/016 --format jsonl > shared.jsonl
veil release policy.veil --columns stream=who,time=when < true.csv > shared.csv
tail -f readings.jsonl | veil release policy.veil --ceiling 20
veil release policy.veil walk.gpx --format gpx > shared.gpx
veil release family.veil walk.gpx --audience public.veil > public.csv     without --audience: the family's, same draw
Without a SOURCE standard input is released line by line as it comes; - reads it to its end first, as veil fit does.
The same step again gets the same release, also in a later run: the store beside the policy remembers.
"""


def release(
    policy: Annotated[Path, typer.Argument(help="The policy file (.veil).")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SOURCE...]", help="What veil fit reads; by default standard input, as it comes."),
    ] = None,
    *,
    spec: Annotated[
        ReleaseSpec,
        Flags(
            *("audience", "format", "columns", "skip_bad", "store", "no_store", "ceiling"),
            rest="per_reading, meter, seed (for tests only), stream, max_ahead, idle, force",
        ),
    ],
) -> Answer:
    """Read true readings, write releases to standard output: one line a step, as CSV or JSON lines, or a GPX file."""
    from veilstream.control.uniforms import uniforms
    from veilstream.gateway import pipe
    from veilstream.gateway.core import Core
    from veilstream.gateway.scheduler import Serving

    if spec.skip_bad and not sources:
        raise InputError("--skip-bad needs a SOURCE; - reads standard input to its end first")
    if spec.seed is not None:
        _say("warning: `seed` makes the noise repeatable; whoever knows it can remove it")
    space = spec.space_of(policy)
    columns, readings = parse_columns(spec.columns), None
    if sources:
        readings = read_as_fitted(space.provenance, sources, spec)
        from veilstream.apps.verbs.release import batches, check_fits

        check_fits(readings, space)
    spaces, draws = spec.with_audiences({"": space}), None if spec.seed is None else uniforms(spec.seed)
    shown = spec.audiences[-1].name if spec.audiences else ""
    opened = spec.open_store(policy, spaces, _say)
    with closing(Core(spaces, opened, Serving(max_ahead=spec.max_ahead), uniforms=draws)) as core:
        out, form = sys.stdout.buffer, spec.format
        if readings is None:
            sink = pipe.run(core, sys.stdin.buffer, out, form, columns, spec.per_reading, shown)  # type: ignore[arg-type]
        else:
            auto = "csv" if readings.iso else "jsonl"
            sink = pipe.Sink(core, out, spec.per_reading, shown)
            sink.begin(auto if form == "auto" else form)  # type: ignore[arg-type]
            for batch in batches(readings, space):
                sink.write([pipe.settled(core, batch)])
            sink.end()
        found = account(core, sink)

    def show() -> None:
        for line in lines(found):
            _say(line)

    return Answer(found, show, errors=True)


def _say(line: str) -> None:
    print(in_flags(line), file=sys.stderr)


def account(core: Core, sink: Sink) -> dict[str, Any]:
    """Counts, bits and the mean error, for the owner."""
    who = sink.audience
    stats, states = core.audiences[who] if who else core.stats, core.spaces[who].states
    total = core.store.total_bits(who)
    return {
        "released": stats.released,
        "repeated": stats.repeated,
        "silent": stats.silent,
        "blind": stats.blind,
        "ceiling_bits": core.spaces[who].ceiling,
        "refused": {k: n for k, n in core.stats.refused.items() if n},
        "steps": sink.steps,
        "streams": stats.streams,
        "felt": sink.felt,
        "unit": "" if states is None else states.unit,
        "leaked_bits": total - sink.bits_before,
        "leaked_bits_total": total,
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
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
