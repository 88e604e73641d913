"""`veil forget`: what a gateway keeps of a person goes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.gateway.forget import Forgotten
    from veilstream.gateway.nats.worker import NatsSettings

EXAMPLES = """
Examples:

  veil forget ann --store policy.veil.db              the gateway must not run; afterwards it may

  veil forget ne/phone --store /var/lib/veil/veil.db --json

  veil forget ann --nats nats://n1:4222 --nats-key policy.veil.key       workers may run
"""


def forget(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream, as its messages call it.")],
    store: Annotated[
        Path | None, typer.Option(help="The store of the gateway (POLICY.db unless it was given another).")
    ] = None,
    nats: Annotated[str | None, typer.Option(metavar="URL[,URL]", help="Instead: the cluster of the workers.")] = None,
    nats_key: Annotated[Path | None, typer.Option(help="Their key, which seals the memory.")] = None,
    nats_creds: Annotated[Path | None, typer.Option(help="Credentials file.")] = None,
    user: Annotated[str | None, typer.Option(help="User name at the cluster.")] = None,
    password_file: Annotated[Path | None, typer.Option(help="Its password (or VEIL_NATS_PASSWORD).")] = None,
    ca: Annotated[Path | None, typer.Option(help="Certificate authority of the cluster.")] = None,
    prefix: Annotated[str, typer.Option(help="Of subjects, streams and bucket.")] = "veil",
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Remove a person from what a gateway keeps: memory, true states, waiting readings, log and outbox.

    Says what remains. Steps that were released stay closed and bits stay counted, so that nothing is drawn twice.
    """
    from veilstream.apps.cli.common import print_json

    if (store is None) == (nats is None):
        raise InputError("say where: --store FILE, or --nats URL with --nats-key FILE")
    if store is not None:
        where, (found, remains) = str(store), _in_store(store, stream)
    else:
        if nats_key is None or not nats_key.is_file():
            raise InputError(
                "--nats-key FILE: the key of the workers is needed, POLICY.key unless they were given another"
            )
        from veilstream.apps.cli.common import need
        from veilstream.apps.cli.gateway_flags import Access, Cluster

        need("nats", "nats")
        told = Cluster(nats_creds=nats_creds, nats_key=nats_key, prefix=prefix)
        settings = told.settings(str(nats), Access(user=user, password_file=password_file, ca=ca), nats_key)
        where, (found, remains) = settings.link.shown, _in_cluster(settings, stream)
    if not found:
        raise InputError(f"no stream {stream!r} in {where}: nothing was changed")
    if json_out:
        kept = [f.to_json() for f in found]
        print_json({"stream": stream, "where": where, "spaces": kept, "remains": remains})
        return
    for gone in found:
        at = f" in the space {gone.space!r}" if gone.space else ""
        if gone.before:
            print(f"{stream!r} had been forgotten before{at}; what could be left was cleaned again")
            continue
        true = "the true state or readings kept of it, " if gone.private else ""
        print(
            f"forgotten{at}: {true}its memory, {gone.releases:,} releases in the log, {gone.unsent:,} messages that "
            "were not yet sent"
        )
        last = "" if gone.last_step is None else f" up to {gone.last_step}"
        print(f"its steps{last} stay closed, and {gone.leaked_bits:.2f} bits stay counted")
    print("what remains:")
    for line in remains:
        print(f"  - {line}")


def _in_store(path: Path, stream: str) -> "tuple[list[Forgotten], Sequence[str]]":
    from contextlib import closing

    from veilstream.gateway.forget import REMAINS, forget
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
        return forget(opened, stream), REMAINS


def _in_cluster(settings: "NatsSettings", stream: str) -> "tuple[list[Forgotten], Sequence[str]]":
    from veilstream.gateway.nats.owner import REMAINS, forget

    return forget(settings, stream), REMAINS
