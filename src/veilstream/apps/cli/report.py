"""`veil report`: one page about a policy that a person can open, read and print."""

from pathlib import Path
from typing import Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.specs import ReportSpec
from veilstream.shown import Progress

EXAMPLES = """
veil report policy.veil --data geolife/016 -o report.html
veil report policy.veil --shareable -o report.html         no recorded trace in it
veil report meter.veil --data meter.csv --stream MAC000002 -o report.html
"""


def report(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A policy file made by veil solve.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    data: Annotated[list[str] | None, typer.Option(help="Recorded traces: file, folder or glob.")] = None,
    *,
    spec: Annotated[
        ReportSpec, Flags("shareable", "stream", "skip_bad", "audit", rest="points=16, seconds=20, seed, columns")
    ],
    progress: Progress | None,
) -> Answer:
    """Write one self-contained page: what the policy reveals, what it costs, and how sure that is."""
    from veilstream.apps.verbs.report import report as run

    page = run(policy, data or None, out, spec=spec, progress=progress or False)

    def show() -> None:
        print(page.verdict)
        for warning in page.content.warnings:
            print(f"! {warning}")
        kind = "PRIVATE" if page.private else "shareable"
        print(f"{kind} report written to {out} ({page.size / 1e6:.1f} MB); open it in a browser")

    return Answer(page.to_json(), show)
