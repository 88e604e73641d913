"""`veil audit`: what adversaries learn."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.artefact import Artefact
    from veilstream.audit.verdict import Assessment

EXAMPLES = """
Examples:

  veil audit policy.veil --quick                      exact adversaries on data drawn from the chain

  veil audit policy.veil --data my-tracks/            and on recorded traces, with a learned adversary

  veil audit policy.veil --data this-month/ --quick   still the same person? what releases reveal, no chain believed

  veil audit policy.veil --data meter.csv --against planar-laplace,myopic

  veil audit policy.veil --data my-tracks/ --option lookbacks=5 --option copies=20

  veil audit policy.veil --data geolife/016 --json    exit code 1 if its claim fails or a limit is broken
"""


def audit(
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="A policy file, as veil solve -o writes it.")],
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Recorded traces: file, folder or glob; may be given twice.")
    ] = None,
    against: Annotated[
        str, typer.Option(help="Methods to compare at equal mean distortion, as in planar-laplace,myopic.")
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Exact adversaries only: seconds, no JAX.")] = False,
    stream: Annotated[str | None, typer.Option(help="Audit this stream only.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Drop and count rows that cannot be read.")] = False,
    seed: Annotated[int, typer.Option(help="For draws and networks.", min=0)] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(help="How much work: lookbacks=1,5 orders=1,2,3 current=true seeds, copies, streams, steps."),
    ] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what an adversary learns from the releases, on data from the chain and on recorded traces."""
    from veilstream.apps.cli.common import options_of, print_json, progress_bar
    from veilstream.apps.verbs.audit import audit as run

    artefact = read_policy(policy)
    with progress_bar("auditing", quiet=json_out) as progress:
        found = run(
            artefact,
            data or None,
            against=[m.strip() for m in against.split(",") if m.strip()],
            quick=quick,
            stream=stream,
            skip_bad=skip_bad,
            seed=seed,
            progress=progress or False,
            **options_of(option),
        )
    if json_out:
        print_json(as_json(found, policy))
    else:
        from veilstream.apps.cli.audit_view import show

        show(found)
    if found.fails:
        raise typer.Exit(1)


def read_policy(path: str) -> "Artefact":
    from pathlib import Path

    from veilstream.artefact import load

    if not Path(path).is_file():
        raise InputError(f"no policy file {path!r}; make one with veil solve MODEL -o policy.veil")
    artefact = load(path)
    if artefact.policy is None or artefact.problem is None:
        raise InputError(f"{path} is a model without a policy; make one with veil solve {path} -o policy.veil")
    return artefact


def as_json(found: "Assessment", path: str) -> dict[str, Any]:
    """Cross-entropies in nats and bits, leakage in bits per step."""
    options = found.options
    return {
        "file": path,
        "claim": None if found.claim is None else found.claim.__dict__,
        **found.to_json(),
        "against": [other.to_json() for other in found.against],
        "unit": found.unit,
        "quick": not options.learn,
        "seeds": options.seeds,
        "seconds": round(found.seconds, 3),
    }
