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
    from veilstream.gateway.owner import StreamStatus

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
    from veilstream.gateway.owner import is_store, look

    if not file.exists():
        raise InputError(f"no store or policy {str(file)!r}")
    if not is_store(file):
        beside = Path(f"{file}.db")
        if not beside.exists():
            raise InputError(f"{file} is no store, and there is none beside it ({beside.name}); name the store")
        file = beside
    return list(look(file))


def _on_nats(policy: Path, cluster: ClusterSpec) -> tuple[list[StreamStatus], list[str]]:
    from veilstream.gateway.owner import Claims

    need("nats", "nats")
    from veilstream.gateway.nats.owner import look

    about: dict[str, Claims] = {}
    for name, path in cluster.policies(policy).items():
        if not Path(path).is_file():
            raise InputError(f"no policy file {str(path)!r}")
        about[name] = Claims.of(StoreSpec(force=True).space_of(path))
    return look(cluster.worker(policy), about)


def _show(views: list[StreamStatus], refused: list[str]) -> None:
    out, rows = Terminal(), [_row(v) for v in views]
    out.say("PRIVATE: for the owner of the streams. Errors and drift are about true readings.", style="bold")
    several = len({row["space"] for row in rows}) > 1
    heads = [h for h in (rows or [{}])[0] if (h != "space" or several) and (h != "rung" or any(r[h] for r in rows))]
    if views:
        out.table([[printable(row[h]) for h in heads] for row in rows], heads, folds=2)
    else:
        out.say("no streams yet")
    unread = "what is kept is not sealed with this key; it is not shown, and not released"
    for line in [*_to_do(views), *(f"{name}: {unread}" for name in refused)]:
        out.say("{}", printable(line))


def _row(v: StreamStatus) -> dict[str, str]:
    from veilstream.control.drift import span

    about, last, seen, limit = v.about, v.stream.last_step, v.kept.felt.interval, v.limit
    ceiling = "" if about is None or about.ceiling is None else f" of {about.ceiling:g}"
    time = last if last is None or about is None else about.grid.time(last, iso=about.grid.period_s is not None)
    unit = "" if about is None or not about.unit else f" {about.unit}"
    error = "" if seen is None else f"{'at least ' if v.outside else ''}{span(seen)}{unit}"
    return {
        "space": v.stream.space,
        "stream": v.stream.name,
        "last step": "none" if time is None else str(time),
        "bits leaked": f"{v.stream.total:.2f}{ceiling}",
        "rung": "" if v.last is None or v.last.rung is None else str(v.last.rung),
        "error": error if limit is None or seen is None else f"{error}, limit {limit.limit:.3g} {limit.verdict}",
        "drift": _verdict(v),
    }


def _verdict(v: StreamStatus) -> str:
    loss, drift, about = v.kept.loss, v.drift, v.about
    if about is None:
        return "this version's gateway has not served it yet"
    missing = ["how well its chain foresaw later data"] if about.loss_fitted is None else []
    missing += ["what error releases had"] if about.felt_claimed is None else []
    lacks = f"the policy's file does not say {' or '.join(missing)}" if missing else ""
    if drift is not None and drift.enough:
        return f"{drift.same} ({lacks})" if lacks else str(drift.same)
    so_far = f"{counted(int(loss.of), about.drift_unit.removesuffix('s'))}, {loss.steps:,} transitions so far"
    return f"too little to say ({so_far})" + (f"; {lacks}" if lacks else "")


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
