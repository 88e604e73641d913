"""One partition as seen by one worker: pulling, and the order of its readings.

Readings of one stream are in one partition, and a partition has one owner at a time. When owners change, or one wakes
from a long sleep, several may hold readings of it; then the later ones must wait, or a step would be closed before its
reading is seen. The server numbers its deliveries: no gap since our last one means that nobody else was given
anything. With a gap we ask the queue, which keeps a reading until it is acknowledged, for the first one of every stream
we hold, and take only what has none before it in other hands. What a dead worker held comes after the acknowledgement
time. There is no more doubt when we hold all that is delivered and not acknowledged.
"""

import asyncio
import logging
import math
import random
import threading
import time

import msgspec
from nats.aio.msg import Msg

from veilstream.errors import InputError
from veilstream.gateway.nats.client import NANOSECONDS, Puller, Rejected, Unavailable
from veilstream.gateway.nats.layout import ACK_WAIT_S, BATCH, NO_KEY, consumer, partition_consumer
from veilstream.gateway.nats.session import Session

log = logging.getLogger("veilstream.nats")
IDLE_S = 1.0  # a pull waits that long for a reading
AGAIN_S, UNAVAILABLE_S = 0.1, 0.2  # before the next try
LONGEST_S = 2.0  # and after many
PATIENCE_S = 3 * ACK_WAIT_S  # for readings in other hands


