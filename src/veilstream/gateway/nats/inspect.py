"""The owner's look at the memory of the workers, while they run. PRIVATE. It needs a worker's rights and the key.

It reads and never writes; a record that is not sealed with the key is not shown, but said.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from veilstream.errors import InputError
from veilstream.gateway.claims import Claims
from veilstream.gateway.inspect import StreamStatus
from veilstream.gateway.nats.client import Link, Rejected, Unavailable
from veilstream.gateway.nats.clock import AT_ONCE, keys_of
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.layout import Layout, bound
from veilstream.gateway.nats.ledger import Ledger
from veilstream.gateway.nats.worker import NatsSettings
from veilstream.gateway.records import Binding
from veilstream.gateway.wire import decode


def look(settings: NatsSettings, about: Mapping[str, Claims]) -> tuple[list[StreamStatus], list[str]]:
    """Every stream of these spaces that is sealed with the key; the names of the others."""
    if not Path(settings.key_file).is_file():
        raise InputError(f"there is no key in {settings.key_file}: the memory is for who has it (`key_file=FILE`)")
    return asyncio.run(_look(settings, about))


async def _look(settings: NatsSettings, about: Mapping[str, Claims]) -> tuple[list[StreamStatus], list[str]]:
    names, link = settings.names, await Link.open(settings.link)
    try:
        layout = Layout(names, 1, 1, Seal.of_file(settings.key_file))
        _, promises = await bound(link, layout)
        if promises is None:
            raise InputError(f"no worker has kept anything under the prefix {names.prefix!r} yet")
        bindings = {space: Binding(*said[:2]) for space, said in promises.items()}
        ledger, views, refused = Ledger(link, names, layout.seal, bindings), list[StreamStatus](), list[str]()
        for space, (_, _, ceiling, *_) in sorted(promises.items()):
            known = None if space not in about else msgspec.structs.replace(about[space], ceiling=ceiling)
            keys = sorted(await keys_of(link, names, space))
            for start in range(0, len(keys), AT_ONCE):
                loan = await ledger.lend(keys[start : start + AT_ONCE])
                refused += sorted(name for _, name in loan.refused)
                for key in sorted(loan.records):
                    record = loan.records[key]
                    _, last = record.log[-1] if record.log else (0, None)
                    views.append(StreamStatus(replace(record.stream), known, None if last is None else decode(last)))
        return views, refused
    except (Unavailable, Rejected) as error:
        raise InputError(f"NATS at {settings.link.shown}: {link.denied or error}") from None
    finally:
        await link.close()
