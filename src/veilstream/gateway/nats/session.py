"""What a worker does with readings while it is connected.

    a batch of a partition -> draw -> compare-and-set every stream's key -> publish the releases with message ids

A release is published after it is committed, and a reading may be acknowledged after its release is published. A
worker that dies between two of these leaves its readings to another, which finds their releases in the log and
publishes the same ones with the same ids; the server drops what it has already.

Under a clock releases are published by the ticks alone: at the end of every step one release of every stream, by
whoever owns its partition, committed to the stream's key before it is published, as for readings. A worker that takes a
partition over does the ticks of the last seconds for it again: streams that have one get the same release published
once more under the same message id, the others get it now. Steps that pass while no worker runs are skipped for all
alike.
"""

import asyncio
import hashlib
import logging
import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec
from nats.aio.msg import Msg

from veilstream.gateway.core import Found, place_of
from veilstream.gateway.nats.client import Link, Rejected, Request, Unavailable
from veilstream.gateway.nats.layout import DUPLICATES_S, Layout
from veilstream.gateway.nats.ledger import MOST, Ledger
from veilstream.gateway.nats.membership import GONE_S, Members
from veilstream.gateway.nats.names import Names, partition_of, text, token
from veilstream.gateway.records import Key, Outcome, OutFormat, Status
from veilstream.gateway.scheduler import Scheduler
from veilstream.gateway.stats import Stats
from veilstream.gateway.wire import Reading, Refusal, decode

log = logging.getLogger("veilstream.nats")
ATTEMPTS, FIRST_PAUSE_S, GROWTH = 4, 0.02, 4  # to commit a stream; pauses are random, up to these
AT_ONCE = 512
TAKE_OVER_S = GONE_S + 2
TRY_S, AGAIN_S = 15.0, 0.1  # at least: an election must not cost a step; before the next try
LOOK_S = 0.5  # between looks at which partitions are ours
LIST_S = 10.0  # for a page of a bucket's keys
T = TypeVar("T")


class Mail(NamedTuple):
    """A release to be published, if the outcome has one."""

    key: Key
    step: int
    outcome: Outcome
    owntracks: bool = False


@dataclass(frozen=True)
class Session:
    """One connection of a worker and what hangs on it."""

    link: Link
    layout: Layout
    ledger: Ledger
    members: Members
    scheduler: Scheduler
    stats: Stats
    form: OutFormat = "auto"

    async def handle(self, messages: Sequence[Msg]) -> list[Msg]:
        """Release the readings of these messages, in this order; those that are done and may be acknowledged."""
        readings: list[Reading | Refusal] = []
        places = []  # of each message's in it
        for m in messages:
            start, found = len(readings), self._parse(m)
            readings += [found] if isinstance(found, Refusal) else found
            places.append(range(start, len(readings)))
        done: set[int] = set()
        stuck: set[Key] = set()
        for part in _parts(readings):
            part = [i for i in part if _key(readings[i]) not in stuck]
            committed = await self._commit(readings, part)
            mail = {
                i: Mail((r.space, r.stream), r.step, outcome, r.owntracks)
                for i, outcome in committed.items()
                if isinstance(r := readings[i], Reading) and not self.scheduler.serving.clock
            }
            done |= committed.keys() - await self.send(mail)
            stuck |= {key for i in part if i not in done and (key := _key(readings[i])) is not None}
        return [m for m, at in zip(messages, places, strict=True) if done.issuperset(at)]

    def _parse(self, m: Msg) -> Found:
        where = self.layout.names.parse(m.subject)
        if where is None or where[0] not in self.scheduler.spaces:
            return Refusal.stream
        return self.scheduler.read(m.data, *where)

    async def _commit(self, readings: Sequence[Reading | Refusal], part: list[int]) -> dict[int, Outcome]:
        """Outcomes that are committed. Streams whose write did not hold are read and drawn again, a few times."""
        done: dict[int, Outcome] = {}
        left = part
        for attempt in range(ATTEMPTS):
            keys = {key for i in left if (key := _key(readings[i])) is not None}
            loan = await self.ledger.lend(keys)
            failed = keys - loan.records.keys() - loan.refused
            these = [i for i in left if _key(readings[i]) not in failed]
            given = [Refusal.memory if _key(r := readings[i]) in loan.refused else r for i in these]
            room = self.scheduler.serving.max_streams - self.stats.streams
            outcomes, batch = self.scheduler.decide(given, loan.stream, loan.find, room)
            new = {s.key for s in batch.streams if s.id is None}
            failed |= await self.ledger.commit(loan, batch)
            self.stats.streams += len(new - failed)
            held = {i: o for i, o in zip(these, outcomes, strict=True) if _key(readings[i]) not in failed}
            self.stats.count(list(held.values()))
            done |= held
            left = [i for i in left if i not in held]
            if not left:
                break
            self.stats.store_errors += len(failed)
            await asyncio.sleep(FIRST_PAUSE_S * GROWTH**attempt * random.random())
        return done

    async def send(self, mail: Mapping[T, Mail]) -> set[T]:
        """Publish what was committed; those of which we do not know that they arrived."""
        requests: dict[T, Request] = {}
        for i, (key, step, outcome, owntracks) in mail.items():
            if outcome.message is not None:  # not silent, refused, or waiting for the clock
                number = ".".join([*map(token, key), str(step)])
                body = self.scheduler.spaces[key[0]].body(outcome.message, self.form, owntracks)
                requests[i] = self.layout.names.release(*key), body, {"Nats-Msg-Id": number}
        unsent = set()
        for i, answer in zip(requests, await self.link.ask(list(requests.values())), strict=True):
            if isinstance(answer, dict):
                self.stats.republished += bool(answer.get("duplicate"))
            else:
                unsent.add(i)
        return unsent

    async def unhandled(self, m: Msg, error: Exception) -> None:
        """A message that nothing can be done with: counted, and what may be kept of it kept where only workers read."""
        self.stats.count([Outcome(Refusal.unhandled)])
        reason = type(error).__name__  # not its words, which may quote the message
        log.error("message_unhandled", extra={"reason": reason})
        kept = {
            "reason": f"{reason} at {place_of(error)}",
            "length": len(m.data),
            "sha256": hashlib.sha256(m.data).hexdigest(),
            "subject": m.subject,
        }
        names = self.layout.names
        (answer,) = await self.link.ask([(names.unhandled_subject, msgspec.json.encode(kept), None)])
        if not isinstance(answer, dict):
            log.error("unhandled_not_kept", extra={"reason": str(answer)})


