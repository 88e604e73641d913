"""Who may ask the HTTP gateway, who may stay connected to it, and what every answer says of itself.

loopback    without a token: from here, for a host that is here, and a POST must say it is JSON, so that no foreign
            web page in the same browser gets in
token       with one: every request for data needs it, from wherever it comes; a phone gives it as its password
ingress     Home Assistant's proxy, which has asked its user already: may look without a token, in a frame of its own
            pages; it may not post

Connections of those who have shown a token are apart from those who have not:

unknown   one answer and no more, all of it within UNKNOWN_S, however slowly it is asked for or read. Where there are
          too many the oldest goes, so that a newcomer can show a token; those from this machine and from Home
          Assistant's proxy have slots of their own
known     for as long as they ask for something now and then; where there are too many, one more is answered and goes
"""

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from aiohttp import web

from veilstream.errors import InputError
from veilstream.gateway.owntracks import phone_of
from veilstream.gateway.wire import Refusal

SHORTEST_TOKEN = 16
UNKNOWN_S = 10
MOST_KNOWN, MOST_FAR, MOST_NEAR = 512, 256, 64  # together less than the 1,024 files that a process may have open
MOST_HEADERS, LONGEST_HEADER = 64, 4096  # aiohttp's own are a megabyte of them a connection
OWN_PATH = re.compile(r"/(?!v1(/|$))[A-Za-z0-9_.~/-]*[A-Za-z0-9_.~-]")
SHOWN = ("/v1/status", "/v1/events")  # to an audience: its own
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
FRAMED = HEADERS["Content-Security-Policy"].replace("frame-ancestors 'none'", "frame-ancestors 'self'")


@dataclass(frozen=True)
class HttpSettings:
    port: int
    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    owntracks: str | None = None  # phones in HTTP mode POST to any path under this one
    ingress: str | None = None  # address of Home Assistant's proxy
    audiences: Mapping[str, str] = field(default_factory=dict, repr=False)  # the token of each: it shows its own alone

    def __post_init__(self) -> None:
        if self.owntracks is not None and not OWN_PATH.fullmatch(self.owntracks):
            raise InputError(f"`owntracks` must be a path, as /pub, and not under /v1, found {self.owntracks!r}")
        if self.ingress is not None and not _is_address(self.ingress):
            raise InputError(f"`ingress` must be the address of a proxy, as 172.30.32.2, found {self.ingress!r}")
        if not is_loopback(self.host) and not self.token and self.ingress is None:
            raise InputError(f"listening on {self.host} needs a token (`token`)")
        for token in (*([] if self.token is None else [self.token]), *self.audiences.values()):
            if len(token) < SHORTEST_TOKEN:
                raise InputError(f"the token must have at least {SHORTEST_TOKEN} characters")
        given = [self.token, *self.audiences.values()]
        if self.audiences and (self.token is None or len(set(given)) < len(given)):
            raise InputError("tokens of audiences need one for the owner too (`token_file`), and all must differ")


def is_loopback(host: str | None) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host or "").is_loopback)


def _is_address(text: str | None) -> bool:
    try:
        return bool(ipaddress.ip_address(text or ""))
    except ValueError:
        return False


class No(NamedTuple):
    status: int
    line: str
    headers: dict[str, str]


class Guard:
    def __init__(self, settings: HttpSettings, public: Collection[str]) -> None:
        """public: paths that tell nothing about any stream."""
        self.settings, self.public = settings, public

    def refusal(self, request: web.Request) -> No | None:
        if not self.looks_in(request) and (no := self._unknown(request)) is not None:
            return no
        if request.method == "POST" and request.content_type != "application/json":
            return No(415, "the body must be application/json", {})
        return None

    def _unknown(self, request: web.Request) -> No | None:
        if self.settings.token is None:
            host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
            if not is_loopback(request.remote) or not is_loopback(host.strip("[]")):
                return No(401, "without a token only local requests are answered", {})
        elif request.path not in self.public and not self.has_token(request) and not self._is_theirs(request):
            if not self._is_phone(request):
                return No(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
            if not self._is_token(phone_of(request.headers)[1]):
                return No(401, "the password must be the token", {"WWW-Authenticate": 'Basic realm="veilstream"'})
        return None

    def knows(self, request: web.Request) -> bool:
        """Whether a request that is not refused could be made only by who may."""
        return request.path not in self.public or self.has_token(request) or self.looks_in(request)

    def audience(self, request: web.Request) -> str | None:
        """Whose token a request has; None: of none."""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        said = given.encode("utf-8", "surrogateescape") if scheme.lower() == "bearer" else b""
        tokens = self.settings.audiences.items()
        return next((name for name, token in tokens if hmac.compare_digest(said, token.encode())), None)

    def _is_theirs(self, request: web.Request) -> bool:
        """An audience looks at what it may see."""
        return request.method == "GET" and request.path in SHOWN and self.audience(request) is not None

    def is_near(self, address: str | None) -> bool:
        return is_loopback(address) or (address is not None and address == self.settings.ingress)

    def looks_in(self, request: web.Request) -> bool:
        """Somebody looks at the page through Home Assistant."""
        return self.settings.ingress is not None and request.remote == self.settings.ingress and request.method == "GET"

    def has_token(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._is_token(given)

    def headers(self, request: web.Request) -> dict[str, str]:
        return {**HEADERS, "Content-Security-Policy": FRAMED} if self.looks_in(request) else HEADERS

    def _is_token(self, given: str) -> bool:
        said = given.encode("utf-8", "surrogateescape")
        return self.settings.token is not None and hmac.compare_digest(said, self.settings.token.encode())

    def _is_phone(self, request: web.Request) -> bool:
        path = self.settings.owntracks
        return path is not None and (request.path == path or request.path.startswith(path + "/"))


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
