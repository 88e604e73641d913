"""What the owner of the workers' memory may do while they run: look at it, PRIVATE, and forget a person.

It needs a worker's rights and the key. A look reads and never writes; a record that is not sealed with the key is not
shown, but said.

Forgetting is one compare-and-set, as every commit is. Her key is written anew with its last step and its bits alone;
the bucket keeps one revision a key, so the old one is gone. A worker that still has it in its cache is refused at its
next write, and reads. Her readings that wait and her releases are purged. Her name stays, as the name of the key: a key
that goes would be a second draw.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec

from veilstream.errors import InputError
from veilstream.gateway.nats.client import Link, Rejected, Request, Unavailable
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.layout import Layout, NatsSettings, bound
from veilstream.gateway.nats.ledger import Ledger
from veilstream.gateway.nats.names import Names, text, token
from veilstream.gateway.nats.session import AT_ONCE, keys_of
from veilstream.gateway.owner import Claims, Forgotten, StreamStatus
from veilstream.gateway.records import Batch, Key, Stream
from veilstream.gateway.wire import decode

ATTEMPTS = 10
REMAINS = (
    "what was released before is with whoever received it: nobody can take it back",
    "the name, its last step and its bits stay in the bucket, so that no step is drawn a second time and the meter is "
    "not reset",
    "a reading for a later step would go on from there: stop the device, or its stream begins again",
    "workers that run forget what they hold of it when they next look; disks of the cluster, its backups, and files "
    "made of her readings (models, policies, reports) are not touched: delete them",
)
T = TypeVar("T")


def look(settings: NatsSettings, claims: Mapping[str, Claims]) -> tuple[list[StreamStatus], list[str]]:
    """Every stream that is sealed with the key, beside what is claimed of its space; the names of the others."""
    return _run(settings, lambda link, ledger: _look(link, ledger, settings.names, claims))


def forget(settings: NatsSettings, stream: str) -> list[Forgotten]:
    """In every space of the bucket."""
    return _run(settings, lambda link, ledger: _forget(link, ledger, settings.names, stream))


def _run(settings: NatsSettings, work: Callable[[Link, Ledger], Coroutine[Any, Any, T]]) -> T:
    seal = Seal.of_file(settings.key_file, make=False)

    async def run() -> T:
        link = await Link.open(settings.link)
        try:
            return await work(link, Ledger(link, settings.names, seal, {}))
        except (Unavailable, Rejected) as error:
            raise InputError(f"NATS at {settings.link.shown}: {link.denied or error}") from None
        finally:
            await link.close()

    return asyncio.run(run())


async def _look(
    link: Link, ledger: Ledger, names: Names, claims: Mapping[str, Claims]
) -> tuple[list[StreamStatus], list[str]]:
    _, promises = await bound(link, Layout(names, 1, 1, ledger.seal))
    if promises is None:
        raise InputError(f"no worker has kept anything under the prefix {names.prefix!r} yet")
    views, refused = list[StreamStatus](), list[str]()
    for space, (_, _, ceiling, *_) in sorted(promises.items()):
        known = None if space not in claims else msgspec.structs.replace(claims[space], ceiling=ceiling)
        keys = sorted(await keys_of(link, names, space))
        for start in range(0, len(keys), AT_ONCE):
            loan = await ledger.lend(keys[start : start + AT_ONCE])
            refused += sorted(name for _, name in loan.refused)
            for _, record in sorted(loan.records.items()):
                _, last = record.log[-1] if record.log else (0, None)
                views.append(StreamStatus(record.stream, known, None if last is None else decode(last)))
    return views, refused


async def _forget(link: Link, ledger: Ledger, names: Names, stream: str) -> list[Forgotten]:
    subjects = f"$KV.{names.prefix}-memory.*.{token(stream)}"
    info = await link.api(f"STREAM.INFO.{names.memory}", subjects_filter=subjects)
    spaces = [text(subject.split(".")[-2]) for subject in info["state"].get("subjects") or {}]
    found = [await forget_key(link, ledger, names, (space, stream)) for space in spaces if space is not None]
    return [gone for gone in found if gone is not None]


async def forget_key(link: Link, ledger: Ledger, names: Names, key: Key) -> Forgotten | None:
    """None if there is nothing; raises unless it is done. What was read may be old: the write alone tells."""
    gone, missing = None, 0
    for _ in range(ATTEMPTS):
        loan = await ledger.lend([key])
        if key in loan.refused:
            raise InputError(
                f"what is kept of {key[1]!r} is not sealed with this key, or by another version: give the workers' "
                "own, `key_file=FILE`"
            )
        record = loan.records.get(key)
        if record is None or not record.revision:
            missing += record is not None
            continue
        s, n = record.stream, len(record.log)
        record.stream, record.log = Stream(*key, s.id, s.last_step, s.total), []
        gone = gone or Forgotten.of(s, n, 0, before=not n and s == record.stream)
        if not await ledger.commit(loan, Batch([record.stream])) and await _purge(link, names, key):
            return gone
    if missing == ATTEMPTS:
        return None
    raise InputError(f"the stream {key[1]!r} could not be forgotten: no answer, or workers were faster; run it again")


async def _purge(link: Link, names: Names, key: Key) -> bool:
    """Her readings that wait, and her releases; whether both are gone."""
    waiting = f"{names.prefix}.part.*.{token(key[0])}.{token(key[1])}"
    wanted = {names.readings: waiting, names.releases: names.release(*key)}
    asked: list[Request] = [
        (f"$JS.API.STREAM.PURGE.{stream}", msgspec.json.encode({"filter": subject}), None)
        for stream, subject in wanted.items()
    ]
    return all(isinstance(answer, dict) for answer in await link.ask(asked))