class Partition:
    """At work when it is ours; made by `open`."""

    def __init__(self, session: Session, puller: Puller, number: int, stop: threading.Event) -> None:
        self._session, self._puller, self._number, self._stop = session, puller, number, stop
        self._stream, self._consumer = session.layout.names.readings, consumer(number)
        self._held: dict[int, Msg] = {}  # by their number in the stream
        self._seen = -1  # the last delivery that is accounted for

    @classmethod
    async def open(cls, session: Session, number: int, stop: threading.Event) -> "Partition":
        puller = await Puller.open(session.link, session.layout.names.readings, consumer(number))
        return cls(session, puller, number, stop)

    def _ours(self) -> bool:
        return not self._stop.is_set() and self._number in self._session.members.mine

    async def run(self) -> None:
        waiting_since = None
        while not self._stop.is_set():
            if not self._ours():
                await self._give_back()
                await self._session.members.change(IDLE_S / 2)
                continue
            try:
                self._add(await self._puller.pull(max(1, BATCH - len(self._held)), 0.0 if self._held else IDLE_S))
                if self._puller.lost:
                    await self._mend()
                clear = await self._clear() if self._held else []
                if clear:
                    waiting_since = None
                    await self._work(clear)
                elif self._held:
                    waiting_since = waiting_since or time.monotonic()
                    if time.monotonic() - waiting_since > PATIENCE_S:
                        await self._give_back(random.random())
                        waiting_since = None
                    await self._keep()
                    await asyncio.sleep(AGAIN_S)
            except Unavailable:
                await asyncio.sleep(UNAVAILABLE_S)
        await self._give_back()

    async def _mend(self) -> None:
        """Nobody answers our pulls: the consumer is made again if it is gone. A stream that is gone is not."""
        self._seen = -1
        try:
            await partition_consumer(self._session.link, self._session.layout, self._number)
        except (Rejected, InputError) as error:
            log.error("consumer_unavailable", extra={"partition": self._number, "reason": str(error)})
            raise Unavailable(str(error)) from None
        await asyncio.sleep(UNAVAILABLE_S)

    def _add(self, messages: list[Msg]) -> None:
        for m in messages:
            number, delivery = _numbers(m)
            if delivery <= self._seen:
                self._seen = -1  # the consumer was made again, and counts from the start
            self._held[number] = m

    async def _clear(self) -> list[int]:
        """Those we hold that no reading of the same stream must precede; what is done already is dropped."""
        new = sorted(n for m in self._held.values() if (n := _numbers(m)[1]) > self._seen)
        if self._seen >= 0 and new == list(range(self._seen + 1, self._seen + 1 + len(new))):
            self._seen += len(new)
            return sorted(self._held)
        self._seen = -1
        try:
            info = await self._session.link.api(f"CONSUMER.INFO.{self._stream}.{self._consumer}")
        except Rejected as error:
            raise Unavailable(str(error)) from None
        clear = await self._first()
        if len(clear) == len(self._held) >= info["num_ack_pending"]:
            self._seen = info["delivered"]["consumer_seq"]  # all that was delivered until then is ours, or done
        return clear

    async def _first(self) -> list[int]:
        """Ask the queue what comes first of each stream, and after each reading that we hold."""
        by_subject: dict[str, list[int]] = {}
        clear, blocked = list[int](), set[str]()
        for n in sorted(self._held):
            subject = self._held[n].subject
            if self._session.layout.names.parse(subject) is None:
                clear.append(n)  # of no stream: it will be refused
            else:
                by_subject.setdefault(subject, []).append(n)
        asked = [  # each with where to look for it: from the start, or behind the one before
            (s, n, start)
            for s, held in by_subject.items()
            for n, start in zip(held, [1, *(n + 1 for n in held)], strict=False)
        ]
        call = f"$JS.API.STREAM.MSG.GET.{self._stream}"
        bodies = [msgspec.json.encode({"seq": start, "next_by_subj": subject}) for subject, _, start in asked]
        answers = await self._session.link.ask([(call, body, None) for body in bodies])
        for (subject, n, _), answer in zip(asked, answers, strict=True):
            gone = isinstance(answer, Rejected) and answer.err_code == NO_KEY
            found = answer["message"]["seq"] if isinstance(answer, dict) else math.inf if gone else -1
            if found > n:
                del self._held[n]  # acknowledged by another who had it, too
            elif found == n and subject not in blocked:
                clear.append(n)
            else:
                blocked.add(subject)  # an earlier one is in other hands
        return sorted(clear)

    async def _work(self, numbers: list[int]) -> None:
        """Until these are done: what did not hold, or was not published, is tried again before anything newer."""
        pause = AGAIN_S
        while numbers and self._ours():
            await self._handle([self._held[n] for n in numbers])
            left = [n for n in numbers if n in self._held]
            pause = AGAIN_S if len(left) < len(numbers) else min(2 * pause, LONGEST_S)
            numbers = left
            if numbers:
                await self._keep()
                await asyncio.sleep(pause)

    async def _handle(self, messages: list[Msg]) -> bool:
        """Whether all are done. One that cannot be handled costs itself: it is found by halves, in their order."""
        try:
            done = await self._session.handle(messages)
        except Unavailable:
            raise
        except Exception as error:
            if len(messages) > 1:
                half = len(messages) // 2
                return await self._handle(messages[:half]) and await self._handle(messages[half:])
            await self._session.unhandled(messages[0], error)
            await self._done(messages[0], b"+TERM")
            return True
        for m in done:
            await self._done(m, b"+ACK")
        return len(done) == len(messages)

    async def _done(self, m: Msg, word: bytes) -> None:
        await self._session.link.tell(m.reply, word)
        del self._held[_numbers(m)[0]]

    async def _keep(self) -> None:
        """We are still at it: not yet to be given to another."""
        for m in self._held.values():
            await self._session.link.tell(m.reply, b"+WPI")

    async def _give_back(self, delay_s: float = 0.0) -> None:
        if self._held:
            answer = b'-NAK {"delay": %d}' % int(delay_s * NANOSECONDS) if delay_s else b"-NAK"
            for m in self._held.values():
                try:
                    await self._session.link.tell(m.reply, answer)
                except Unavailable:
                    break  # they come back after the acknowledgement time
            self._held.clear()
        self._seen = -1


def _numbers(m: Msg) -> tuple[int, int]:
    """In the stream, and of the delivery: $JS.ACK.[domain.account.]stream.consumer.times.N.D.time.pending[.token]"""
    parts = m.reply.split(".")
    number, delivery = parts[5:7] if len(parts) == 9 else parts[7:9]
    return int(number), int(delivery)
