"""`veil report`: one page about a policy that a person can open, read and print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.options import Answer, Options, keywords
from veilstream.shown import Progress

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
    audit: Annotated[
        str, typer.Option(help="quick: exact adversaries; full: learned ones too, minutes (needs JAX); none.")
    ] = "quick",
    option: Annotated[
        Options, typer.Option(help="points=16 of the curve, seconds=20 for its certificates, seed.")
    ] = None,
    *,
    progress: Progress | None,
) -> Answer:
    """Write one self-contained page: what the policy reveals, what it costs, and how sure that is."""
    from veilstream.apps.verbs.report import report as run

    page = run(
        policy,
        data or None,
        out,
        shareable=shareable,
        stream=stream,
        skip_bad=skip_bad,
        audit=audit,
        progress=progress or False,
        **keywords(option, run),
    )

    def show() -> None:
        print(page.verdict)
        for warning in page.content.warnings:
            print(f"! {warning}")
        kind = "PRIVATE" if page.private else "shareable"
        print(f"{kind} report written to {out} ({page.size / 1e6:.1f} MB); open it in a browser")

    return Answer(page.to_json(), show)
