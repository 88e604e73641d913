"""One partition as seen by one worker: pulling, and the order of its readings.

Readings of one stream are in one partition, and a partition has one owner at a time. When owners change
two may hold readings of it; then the later ones must wait, or a step would be closed before its reading is seen. The
server numbers its deliveries: no gap since our last one means that nobody else was given anything. With a gap we ask
how many deliveries are not acknowledged and go on when we hold all of them. What a dead worker held comes to us after
the acknowledgement time.
"""

import asyncio
import random
import threading
import time
from typing import TYPE_CHECKING

from veilstream.gateway.jetstream.layout import ACK_WAIT_S, BATCH
from veilstream.gateway.jetstream.link import Msg, Puller, Rejected, Unavailable

if TYPE_CHECKING:
    from veilstream.gateway.jetstream.worker import NatsGateway

IDLE_S = 1.0  # a pull waits that long for a reading


class Partition:
    """One partition as seen by one worker: at work when it is ours."""

    def __init__(self, gateway: "NatsGateway", number: int, stop: threading.Event) -> None:
        self._g, self._number, self._stop = gateway, number, stop
        self._stream, self._consumer = gateway.names.readings, f"p{number}"
        self._puller = Puller(gateway.link, self._stream, self._consumer)
        self._held: dict[int, Msg] = {}  # by their number in the stream
        self._seen = -1  # the last delivery that is accounted for

    def _ours(self) -> bool:
        return not self._stop.is_set() and self._number in self._g.members.mine

    async def run(self) -> None:
        await self._puller.start()
        waiting_since = None
        while not self._stop.is_set():
            if not self._ours():
                await self._give_back()
                await self._g.members.change(IDLE_S / 2)
                continue
            try:
                self._add(await self._puller.pull(max(1, BATCH - len(self._held)), 0.0 if self._held else IDLE_S))
                if not self._held:
                    continue
                if await self._alone():
                    waiting_since = None
                    await self._work()
                    continue
                waiting_since = waiting_since or time.monotonic()
                if time.monotonic() - waiting_since > 2 * ACK_WAIT_S:  # two that wait for each other
                    await self._give_back(1 + 4 * random.random())
                    waiting_since = None
                await self._keep()
                await asyncio.sleep(0.1)
            except Unavailable:
                await asyncio.sleep(0.2)
        await self._give_back()

    def _add(self, messages: list[Msg]) -> None:
        for m in messages:
            self._held[_stream_number(m)] = m

    async def _alone(self) -> bool:
        """Whether all that is delivered and not acknowledged is in our hands."""
        new = sorted(n for m in self._held.values() if (n := _delivery_number(m)) > self._seen)
        if self._seen >= 0 and new == list(range(self._seen + 1, self._seen + 1 + len(new))):
            self._seen += len(new)
            return True
        try:
            info = await self._g.link.api(f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        except Rejected as error:
            raise Unavailable(str(error)) from None
        if info["num_ack_pending"] > len(self._held):
            return False
        self._seen = max([self._seen, *new])
        return True

    async def _work(self) -> None:
        """Until all we hold is done: what did not hold, or was not published, is tried again before anything newer."""
        while self._held and self._ours():
            finished = await self._g.handle([self._held[n] for n in sorted(self._held)])
            for m in finished:
                await self._g.link.tell(m.reply, b"+ACK")
                del self._held[_stream_number(m)]
            if self._held:
                await self._keep()
                await asyncio.sleep(0.1)

    async def _keep(self) -> None:
        """We are still at it: not yet to be given to another."""
        for m in self._held.values():
            await self._g.link.tell(m.reply, b"+WPI")

    async def _give_back(self, delay_s: float = 0.0) -> None:
        if self._held:
            answer = b'-NAK {"delay": %d}' % int(delay_s * 1e9) if delay_s else b"-NAK"
            for m in self._held.values():
                try:
                    await self._g.link.tell(m.reply, answer)
                except Unavailable:
                    break  # they come back after the acknowledgement time
            self._held.clear()
        self._seen = -1


def _stream_number(m: Msg) -> int:
    return int(_address(m)[0])


def _delivery_number(m: Msg) -> int:
    return int(_address(m)[1])


def _address(m: Msg) -> list[str]:
    """$JS.ACK.[domain.account.]stream.consumer.times.NUMBER.DELIVERY.time.pending[.token]"""
    parts = m.reply.split(".")
    return parts[5:7] if len(parts) == 9 else parts[7:9]
