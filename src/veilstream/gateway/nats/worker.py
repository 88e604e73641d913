"""One worker of the gateway on JetStream.

    pull a batch of a partition -> draw -> compare-and-set every stream's key -> publish the releases with message ids
    -> acknowledge the readings

A reading is acknowledged after its release is published, a release is published after it is committed. A worker that
dies between two of these leaves its readings to another, which finds their releases in the log and publishes the same
ones with the same ids; the server drops what it has already.
"""

import asyncio
import logging
import random
import threading
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from veilstream.errors import InputError
from veilstream.gateway.nats.clock import Clock
from veilstream.gateway.nats.layout import Layout, binding_of, bound, prepare, promises_of
from veilstream.gateway.nats.ledger import MOST, Ledger
from veilstream.gateway.nats.link import Link, LinkSettings, Msg, Rejected, Request, Unavailable, read
from veilstream.gateway.nats.members import Members
from veilstream.gateway.nats.names import Names, token
from veilstream.gateway.nats.partition import Partition
from veilstream.gateway.outcome import Outcome, OutFormat, body
from veilstream.gateway.settle import Key, Settler
from veilstream.gateway.space import Space
from veilstream.gateway.stats import Stats
from veilstream.gateway.wire import MAX_BYTES, Reading, Refused, parse

log = logging.getLogger("veilstream.nats")
LOOK_S = 2.0  # between looks at the bucket's policy and the number of streams
ATTEMPTS = 4
DRAIN_S = 10.0


