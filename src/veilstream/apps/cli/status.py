"""`veil status`: how a gateway's streams are, for their owner alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import Terminal
from veilstream.errors import InputError, need
from veilstream.gateway.spec import ClusterSpec, StoreSpec
from veilstream.units import counted, printable

if TYPE_CHECKING:
    from veilstream.gateway.inspect import Claims, StreamStatus

EXAMPLES = """
veil status policy.veil                      the store beside the policy, also while its gateway runs
veil status --store /var/lib/veil/store.db --json
veil status policy.veil --nats nats://n1:4222 the workers' memory; needs their key (POLICY.key)
"""


def status(
    file: Annotated[
        Path | None, typer.Argument(metavar="[STORE|POLICY]", help="The store, or the policy it lies beside.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="The store, as veil serve and veil forget name it.")] = None,
    *,
    cluster: Annotated[
        ClusterSpec, Flags("nats", "nats_key", rest="space=NAME=POLICY, prefix, ca, nats_creds, password_file")
    ],
) -> Answer:
    """PRIVATE, for the owner: last step, bits leaked, error and drift of every stream of a gateway.

    Drift: whether the person still is who the model says, by the rule of veil audit --data, from sums that the gateway
    keeps. It reads the store's file, or on NATS the records that the key opens; nothing of it is ever published.
    """
    file = file if store is None else store
    if file is None:
        raise InputError("name a store or the policy it lies beside: veil status policy.veil")
    views, refused = (_in_store(file), list[str]()) if cluster.nats is None else _on_nats(file, cluster)
    told = {"private": True, "streams": [v.to_json() for v in views], "refused": refused}
    return Answer(told, lambda: _show(views, refused))


def _in_store(file: Path) -> list[StreamStatus]:
    from veilstream.gateway.inspect import is_store, look

    if not file.exists():
        raise InputError(f"no store or policy {str(file)!r}")
    if not is_store(file):
        beside = Path(f"{file}.db")
        if not beside.exists():
            raise InputError(f"{file} is no store, and there is none beside it ({beside.name}); name the store")
        file = beside
    return list(look(file))


def _on_nats(policy: Path, cluster: ClusterSpec) -> tuple[list[StreamStatus], list[str]]:
    from veilstream.gateway.inspect import Claims

    need("nats", "nats")
    from veilstream.gateway.nats.owner import look

    about: dict[str, Claims] = {}
    for name, path in cluster.policies(policy).items():
        if not Path(path).is_file():
            raise InputError(f"no policy file {str(path)!r}")
        about[name] = Claims.of(StoreSpec(force=True).space_of(path))
    return look(cluster.worker(policy), about)


def _show(views: list[StreamStatus], refused: list[str]) -> None:
    out = Terminal()
    out.say("PRIVATE: for the owner of the streams. Errors and drift are about true readings.", style="bold")
    cells = {
        "space": [v.stream.space for v in views],
        "stream": [v.stream.name for v in views],
        "last step": [_when(v) for v in views],
        "bits leaked": [_bits(v) for v in views],
        "rung": ["" if v.last is None or v.last.rung is None else str(v.last.rung) for v in views],
        "error": [_error(v) for v in views],
        "drift": [_verdict(v) for v in views],
    }
    shown = {h: c for h, c in cells.items() if (h != "space" or len(set(c)) > 1) and (h != "rung" or any(c))}
    if views:
        out.table(zip(*([printable(cell) for cell in c] for c in shown.values()), strict=True), list(shown), folds=2)
    else:
        out.say("no streams yet")
    lines = _to_do(views)
    lines += [
        f"{name}: what is kept is not sealed with this key; it is not shown, and not released" for name in refused
    ]
    for line in lines:
        out.say("{}", printable(line))


def _bits(v: StreamStatus) -> str:
    ceiling = None if v.about is None else v.about.ceiling
    return f"{v.stream.total:.2f}" + ("" if ceiling is None else f" of {ceiling:g}")


def _when(v: StreamStatus) -> str:
    last, about = v.stream.last_step, v.about
    if last is None:
        return "none"
    return str(last if about is None else about.grid.time(last, iso=about.grid.period_s is not None))


def _error(v: StreamStatus) -> str:
    from veilstream.control.drift import span

    found, about, limit = v.kept.felt.interval, v.about, v.limit
    if found is None:
        return ""
    unit = "" if about is None or not about.unit else f" {about.unit}"
    said = f"{'at least ' if v.outside else ''}{span(found)}{unit}"
    return said if limit is None else f"{said}, limit {limit.limit:.3g} {limit.verdict}"


def _verdict(v: StreamStatus) -> str:
    kept, drift = v.kept, v.drift
    if v.about is None:
        return "this version's gateway has not served it yet"
    lacks = _lacks(v.about)
    if drift is None or not drift.enough:
        units = counted(int(kept.loss.of), v.about.drift_unit.removesuffix("s"))
        so_far = f"{units}, {kept.loss.steps:,} transitions so far"
        return f"too little to say ({so_far})" + (f"; {lacks}" if lacks else "")
    return str(drift.same) if not lacks else f"{drift.same} ({lacks})"


def _lacks(about: Claims) -> str:
    """Figures that the policy's file lacks, so that drift cannot be judged by them."""
    missing = ["how well its chain foresaw later data"] if about.loss_fitted is None else []
    missing += ["what error releases had"] if about.felt_claimed is None else []
    return "" if not missing else f"the policy's file does not say {' or '.join(missing)}"


def _to_do(views: list[StreamStatus]) -> list[str]:
    lines = []
    for v in views:
        drift = v.drift
        if v.outside:
            lines.append(
                f"{v.stream.name}: readings lie outside the map of the model, and count as its nearest place; make it "
                "anew with veil refit MODEL NEW if that is to last."
            )
        if drift is not None and v.about is not None and drift.enough and (drift.moved or drift.farther):
            lines.append(
                f"{v.stream.name} HAS CHANGED: {drift.found(v.about.unit or 'units')}. Make the model anew with veil "
                "refit MODEL NEW and solve again into the same policy file; the store goes on counting."
            )
    return lines
