"""Who else works, and who takes which partition. Soft: a wrong belief costs time, never a second draw.

Every worker says that it is there twice a second on PREFIX.workers (plain NATS, nothing is stored) and counts as gone
when it was not heard for two seconds. From the same set of names all compute the same owners. What it says is sealed
and dated: a member that somebody invented, or repeated, would be given partitions that nobody serves.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Collection

from nats.aio.msg import Msg

from veilstream.gateway.nats.client import Link, Unavailable
from veilstream.gateway.nats.integrity import Seal

log = logging.getLogger("veilstream.nats")
EVERY_S, GONE_S = 0.5, 2.0
FIRST_CALLS = 2
REMEMBERED = 1000  # workers whose last word is known


def owners(partitions: int, workers: Collection[str]) -> list[str]:
    """The owner of each partition: by highest hash, none with more than its share, few moves when workers change."""
    share = -(-partitions // len(workers))
    load: Counter[str] = Counter()
    out = []
    for p in range(partitions):
        free = [w for w in workers if load[w] < share]
        best = max(free, key=lambda w: hashlib.sha256(f"{p}/{w}".encode()).digest())
        load[best] += 1
        out.append(best)
    return out


class Members:
    def __init__(self, link: Link, subject: str, partitions: int, seal: Seal) -> None:
        self.id = os.urandom(6).hex()
        self.forged = 0  # calls that are no worker's
        self._link, self._subject, self._partitions, self._seal = link, subject, partitions, seal
        self._heard: dict[str, float] = {}
        self._last: OrderedDict[str, int] = OrderedDict()  # when each spoke, by its own clock
        self.mine: frozenset[int] = frozenset()
        self._changed = asyncio.Event()

    @classmethod
    async def join(cls, link: Link, subject: str, partitions: int, seal: Seal) -> "Members":
        """Listen for a while before taking anything."""
        members = cls(link, subject, partitions, seal)
        await link.nc.subscribe(subject, cb=members._hear)
        for _ in range(FIRST_CALLS):
            await members._say("+")
            await asyncio.sleep(EVERY_S)
        return members

    async def _say(self, sign: str) -> None:
        body = f"{sign} {self.id} {time.time_ns()}".encode()
        await self._link.tell(self._subject, self._seal.put(self._subject, body))

    def _read(self, data: bytes) -> tuple[str, str] | None:
        """Sign and worker; None for what no worker said, or said before."""
        body = self._seal.open(self._subject, data)
        if body is not None:
            sign, who, at = body.decode().split()
            if int(at) > self._last.get(who, 0):
                self._last[who] = int(at)
                self._last.move_to_end(who)
                if len(self._last) > REMEMBERED:
                    self._last.popitem(last=False)
                return sign, who
        if not self.forged:
            log.error("member_refused", extra={"reason": "not sealed by us" if body is None else "repeated"})
        self.forged += 1
        return None

    async def _hear(self, msg: Msg) -> None:
        found = self._read(msg.data)
        if found is None:
            return
        sign, who = found
        if sign == "-":
            self._heard.pop(who, None)
            await self.look()
        elif who not in self._heard:
            self._heard[who] = time.monotonic()
            await self.look()
        else:
            self._heard[who] = time.monotonic()

    async def look(self) -> None:
        """Work out again what is ours."""
        limit = time.monotonic() - GONE_S
        self._heard = {w: at for w, at in self._heard.items() if at >= limit}
        workers = {self.id, *self._heard}
        mine = frozenset(p for p, w in enumerate(owners(self._partitions, sorted(workers))) if w == self.id)
        if mine != self.mine:
            self.mine = mine
            self._changed.set()
            self._changed = asyncio.Event()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(Unavailable):  # the others will see to our partitions
                await self._say("+")
            await self.look()
            await asyncio.sleep(EVERY_S)

    async def change(self, timeout_s: float) -> None:
        """Wait until what is ours changes, or for a while."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)

    async def leave(self) -> None:
        with contextlib.suppress(Unavailable):
            await self._say("-")
