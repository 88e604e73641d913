"""`veil audit`: what adversaries learn."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.artefact import Artefact
    from veilstream.audit.assemble import Assessment
    from veilstream.data.recording import Recording

DATA, WORK = "Recorded data", "How much work"
EXAMPLES = """
Examples:

  veil audit policy.veil --quick                      exact adversaries on data drawn from the chain

  veil audit policy.veil --data my-tracks/            and on recorded traces, with a learned adversary

  veil audit policy.veil --data this-month/ --quick   still the same person? what releases reveal, no chain believed

  veil audit policy.veil --data meter.csv --against planar-laplace,myopic

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
    lookback: Annotated[
        str, typer.Option(help="Releases the learned adversary looks back on.", rich_help_panel=WORK)
    ] = "1,5",
    current: Annotated[
        bool,
        typer.Option("--current", help="The learned adversary sees the current release too.", rich_help_panel=WORK),
    ] = False,
    orders: Annotated[
        str, typer.Option(help="Orders of the chains learned from the training traces.", rich_help_panel=WORK)
    ] = "1,2,3",
    seeds: Annotated[int, typer.Option(help="Each holds out its part of the traces.", rich_help_panel=WORK)] = 3,
    copies: Annotated[int, typer.Option(help="Releases of each recorded trace.", rich_help_panel=WORK)] = 40,
    streams: Annotated[int, typer.Option(help="Streams drawn from the chain.", rich_help_panel=WORK)] = 240,
    steps: Annotated[int, typer.Option(help="Steps of each of them.", rich_help_panel=WORK)] = 300,
    seed: Annotated[int, typer.Option(help="For draws and networks.", min=0, rich_help_panel=WORK)] = 0,
    gaps: Annotated[str | None, typer.Option(help="split or bridge, as in veil fit.", rich_help_panel=DATA)] = None,
    noise: Annotated[str | None, typer.Option(help="nearest or drop, as in veil fit.", rich_help_panel=DATA)] = None,
    bin: Annotated[str | None, typer.Option(help="first, mean or sum, as in veil fit.", rich_help_panel=DATA)] = None,
    max_gap: Annotated[str | None, typer.Option(help="Longest gap inside a trace.", rich_help_panel=DATA)] = None,
    eps: Annotated[str | None, typer.Option(help="DBSCAN radius, for --noise drop.", rich_help_panel=DATA)] = None,
    min_samples: Annotated[
        int | None, typer.Option(help="Steps that make a stop, for --noise drop.", rich_help_panel=DATA)
    ] = None,
    stream: Annotated[str | None, typer.Option(help="Audit this stream only.", rich_help_panel=DATA)] = None,
    columns: Annotated[
        str | None, typer.Option(help="Which column is what, as in veil fit.", rich_help_panel=DATA)
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of the values, as in kWh.", rich_help_panel=DATA)] = None,
    tz: Annotated[str | None, typer.Option(help="Time zone of stamps that have none.", rich_help_panel=DATA)] = None,
    time_format: Annotated[
        str | None, typer.Option(help="Format of the stamps, as in veil fit.", rich_help_panel=DATA)
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Drop and count rows that cannot be read.", rich_help_panel=DATA)
    ] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what an adversary learns from the releases, on data from the chain and on recorded traces."""
    from veilstream.apps.cli.common import print_json, progress_bar
    from veilstream.apps.verbs.audit import audit as run

    artefact = read_policy(policy)
    size = {} if quick else {"streams": streams, "steps": steps}
    with progress_bar("auditing", quiet=json_out) as progress:
        found = run(
            artefact,
            data or None,
            against=[m.strip() for m in against.split(",") if m.strip()],
            quick=quick,
            stream=stream,
            columns=columns,
            unit=unit,
            tz=tz,
            time_format=time_format,
            skip_bad=skip_bad,
            recording=recording_of(artefact, gaps, noise, bin, max_gap, eps, min_samples),
            seed=seed,
            progress=progress or False,
            lookbacks=numbers(lookback, "--lookback"),
            orders=numbers(orders, "--orders"),
            current=current,
            seeds=seeds,
            copies=copies,
            **size,
        )
    if json_out:
        print_json(as_json(found, policy))
    else:
        from veilstream.apps.cli.audit_view import show

        show(found)
    if found.fails:
        raise typer.Exit(1)


def recording_of(
    artefact: "Artefact",
    gaps: str | None,
    noise: str | None,
    bin: str | None,
    max_gap: str | None,
    eps: str | None,
    min_samples: int | None,
) -> "Recording":
    """How the policy's model was recorded, but for what was told."""
    from veilstream.units import parse_duration, parse_length_m

    changes: dict[str, Any] = {
        "gaps": gaps,
        "noise": noise,
        "bin": bin,
        "max_gap_s": parse_duration(max_gap, "--max-gap") if max_gap else None,
        "eps_m": parse_length_m(eps, "--eps") if eps else None,
        "min_samples": min_samples,
    }
    return replace(artefact.recording, **{k: v for k, v in changes.items() if v is not None})


def numbers(text: str, what: str) -> tuple[int, ...]:
    """1,5 -> (1, 5)."""
    parts = [p.strip() for p in text.split(",") if p.strip()]
    if not all(p.isdecimal() for p in parts):
        raise InputError(f"{what} must be whole numbers separated by commas, found {text!r}")
    return tuple(int(p) for p in parts)


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
    options = found.audit.options
    return {
        "file": path,
        "claim": None if found.claim is None else found.claim.__dict__,
        **found.to_json(),
        "against": [other.to_json() for other in found.audit.against],
        "unit": found.audit.unit,
        "quick": not options.learn,
        "seeds": options.seeds,
        "seconds": round(found.audit.seconds, 3),
    }
