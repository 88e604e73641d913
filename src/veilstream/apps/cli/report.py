"""`veil report`: one page about a policy that a person can open, read and print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    from veilstream.apps.cli.common import print_json, progress_bar
    from veilstream.apps.verbs.report import report as run
    from veilstream.control.limit_check import limits_json

    with progress_bar("report", quiet=json_out) as progress:
        page = run(
            policy,
            data or None,
            out,
            shareable=shareable,
            stream=stream,
            skip_bad=skip_bad,
            points=points,
            seconds=seconds,
            audit=audit,
            seed=seed,
            progress=progress or False,
        )
    content, later, size = page.content, page.later, page.size
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
                **limits_json(content.limits),
                "level": str(own.point.level),
                "verdict": page.verdict,
                "warnings": content.warnings,
                "audit_stands": content.audit.stands,
            }
        )
        return
    print(page.verdict)
    for warning in content.warnings:
        print(f"! {warning}")
    print(
        f"{'shareable' if shareable else 'PRIVATE'} report written to {out} ({size / 1e6:.1f} MB); open it in a browser"
    )
