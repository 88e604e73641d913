"""Who may stay connected to the HTTP gateway: those who have shown a token are apart from those who have not.

unknown   one answer and no more, all of it within UNKNOWN_S, however slowly it is asked for or read. Where there are
          too many the oldest goes, so that a newcomer can show a token; those from this machine and from Home
          Assistant's proxy have slots of their own
known     for as long as they ask for something now and then; where there are too many, one more is answered and goes
"""

import asyncio
from collections.abc import Callable

from aiohttp import web

from veilstream.gateway.guard import HEADERS
from veilstream.gateway.wire import Refusal

UNKNOWN_S = 10
MOST_KNOWN, MOST_FAR, MOST_NEAR = 512, 256, 64  # together less than the 1,024 files that a process may have open

MOST_HEADERS, LONGEST_HEADER = 64, 4096  # aiohttp's own are a megabyte of them a connection


class Slots:
    def __init__(self, is_near: Callable[[str | None], bool]) -> None:
        self._is_near = is_near
        self._unknown: tuple[dict[HttpConnection, float], ...] = {}, {}  # since when: from afar, from near
        self._known: set[HttpConnection] = set()

    def enter(self, connection: "HttpConnection", address: str | None) -> None:
        near = self._is_near(address)
        pool = self._unknown[near]
        if len(pool) >= (MOST_NEAR if near else MOST_FAR):
            next(iter(pool)).end()
        pool[connection] = asyncio.get_running_loop().time()

    def keep(self, connection: web.RequestHandler, known: bool) -> bool:
        """Whether a connection may ask again; known: what it asks for now is for those with a token, and it has it."""
        assert isinstance(connection, HttpConnection)
        if known and len(self._known) < MOST_KNOWN and connection.transport is not None:
            self.leave(connection)
            self._known.add(connection)
        return connection in self._known

    def leave(self, connection: "HttpConnection") -> None:
        self._known.discard(connection)
        for pool in self._unknown:
            pool.pop(connection, None)

    def sweep(self) -> None:
        """Those that take too long end."""
        late = asyncio.get_running_loop().time() - UNKNOWN_S
        for connection in [c for pool in self._unknown for c, since in pool.items() if since < late]:
            connection.end()


class HttpConnection(web.RequestHandler):
    """One that has its slot."""

    __slots__ = ("_slots",)

    def __init__(self, slots: Slots, server: web.Server, keep_alive_s: float) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=keep_alive_s,
            access_log=None,  # type: ignore[arg-type]  # what it is for AppRunner
            max_headers=MOST_HEADERS,
            max_field_size=LONGEST_HEADER,
        )
        self._slots = slots

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._slots.enter(self, peer[0] if peer else None)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._slots.leave(self)
        super().connection_lost(exc)

    def end(self) -> None:
        """At once: what was not read of an answer is not waited for."""
        self._slots.leave(self)
        if isinstance(self.transport, asyncio.WriteTransport):
            self.transport.abort()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """What is no HTTP is not quoted."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun")
        line = "not HTTP" if status == 400 else Refusal.unhandled.value
        answer = web.json_response({"error": line}, status=status)
        answer.headers.update(HEADERS)
        answer.force_close()
        return answer