def _key(r: Reading | Refusal) -> Key | None:
    return (r.space, r.stream) if isinstance(r, Reading) else None


def _parts(readings: Sequence[Reading | Refusal]) -> list[list[int]]:
    """Readings in parts such that none has more of one stream than one commit may hold."""
    parts: list[list[int]] = []
    so_far: Counter[Key | None] = Counter()
    for i, r in enumerate(readings):
        key = _key(r)
        n = 0 if key is None else so_far[key] // MOST
        so_far[key] += 1
        while len(parts) <= n:
            parts.append([])
        parts[n].append(i)
    return parts


# --- the clock ---------------------------------------------------------------------------------------------


class Clock:
    def __init__(self, session: Session, space: str) -> None:
        self._session, self._space = session, space
        self._grid = session.scheduler.spaces[space].grid
        assert self._grid.period_s is not None
        self._back = math.ceil(TAKE_OVER_S / self._grid.period_s)  # steps that may pass until a death is noticed

    async def run(self) -> None:
        scheduler = self._session.scheduler
        step, served = scheduler.current_step(self._space), frozenset[int]()
        while True:
            mine = self._session.members.mine
            for missed in range(step - self._back, step) if mine - served else ():
                await self.tick(missed, mine - served)
            served = mine
            wait = self._ends(step) - scheduler.now()
            if wait > 0:
                await asyncio.sleep(min(wait, LOOK_S))
                continue
            await self.tick(step, mine)
            step = max(step + 1, scheduler.current_step(self._space) - self._back)

    def _ends(self, step: int) -> float:
        return float(self._grid.time(step + 1))

    async def tick(self, step: int, partitions: Collection[int]) -> None:
        """The release of `step` for every stream of these partitions.

        Tried until the next one is due; but what is committed is published, however long that takes.
        """
        now = self._session.scheduler.now
        if now() - self._ends(step) > DUPLICATES_S / 2:
            return  # long ago: nobody could tell a repeat any more
        until = max(self._ends(step + 1), now() + TRY_S)
        undone: list[Key] | None = None
        unsent: list[Key] = []
        while undone is None or undone or unsent:
            try:
                undone = await self._keys(partitions) if undone is None else undone
                keys = [*undone, *unsent]
                parts = [keys[i : i + AT_ONCE] for i in range(0, len(keys), AT_ONCE)]
                done = [await self._tick(step, part) for part in parts]
                undone, unsent = [k for d in done for k in d[0]], [k for d in done for k in d[1]]
            except (Unavailable, Rejected) as error:
                log.warning("tick_delayed", extra={"step": step, "reason": str(error)})
            if now() > until and (undone is None or undone):
                log.error("tick_failed", extra={"step": step, "streams": None if undone is None else len(undone)})
                undone = []
            if undone is None or undone or unsent:
                await asyncio.sleep(AGAIN_S)

    async def _keys(self, partitions: Collection[int]) -> list[Key]:
        layout = self._session.layout
        keys = await keys_of(self._session.link, layout.names, self._space)
        return [key for key in keys if partition_of(*key, layout.partitions) in partitions]

    async def _tick(self, step: int, keys: Sequence[Key]) -> tuple[list[Key], list[Key]]:
        """The streams that could not be committed, and those that were and may not be published."""
        session = self._session
        loan = await session.ledger.lend(keys)
        streams = [loan.stream(key) for key in loan.records]
        due = [s for s in streams if (s.last_step is None or s.last_step < step) and not loan.forgotten(s)]
        outcomes, batch = session.scheduler.tick(self._space, step, due)
        failed = await session.ledger.commit(loan, batch)
        done = {s.key: o for s, o in zip(due, outcomes, strict=True) if s.key not in failed}
        session.stats.count(list(done.values()))
        for s in streams:
            if s.key not in done and s.key not in failed:  # ticked by another, who may not have published it
                (message,) = loan.find(s, step) or (None,)
                if message is not None:
                    done[s.key] = Outcome(Status.repeated, decode(message), message)
        unsent = await session.send({key: Mail(key, step, o) for key, o in done.items()})
        unread = [k for k in keys if k not in loan.records and k not in loan.refused]
        return [*unread, *failed], list(unsent)


async def keys_of(link: Link, names: Names, space: str) -> list[Key]:
    """Every stream of the space that the bucket has."""
    keys, call, subjects = list[Key](), f"STREAM.INFO.{names.memory}", names.key(space, "") + "*"
    while True:
        info = await link.api(call, LIST_S, subjects_filter=subjects, offset=len(keys))
        found = [text(s.rpartition(".")[2]) for s in info["state"].get("subjects") or {}]
        keys += [(space, name) for name in found if name is not None]
        if not found or len(keys) >= info.get("total", 0):
            return keys
