"""`veil audit`: what adversaries learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import Terminal
from veilstream.audit.spec import AuditSpec
from veilstream.shown import Progress

if TYPE_CHECKING:
    from veilstream.audit.audiences import Audiences

EXAMPLES = """
veil audit policy.veil --quick                      exact adversaries on data drawn from the chain
veil audit policy.veil --data my-tracks/            and on recorded traces, with a learned adversary
veil audit policy.veil --data this-month/ --quick   still the same person? what releases reveal, whatever the chain
veil audit policy.veil --data meter.csv --against planar-laplace,myopic
veil audit policy.veil --data my-tracks/ --option lookbacks=5 --option copies=20
veil audit public.veil --quick                      each audience of a cascade, and all of them together
veil audit policy.veil --data geolife/016 --json    exit code 1 if its claim fails or a limit is broken
"""


def audit(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A policy file, as veil solve -o writes it.")],
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Recorded traces: file, folder or glob; may be given twice.")
    ] = None,
    *,
    spec: Annotated[
        AuditSpec,
        Flags(
            *("against", "quick", "stream", "skip_bad"),
            rest="lookbacks=1,5, orders=1,2,3, current=true, seed, seeds, copies, streams, steps, columns",
            quick=False,
        ),
    ],
    progress: Progress | None,
) -> Answer:
    """Show what an adversary learns from the releases, on data from the chain and on recorded traces."""
    from veilstream.apps.verbs.audit import audit as run
    from veilstream.audit.verdict import Assessment

    found = run(policy, data or None, spec=spec, progress=progress or False)
    if not isinstance(found, Assessment):
        return Answer({"file": policy, **found.to_json()}, lambda: show_audiences(found), not found.fails)
    told = {
        "file": policy,
        "claim": None if found.claim is None else found.claim.__dict__,
        **found.to_json(),
        "against": [other.to_json() for other in found.against],
        "unit": found.unit,
        "quick": spec.quick,
        "seeds": spec.seeds,
        "seconds": round(found.seconds, 3),
    }

    def show() -> None:
        """The limits, the tables, the verdict."""
        from veilstream.audit.tables import sheets

        out = Terminal()
        out.limits(found.limits)
        changed = [] if found.later is None else found.later.changed(found.cost_unit)
        for line in changed:
            out.say("{}", line, style="bold red", whole=True)
        for sheet in sheets(found):
            styles = ["bold" if strong else "dim" for _, strong in sheet.rows]
            out.table([cells for cells, _ in sheet.rows], sheet.head, sheet.title, styles)
        words = found.words.split("\n", len(found.limits) + len(changed))[-1]  # those stand first already
        out.say("\n{}", words, style="" if found.stands else "bold red")
        out.warn(found.warnings)
        out.say(f"[dim]{found.seconds:.0f} s; cross-entropies in nats, brackets are 95 % intervals over traces[/]")

    return Answer(told, show, not found.fails)


def show_audiences(found: Audiences) -> None:
    """The limits, the tables, the words."""
    from veilstream.audit.tables import audiences

    out = Terminal()
    out.limits(found.limits)
    for sheet in audiences(found):
        styles = ["bold" if strong else "" for _, strong in sheet.rows]
        out.table([cells for cells, _ in sheet.rows], sheet.head, sheet.title, styles)
    words = found.words.split("\n", len(found.limits))[-1]
    out.say("\n{}", words, style="" if found.stands else "bold red")
    out.warn(found.warnings)
    out.say(f"[dim]{found.seconds:.0f} s; ± are 95 % intervals over traces[/]")
