"""`veil forget`: what a gateway keeps of a person goes."""

from pathlib import Path
from typing import Annotated

import typer

from veilstream.errors import InputError

EXAMPLES = """
Examples:

  veil forget ann --store policy.veil.db              the gateway must not run; afterwards it may

  veil forget ne/phone --store /var/lib/veil/veil.db --json
"""


def forget(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream, as its messages call it.")],
    store: Annotated[Path, typer.Option(help="The store of the gateway (POLICY.db unless it was told another).")],
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Remove a person from a gateway's store: memory, true states, waiting readings, log and outbox.

    Says what remains. Steps that were released stay closed and bits stay counted, so that nothing is drawn twice.
    """
    from contextlib import closing

    from veilstream.apps.cli.common import print_json
    from veilstream.gateway.forget import REMAINS
    from veilstream.gateway.forget import forget as run
    from veilstream.gateway.kept import StoreError
    from veilstream.gateway.store import Store

    if not store.is_file():
        raise InputError(f"no store {str(store)!r}; a gateway's is beside its policy, as POLICY.db")
    try:
        opened = Store(store, {}, idle=None)
    except StoreError as fault:
        if "in use" in str(fault):
            raise InputError(f"the store {store} is in use: stop the gateway, forget, and start it again") from None
        raise
    with closing(opened):
        found = run(opened, stream)
    if not found:
        raise InputError(f"no stream {stream!r} in {store}: nothing was changed")
    if json_out:
        print_json({"stream": stream, "store": str(store), "spaces": [f.to_json() for f in found], "remains": REMAINS})
        return
    for gone in found:
        where = f" in the space {gone.space!r}" if gone.space else ""
        if gone.before:
            print(f"{stream!r} had been forgotten before{where}; the files were cleaned again")
            continue
        true = "the true state or readings kept of it, " if gone.private else ""
        print(
            f"forgotten{where}: {true}its memory, {gone.releases:,} releases in the log, {gone.unsent:,} messages that "
            "were not yet sent"
        )
        last = "" if gone.last_step is None else f" up to {gone.last_step}"
        print(f"its steps{last} stay closed, and {gone.leaked_bits:.2f} bits stay counted")
    print("what remains:")
    for line in REMAINS:
        print(f"  - {line}")
