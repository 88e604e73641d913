"""One worker of the gateway on JetStream: its connection, and the tasks that work on it.

Partitions that are ours are pulled and acknowledged (`partition.py`), under a clock every space is ticked
(`session.Clock`); both release through the session.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Mapping

import msgspec
from nats.aio.msg import Msg

from veilstream.errors import InputError
from veilstream.gateway.nats.client import Link, Rejected, Unavailable
from veilstream.gateway.nats.layout import Foreign, Layout, NatsSettings, binding_of, bound, prepare, promises_of
from veilstream.gateway.nats.ledger import KEEP, MOST, Ledger
from veilstream.gateway.nats.membership import Members
from veilstream.gateway.nats.partition import Partition
from veilstream.gateway.nats.session import Clock, Session
from veilstream.gateway.scheduler import Scheduler, Serving
from veilstream.gateway.space import Space
from veilstream.gateway.stats import Stats

log = logging.getLogger("veilstream.nats")
WATCH_S = 2.0  # between looks at the bucket's policy and the number of streams
STOP_S = 0.05  # between looks at whether to stop
DRAIN_S = 10.0
LOG_ROW, USUAL_ROW = 1000, 100  # bytes that a release takes in a stream's key, at most and mostly
OWN_KEYS = 2  # of the bucket: policy and probe


class NatsGateway:
    def __init__(self, spaces: Mapping[str, Space], settings: NatsSettings, serving: Serving = Serving()) -> None:  # noqa: B008
        self.settings, self.stats = settings, Stats(0, [], serving.clock)
        self.scheduler = Scheduler(spaces, serving)
        self._promises = promises_of(spaces, serving.clock)
        self.healthy = True  # the memory can be written

    def probe(self) -> None:
        """Raises unless the server lets us in and can keep what is needed; makes what is missing."""
        asyncio.run(self._run(None))

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop`."""
        asyncio.run(self._run(stop))

    async def _run(self, stop: threading.Event | None) -> None:
        s = self.settings
        link = await Link.open(s.link)
        try:
            layout = await prepare(link, s, self._promises)
            if stop is not None:
                await self._serve(await self._open(link, layout), stop)
        finally:
            await link.close()

    async def _open(self, link: Link, layout: Layout) -> Session:
        for name, space in self.scheduler.spaces.items():
            if space.state_bytes + MOST * LOG_ROW > link.nc.max_payload:
                raise InputError(
                    f"the memory of a stream of {name!r} takes {space.state_bytes} bytes, too much for the server's "
                    f"max_payload of {link.nc.max_payload}"
                )
        bindings = {name: binding_of(space) for name, space in self.scheduler.spaces.items()}
        ledger = Ledger(link, layout.names, layout.seal, bindings, self.scheduler.serving.keep)
        await self._look(link)
        members = await Members.join(link, f"{layout.names.prefix}.workers", layout.partitions, layout.seal)
        return Session(link, layout, ledger, members, self.scheduler, self.stats, self.settings.form)

    async def _serve(self, session: Session, stop: threading.Event) -> None:
        async def tell_status(msg: Msg) -> None:
            await session.link.reply(msg, _status(session, self.healthy))

        link, layout, members = session.link, session.layout, session.members
        await link.nc.subscribe(f"{layout.names.prefix}.status", cb=tell_status)
        partitions = [await Partition.open(session, p, stop) for p in range(layout.partitions)]
        clocks = [Clock(session, space) for space in self.scheduler.spaces] if self.scheduler.serving.clock else []
        self.stats.connected = True
        shape = {"partitions": layout.partitions, "replicas": layout.replicas}
        log.info("serving", extra={"worker": members.id, **shape})
        side = _tasks(members.run(), self._watch(session), _until(stop, link), *(c.run() for c in clocks))
        work = _tasks(*(p.run() for p in partitions))
        try:
            await asyncio.wait([*side, *work], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await asyncio.wait(work, timeout=DRAIN_S)
            await members.leave()
        finally:
            self.stats.connected = False
            for task in [*side, *work]:
                task.cancel()
            found = await asyncio.gather(*side, *work, return_exceptions=True)
        for error in found:
            if isinstance(error, Exception):
                raise error
        log.info("left", extra={"conflicts": session.ledger.conflicts, "republished": self.stats.repeated})

    async def _look(self, link: Link) -> None:
        """Whether a record as large as they usually get can be written, and how many streams there are."""
        space = max(self.scheduler.spaces.values(), key=lambda s: s.state_bytes)
        size = space.state_bytes + (self.scheduler.serving.keep or KEEP) * USUAL_ROW
        try:
            await link.request((self.settings.names.probe, bytes(min(size, link.nc.max_payload)), None))
            info = await link.api(f"STREAM.INFO.{self.settings.names.memory}")
        except (Unavailable, Rejected) as error:
            if self.healthy:
                log.error("memory_unavailable", extra={"reason": str(error)})
            self.healthy = False
            return
        if not self.healthy:
            log.info("memory_available")
        self.healthy = True
        self.stats.streams = max(0, info["state"].get("num_subjects", 0) - OWN_KEYS)

    async def _watch(self, session: Session) -> None:
        """Other workers make streams, and one may bind the bucket to another policy: then this one must end."""
        foreign = False
        while True:
            await asyncio.sleep(WATCH_S)
            await self._look(session.link)
            try:
                found = (await bound(session.link, session.layout))[1]
            except (Unavailable, Rejected):
                continue
            except Foreign:  # somebody without the key wrote there: we go on with what we know
                if not foreign:
                    log.error("policy_refused", extra={"reason": "not sealed by us"})
                foreign = True
                continue
            foreign = False
            if found != self._promises:
                raise InputError("another worker has bound the memory to another policy or ceiling; this one ends")


def _tasks(*work: Coroutine[None, None, None]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(w) for w in work]


async def _until(stop: threading.Event, link: Link) -> None:
    while not stop.is_set():
        if link.nc.is_closed:
            raise InputError(f"the connection to NATS at {link.settings.shown} was closed for good")
        await asyncio.sleep(STOP_S)


def _status(session: Session, healthy: bool) -> bytes:
    """Counts and released data only, to whoever asks on PREFIX.status; every worker answers.

    Under a clock without what depends on whether readings came.
    """
    status = session.stats.status(None)
    status |= {"worker": session.members.id, "partitions": sorted(session.members.mine), "healthy": healthy}
    status |= {"republished": session.stats.republished, "forged_members": session.members.forged}
    if not session.stats.clock:
        status["conflicts"] = session.ledger.conflicts
    return msgspec.json.encode(status)
