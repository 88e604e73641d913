"""`veil forget`: what a gateway keeps of a person goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.errors import InputError, need
from veilstream.gateway.spec import ClusterSpec

if TYPE_CHECKING:
    from veilstream.gateway.owner import Forgotten

EXAMPLES = """
veil forget ann --store policy.veil.db              stop the gateway first, and start it again afterwards
veil forget ne/phone --store /var/lib/veil/veil.db --json
veil forget ann --nats nats://n1:4222 --nats-key policy.veil.key       workers may run
"""


def forget(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream, as its messages call it.")],
    store: Annotated[
        Path | None, typer.Option(help="The store of the gateway (POLICY.db unless it was given another).")
    ] = None,
    *,
    cluster: Annotated[ClusterSpec, Flags("nats", "nats_key", rest="prefix, ca, nats_creds, password_file")],
) -> Answer:
    """Remove a person from what a gateway keeps: memory, true states, waiting readings, log and outbox.

    Says what remains. Steps that were released stay closed and bits stay counted, so that nothing is drawn twice.
    """
    if (store is None) == (cluster.nats is None):
        raise InputError("say where: --store FILE, or --nats URL with --nats-key FILE")
    where, found, remains = _in_cluster(cluster, stream) if store is None else _in_store(store, stream)
    if not found:
        raise InputError(f"no stream {stream!r} in {where}: nothing was changed")

    def show() -> None:
        for gone in found:
            at = f" in the space {gone.space!r}" if gone.space else ""
            if gone.before:
                print(f"{stream!r} had been forgotten before{at}; what could be left was cleaned again")
                continue
            true = "the true state or readings kept of it, " if gone.private else ""
            print(
                f"forgotten{at}: {true}its memory, {gone.releases:,} releases in the log, {gone.unsent:,} messages "
                "that were not yet sent"
            )
            last = "" if gone.last_step is None else f" up to {gone.last_step}"
            print(f"its steps{last} stay closed, and {gone.leaked_bits:.2f} bits stay counted")
        print("what remains:")
        for line in remains:
            print(f"  - {line}")

    told = {"stream": stream, "where": where, "spaces": [f.to_json() for f in found], "remains": remains}
    return Answer(told, show)


def _in_store(path: Path, stream: str) -> tuple[str, list[Forgotten], Sequence[str]]:
    from contextlib import closing

    from veilstream.gateway.owner import REMAINS, forget
    from veilstream.gateway.records import StoreError
    from veilstream.gateway.store import Store

    if not path.is_file():
        raise InputError(f"no store {str(path)!r}; a gateway's is beside its policy, as POLICY.db")
    try:
        opened = Store(path, {}, idle=None)
    except StoreError as fault:
        if "in use" in str(fault):
            raise InputError(f"the store {path} is in use: stop the gateway, forget, and start it again") from None
        raise
    with closing(opened):
        return str(path), forget(opened, stream), REMAINS


def _in_cluster(cluster: ClusterSpec, stream: str) -> tuple[str, list[Forgotten], Sequence[str]]:

    if cluster.nats_key is None or not Path(cluster.nats_key).is_file():
        raise InputError("--nats-key FILE: the key of the workers is needed, POLICY.key unless they were given another")
    need("nats", "nats")
    from veilstream.gateway.nats.owner import REMAINS, forget

    settings = cluster.worker(cluster.nats_key)
    return settings.link.shown, forget(settings, stream), REMAINS
