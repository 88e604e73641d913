"""Releases sent on by HTTP POST: to an OwnTracks recorder, to Traccar, to Home Assistant's webhook.

Every release is put into the outbox by the transaction that makes it, and leaves it when the receiver has answered 2xx:
at least once, in order for each stream, through kills of either side. Nothing but releases is ever in there. While the
receiver cannot be reached everything waits; a message that it calls wrong (400, 413, 422) costs that message.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from veilstream.errors import InputError
from veilstream.gateway.core import Core
from veilstream.gateway.owntracks import user_and_device
from veilstream.gateway.records import FORWARD, OutFormat, Outgoing, StoreError, Told

log = logging.getLogger("veilstream.forward")
AT_ONCE = 8  # streams
TIMEOUT_S = 10.0
FIRST_DELAY_S, LAST_DELAY_S = 0.2, 60.0
IDLE_S = 0.5  # at whether to stop
MOST_ANSWER = 1 << 16  # bytes of an answer that are read, and thrown away
WRONG = {400, 413, 422}
Mail = tuple[int, str, bytes]  # of the outbox: id, stream, payload


@dataclass(frozen=True)
class ForwardSettings:
    url: str = field(repr=False)  # it may hold a password, or be a secret itself
    form: OutFormat = "auto"  # plain, else OwnTracks for places

    def __post_init__(self) -> None:
        try:
            url = URL(self.url)
            fits = url.scheme in ("http", "https") and bool(url.host) and url.port is not None
        except ValueError:
            fits = False
        if not fits:
            raise InputError("`forward` must be a URL, as http://host:8083/pub")


class Forwarder:
    """An outlet of the core, and the thread that empties its part of the outbox."""

    def __init__(self, core: Core, settings: ForwardSettings) -> None:
        self.core, self.settings = core, settings
        self.sent = self.wrong = 0
        self._there = threading.Event()

    def compose(self, told: Sequence[Told]) -> list[Outgoing]:
        spaces, form = self.core.spaces, self.settings.form
        own = self.core.scheduler.own  # an audience has its topic or token; the same stream twice would be mixed up
        shown = [(s, message) for s, message in told if message is not None and s.space in own]
        return [
            (s.name, FORWARD, spaces[s.space].body(message, form, owntracks=True, topic=True)) for s, message in shown
        ]

    def wake(self) -> None:
        self._there.set()

    def run(self, stop: threading.Event) -> None:
        """Send until `stop`; what is left then goes at the next start."""
        asyncio.run(self._serve(stop))

    async def _serve(self, stop: threading.Event) -> None:
        delay = FIRST_DELAY_S
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
            while not stop.is_set():
                self._there.clear()
                try:
                    mail = await asyncio.to_thread(self.core.unsent, 0, True)
                    trouble = await self._send(session, mail)
                except StoreError:
                    trouble = "store"
                if trouble is None:
                    delay = FIRST_DELAY_S
                    while not (mail or stop.is_set() or await asyncio.to_thread(self._there.wait, IDLE_S)):
                        pass
                    continue
                log.warning("forward_waits", extra={"reason": trouble, "retry_s": delay})
                await asyncio.to_thread(stop.wait, delay)
                delay = min(2 * delay, LAST_DELAY_S)

    async def _send(self, session: aiohttp.ClientSession, mail: Sequence[Mail]) -> str | None:
        """Several streams at once, each in order; why some of it must wait, or None."""
        queues: dict[str, list[Mail]] = {}
        for row in mail:
            queues.setdefault(row[1], []).append(row)
        done: list[int] = []
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(queue: Sequence[Mail]) -> str | None:
            async with at_once:
                for i, stream, payload in queue:
                    trouble = await self._post(session, stream, payload)
                    if trouble is not None:
                        return trouble
                    done.append(i)
            return None

        try:
            troubles = await asyncio.gather(*(one(queue) for queue in queues.values()))
        finally:
            if done:
                await asyncio.to_thread(self.core.confirm, done)
        return next((t for t in troubles if t is not None), None)

    async def _post(self, session: aiohttp.ClientSession, stream: str, payload: bytes) -> str | None:
        user, device = user_and_device(stream)
        headers = {"Content-Type": "application/json", "X-Limit-U": user, "X-Limit-D": device}
        try:
            async with session.post(self.settings.url, data=payload, headers=headers, allow_redirects=False) as answer:
                await answer.content.read(MOST_ANSWER)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return type(error).__name__  # not its words, which may quote the URL
        if 200 <= status < 300:
            self.sent += 1
        elif status in WRONG:
            self.wrong += 1
            log.warning("forward_refused", extra={"status": status})
        else:
            return f"status {status}"
        return None