class NatsGateway:
    def __init__(
        self,
        spaces: Mapping[str, Space],
        settings: LinkSettings,
        names: Names = Names(),  # noqa: B008  # frozen
        *,
        partitions: int | None = None,
        replicas: int | None = None,
        rebind: bool = False,
        form: OutFormat = "auto",
        keep: int | None = None,
        max_ahead: int | None = None,
        clock: bool = False,
        max_streams: int = 1_000_000,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.settings, self.names, self.form = settings, names, form
        self.settler = Settler(spaces, max_ahead=max_ahead, clock=clock)
        self.bindings = {name: binding_of(s) for name, s in spaces.items()}
        self.promises = promises_of(spaces, clock)
        self._layout = {"partitions": partitions, "replicas": replicas, "rebind": rebind}
        self.keep, self.max_streams, self.max_bytes = keep, max_streams, max_bytes
        self.stats = Stats(0, [])

    def probe(self) -> None:
        """Raises unless the server lets us in and can keep what is needed; makes what is missing."""
        asyncio.run(self._run(None))

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop`."""
        asyncio.run(self._run(stop))

    async def _run(self, stop: threading.Event | None) -> None:
        link = Link(self.settings)
        await link.connect()
        try:
            layout = await prepare(link, self.names, self.promises, **self._layout)  # type: ignore[arg-type]
            if stop is not None:
                await self._serve(link, layout, stop)
        finally:
            await link.close()

    async def _serve(self, link: Link, layout: Layout, stop: threading.Event) -> None:
        self.link, self.layout = link, layout
        for name, space in self.settler.spaces.items():
            if space.state_bytes + MOST * 1000 > link.nc.max_payload:
                raise InputError(
                    f"the memory of a stream of {name!r} takes {space.state_bytes} bytes, too much for the server's "
                    f"max_payload of {link.nc.max_payload}"
                )
        self.ledger = Ledger(link, self.names, self.bindings, self.keep)
        self.members = Members(link, f"{self.names.prefix}.workers", layout.partitions)
        await self._look()
        await self.members.start()
        await link.nc.subscribe(f"{self.names.prefix}.status", cb=self._tell_status)
        self.stats.connected = True
        shape = {"partitions": layout.partitions, "replicas": layout.replicas}
        log.info("serving", extra={"worker": self.members.id, **shape})
        side = [asyncio.create_task(self.members.run()), asyncio.create_task(self._watch())]
        if self.settler.clock:
            side += [asyncio.create_task(Clock(self, space).run()) for space in self.settler.spaces]
        work = [asyncio.create_task(Partition(self, p, stop).run()) for p in range(layout.partitions)]
        ended = asyncio.create_task(_until(stop, link))
        try:
            await asyncio.wait([ended, *side, *work], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await asyncio.wait(work, timeout=DRAIN_S)
            await self.members.leave()
        finally:
            self.stats.connected = False
            for task in [*side, *work, ended]:
                task.cancel()
            found = await asyncio.gather(*side, *work, ended, return_exceptions=True)
        for error in found:
            if isinstance(error, Exception):
                raise error
        log.info("left", extra={"conflicts": self.ledger.conflicts, "republished": self.stats.repeated})

    # --- readings --------------------------------------------------------------------------------------

    async def handle(self, messages: Sequence[Msg]) -> list[Msg]:
        """Release the readings of these messages, in this order; those that are done and may be acknowledged."""
        readings: list[Reading | Refused] = []
        spans: list[tuple[int, int]] = []
        for m in messages:
            start = len(readings)
            found = self._parse(m)
            readings += [found] if isinstance(found, Refused) else found
            spans.append((start, len(readings)))
        done: dict[int, Outcome] = {}
        stuck: set[Key] = set()
        for part in _parts(readings):
            part = [i for i in part if _key(readings[i]) not in stuck]
            settled = await self._settle(readings, part)
            unsent = await self._publish(readings, settled)
            done |= {i: o for i, o in settled.items() if i not in unsent}
            stuck |= {key for i in part if i not in done and (key := _key(readings[i])) is not None}
        return [m for m, span in zip(messages, spans, strict=True) if all(i in done for i in range(*span))]

    def _parse(self, m: Msg) -> "list[Reading | Refused] | Refused":
        where = self.names.parse(m.subject)
        if where is None or where[0] not in self.settler.spaces:
            return Refused.stream
        space, stream = where
        return parse(m.data, self.settler.spaces[space].grid, stream, space, self.max_bytes)

    async def _settle(self, readings: Sequence[Reading | Refused], part: list[int]) -> dict[int, Outcome]:
        """Outcomes that are committed. Streams whose write did not hold are read and drawn again, a few times."""
        done: dict[int, Outcome] = {}
        left = part
        for attempt in range(ATTEMPTS):
            keys = {key for i in left if (key := _key(readings[i])) is not None}
            with self.stats.commit_time():
                entries = await self.ledger.take(keys)
                unread = keys - entries.keys()
                these = [i for i in left if _key(readings[i]) not in unread]
                room = self.max_streams - self.stats.streams
                outcomes, batch = self.settler.settle(
                    [readings[i] for i in these], entries.__getitem__, self.ledger.find, room
                )
                new = {(s.space, s.name) for s in batch.streams if s.id is None}
                failed = await self.ledger.commit(batch)
            for key in entries.keys() - {(s.space, s.name) for s in batch.streams}:
                self.ledger.put_back(entries[key])  # nothing was released: repeats and refusals only
            self.stats.streams += len(new - failed)
            held = {i: o for i, o in zip(these, outcomes, strict=True) if _key(readings[i]) not in failed}
            self.stats.count(list(held.values()))
            done |= held
            left = [i for i in left if i not in held]
            if not left:
                break
            self.stats.store_errors += len(failed | unread)
            await asyncio.sleep(0.02 * 4**attempt * random.random())
        return done

    async def _publish(self, readings: Sequence[Reading | Refused], settled: Mapping[int, Outcome]) -> set[int]:
        """Publish what was committed; the places of those of which we do not know that they arrived."""
        places, releases = [], []
        for i, outcome in settled.items():
            r = readings[i]
            if isinstance(r, Reading):
                places.append(i)
                releases.append(((r.space, r.stream), r.step, r.owntracks, outcome))
        return {places[k] for k in await self.send(releases)}

    async def send(self, releases: Sequence[tuple[Key, int, bool, Outcome]]) -> set[int]:
        """Publish releases (stream, step, asked as OwnTracks); those of which we do not know that they arrived."""
        requests: list[Request] = []
        places = []
        for i, ((space, stream), step, owntracks, outcome) in enumerate(releases):
            if outcome.release is None:
                continue  # silent, refused, or waiting for the clock
            number = f"{token(space)}.{token(stream)}.{step}"
            payload = body(self.form, owntracks, outcome.release, outcome.message)
            requests.append((self.names.release(space, stream), payload, {"Nats-Msg-Id": number}))
            places.append(i)
        unsent = set()
        for i, answer in zip(places, await self.link.ask(requests), strict=True):
            try:
                self.stats.republished += bool(read(answer).get("duplicate"))
            except (Unavailable, Rejected):
                unsent.add(i)
        return unsent

    # --- beside the readings ---------------------------------------------------------------------------

    async def _look(self) -> None:
        info = await self.link.api(f"STREAM.INFO.{self.names.memory}")
        self.stats.streams = max(0, info["state"].get("num_subjects", 1) - 1)  # one key is the policy's

    async def _watch(self) -> None:
        """Other workers make streams, and one may bind the bucket to another policy: then this one must end."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
                found = (await bound(self.link, self.names))[1]
            except (Unavailable, Rejected) as error:
                log.warning("memory_unavailable", extra={"reason": str(error)})
                continue
            if found != self.promises:
                raise InputError("another worker has bound the memory to another policy or ceiling; this one ends")

    async def _tell_status(self, msg: Msg) -> None:
        """Counts and released data only, to whoever asks on PREFIX.status; every worker answers."""
        if msg.reply:
            status = self.stats.status(None)
            status |= {"worker": self.members.id, "partitions": sorted(self.members.mine)}
            status |= {"conflicts": self.ledger.conflicts, "republished": self.stats.republished}
            await self.link.tell(msg.reply, msgspec.json.encode(status))

    def close(self) -> None:
        """The connection ends with `run`."""


async def _until(stop: threading.Event, link: Link) -> None:
    while not stop.is_set():
        if link.closed.is_set():
            raise InputError(f"the connection to NATS at {link.settings.shown} was closed for good")
        await asyncio.sleep(0.05)


def _key(r: Reading | Refused) -> Key | None:
    return (r.space, r.stream) if isinstance(r, Reading) else None


def _parts(readings: Sequence[Reading | Refused]) -> list[list[int]]:
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
