"""Forgetting a person on a cluster: one compare-and-set, as every commit is, so that workers may run meanwhile.

Her key is written anew with its last step and its bits alone; the bucket keeps one revision a key, so the old one is
gone. A worker that still has it in its cache is refused at its next write, and reads. Her readings that wait and her
releases are purged. Her name stays, as the name of the key: a key that goes would be a second draw.
"""

import msgspec

from veilstream.errors import InputError
from veilstream.gateway.forget import Forgotten
from veilstream.gateway.nats.client import Link, Rejected, Request, Unavailable
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.layout import NO_KEY
from veilstream.gateway.nats.ledger import SCHEMA, body_of
from veilstream.gateway.nats.names import Names, text, token
from veilstream.gateway.records import Key, Stream, state_of

ATTEMPTS = 10
REMAINS = (
    "what was released before is with whoever received it: nobody can take it back",
    "the name, its last step and its bits stay in the bucket, so that no step is drawn a second time and the meter is "
    "not reset",
    "a reading for a later step would go on from there: stop the device, or its stream begins again",
    "workers that run forget what they hold of it when they next look; disks of the cluster, its backups, and files "
    "made of her readings (models, policies, reports) are not touched: delete them",
)


async def forget(link: Link, names: Names, seal: Seal, stream: str) -> list[Forgotten]:
    """In every space of the bucket."""
    subjects = f"$KV.{names.prefix}-memory.*.{token(stream)}"
    try:
        info = await link.api(f"STREAM.INFO.{names.memory}", subjects_filter=subjects)
    except (Rejected, Unavailable) as error:
        raise InputError(f"the memory of {names.prefix!r} cannot be read: {error}") from None
    spaces = [text(subject.split(".")[-2]) for subject in info["state"].get("subjects") or {}]
    found = [await forget_key(link, names, seal, (space, stream)) for space in spaces if space is not None]
    return [gone for gone in found if gone is not None]


async def forget_key(link: Link, names: Names, seal: Seal, key: Key) -> Forgotten | None:
    """None if there is nothing; raises unless it is done. What was read may be old: the write alone tells."""
    subject, gone, missing = names.key(*key), None, 0
    read: Request = (f"$JS.API.STREAM.MSG.GET.{names.memory}", msgspec.json.encode({"last_by_subj": subject}), None)
    for _ in range(ATTEMPTS):
        (answer,) = await link.ask([read])
        if not isinstance(answer, dict):
            missing += isinstance(answer, Rejected) and answer.err_code == NO_KEY
            continue
        policy, chain, kept, log = _opened(seal, subject, key, answer["message"])
        empty = Stream(*key, None, kept.last_step, kept.total)
        if gone is None:
            private = kept.state != -1 or kept.pending_step is not None or bool(kept.faults)
            before = state_of(kept) == state_of(empty) and not log
            gone = Forgotten(key[0], kept.last_step, kept.total, len(log), 0, private, before)
        body = body_of(policy, chain, empty, [])
        (answer,) = await link.ask([seal.record(subject, body, answer["message"]["seq"])])
        if isinstance(answer, dict) and await _purge(link, names, key):
            return gone
    if missing == ATTEMPTS:
        return None
    raise InputError(f"the stream {key[1]!r} could not be forgotten: no answer, or workers were faster; run it again")


def _opened(seal: Seal, subject: str, key: Key, message: dict[str, object]) -> tuple[str, str, Stream, list[object]]:
    body = seal.recorded(subject, message)
    if body is None:
        raise InputError(
            f"what is kept of {key[1]!r} is not sealed with this key: give the workers' own, `key_file=FILE`"
        )
    try:
        schema, policy, chain, state, log = msgspec.msgpack.decode(body)
        stream = Stream(*key, None, *state)
    except (msgspec.MsgspecError, TypeError, ValueError):
        schema = None
    if schema != SCHEMA:
        raise InputError(f"what is kept of {key[1]!r} was written by another version")
    return policy, chain, stream, log


async def _purge(link: Link, names: Names, key: Key) -> bool:
    """Her readings that wait, and her releases; whether both are gone."""
    waiting = f"{names.prefix}.part.*.{token(key[0])}.{token(key[1])}"
    wanted = {names.readings: waiting, names.releases: names.release(*key)}
    asked: list[Request] = [
        (f"$JS.API.STREAM.PURGE.{stream}", msgspec.json.encode({"filter": subject}), None)
        for stream, subject in wanted.items()
    ]
    return all(isinstance(answer, dict) for answer in await link.ask(asked))
