"""`veil report`: one page about a policy that a person can open, read and print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    from veilstream.artefact import Artefact
    from veilstream.audit.later import LaterData
    from veilstream.core.course import Course

EXAMPLES = """
Examples:

  veil report policy.veil --data geolife/016 -o report.html

  veil report policy.veil --shareable -o report.html         no recorded trace in it

  veil report meter.veil --data meter.csv --stream MAC000002 -o report.html
"""


def report(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A policy file made by veil solve.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    data: Annotated[list[str] | None, typer.Option(help="Recorded traces: file, folder or glob.")] = None,
    shareable: Annotated[
        bool, typer.Option("--shareable", help="Draw the traces from the chain; show no recorded one.")
    ] = False,
    stream: Annotated[str | None, typer.Option(help="This stream of the data only.")] = None,
    columns: Annotated[str | None, typer.Option(help="Which column is what, as in time=ts,lat=y,lon=x.")] = None,
    tz: Annotated[str | None, typer.Option(help="Time zone of stamps that have none.")] = None,
    time_format: Annotated[str | None, typer.Option(help="Format of the stamps, as in veil fit.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Drop and count rows that cannot be read.")] = False,
    points: Annotated[int, typer.Option(help="Weights on the curve.", min=3, max=60)] = 16,
    seconds: Annotated[float, typer.Option(help="Time for the certificates, in all.", min=0.0)] = 20.0,
    audit: Annotated[
        str, typer.Option(help="quick: exact adversaries; full: learned ones too, minutes (needs JAX); none.")
    ] = "quick",
    seed: Annotated[int, typer.Option(help="Of the released examples and estimates.", min=0)] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write one self-contained page: what the policy reveals, what it costs, and how sure that is."""
    from veilstream.apps.cli.common import check_writable, need, print_json, progress_bar
    from veilstream.apps.report.audit_part import DEPTHS
    from veilstream.apps.report.content import Options, collect
    from veilstream.apps.report.page import render
    from veilstream.apps.report.words import verdict
    from veilstream.artefact import load
    from veilstream.errors import InputError

    if not Path(policy).is_file():
        raise InputError(f"no policy file {policy!r}; make one with veil solve MODEL --avg 1km -o FILE")
    if not data and not shareable:
        raise InputError("the report shows recorded traces: give --data SOURCE, or --shareable for traces of the chain")
    artefact = load(policy)
    check_writable(out, "report.html")
    if audit not in DEPTHS:
        raise InputError(f"--audit must be one of {', '.join(DEPTHS)}, found {audit!r}")
    if audit == "full":
        for library in ("jax", "optax"):
            need(library, "deep", "; or --audit quick, which trains no network")
    options = Options(shareable, points, seconds, seed, audit)
    told = {"columns": columns, "tz": tz, "time_format": time_format, "skip_bad": skip_bad}
    reading = {**told, "unit": unit_of(artefact)}
    with progress_bar("report", quiet=json_out) as progress:
        sequences, first, card, account, course, later = _recorded(artefact, data, stream, reading, shareable)
        content = collect(artefact, sequences, options, card, account, progress, course, first)
    size = write(out, render(content))
    if json_out:
        own = content.own
        print_json(
            {
                "report": str(out),
                "bytes": size,
                "private": not shareable,
                "leakage": own.point.leakage,
                "distortion": own.point.distortion,
                "leakage_lower": own.low,
                **({} if own.record is None else own.record.to_json()),
                **({} if later is None else later.to_json()),
                "level": str(own.point.level),
                "verdict": verdict(content)[0],
                "warnings": content.warnings,
                "audit_stands": content.audit.stands,
            }
        )
        return
    print(verdict(content)[0])
    for warning in content.warnings:
        print(f"! {warning}")
    print(
        f"{'shareable' if shareable else 'PRIVATE'} report written to {out} ({size / 1e6:.1f} MB); open it in a browser"
    )


def unit_of(artefact: Artefact) -> str | None:
    return artefact.states.unit if artefact.states is not None and not artefact.states.is_map else None


def _recorded(
    artefact: Artefact, data: list[str] | None, stream: str | None, reading: dict[str, Any], shareable: bool
) -> tuple[
    list[NDArray[int64]] | None,
    NDArray[int64] | None,
    list[tuple[str, str]],
    list[dict[str, Any]],
    Course | None,
    LaterData | None,
]:
    """Recorded symbols and their first steps, the data card, the account of the cleaning, the streams with their
    readings, and what became of them later."""
    from veilstream.apps.cli.common import in_flags, read_like
    from veilstream.apps.report.card import chain_card, data_card

    if not data:
        return None, None, chain_card(artefact), [], None, None
    readings = read_like(artefact.provenance, data, **reading)
    from veilstream.audit.later import later_data
    from veilstream.audit.source import course_of, recorded_runs

    if stream is not None:
        readings = readings.only(stream)
    runs = recorded_runs(readings, artefact)
    sequences = runs.sequences
    later = None if shareable else later_data(artefact, runs)
    card = [*data_card(artefact, readings.n_traces, readings.frame.height, sequences, later), *chain_card(artefact)]
    account = [{**entry, "note": in_flags(entry["note"])} for entry in readings.account.to_json()]
    return sequences, runs.first, card, account, course_of(artefact, runs), later


def write(out: Path, page: str) -> int:
    """The page in one move, readable by its owner only; returns its size in bytes."""
    from veilstream import container
    from veilstream.errors import InputError

    try:
        container.write(out, page.encode())
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror})") from None
    return out.stat().st_size
