"""Who else works, and who takes which partition. Soft: a wrong belief costs time, never a second draw.

Every worker says that it is there twice a second on PREFIX.workers (plain NATS, nothing is stored) and counts as gone
when it was not heard for two seconds. From the same set of names all compute the same owners.
"""

import asyncio
import contextlib
import hashlib
import os
import time
from collections import Counter
from collections.abc import Collection

from nats.aio.msg import Msg

from veilstream.gateway.nats.link import Link, Unavailable

EVERY_S, GONE_S = 0.5, 2.0
FIRST_CALLS = 2


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
    def __init__(self, link: Link, subject: str, partitions: int) -> None:
        self.id = os.urandom(6).hex()
        self._link, self._subject, self._partitions = link, subject, partitions
        self._heard: dict[str, float] = {}
        self.mine: frozenset[int] = frozenset()
        self._changed = asyncio.Event()

    @classmethod
    async def join(cls, link: Link, subject: str, partitions: int) -> "Members":
        """Listen for a while before taking anything."""
        members = cls(link, subject, partitions)
        await link.nc.subscribe(subject, cb=members._hear)
        for _ in range(FIRST_CALLS):
            await members._say(b"+")
            await asyncio.sleep(EVERY_S)
        return members

    async def _say(self, sign: bytes) -> None:
        await self._link.tell(self._subject, sign + self.id.encode())

    async def _hear(self, msg: Msg) -> None:
        who = msg.data[1:].decode(errors="replace")
        if msg.data[:1] == b"-":
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
                await self._say(b"+")
            await self.look()
            await asyncio.sleep(EVERY_S)

    async def change(self, timeout_s: float) -> None:
        """Wait until what is ours changes, or for a while."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)

    async def leave(self) -> None:
        with contextlib.suppress(Unavailable):
            await self._say(b"-")
