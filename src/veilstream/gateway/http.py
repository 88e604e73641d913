"""The HTTP gateway: POST a reading, get its release; a status page on released data alone.

Listens on loopback unless told otherwise, and elsewhere only with a token; where there is a token every request for
data needs it, from wherever it comes. The page itself holds no data. On loopback without a token a foreign web page
in the same browser must not get in: the Host must be local and a POST must say it is JSON.
"""

import asyncio
import hmac
import ipaddress
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import resources

import msgspec
from aiohttp import web

from veilstream.errors import InputError
from veilstream.gateway.core import Core
from veilstream.gateway.openapi import document
from veilstream.gateway.outcome import Outcome, Status
from veilstream.gateway.store import StoreError
from veilstream.gateway.wire import Reading, Refusal, parse, together

log = logging.getLogger("veilstream.http")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY_TIMEOUT_S = 10
KEEP_ALIVE_S, SHUTDOWN_S = 30, 2
LOOK_S = 0.1  # at whether to stop
SHORTEST_TOKEN = 16
EVENT_EVERY_S = 1.0
MAX_WATCHERS = 32
PAGE = {
    "/": ("index.html", "text/html"),
    "/status.js": ("status.js", "text/javascript"),
    "/status.css": ("status.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
PUBLIC = {*PAGE, "/healthz", "/openapi.json"}  # nothing about any stream
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATUS = {Refusal.too_large: 413, Refusal.late: 409, Refusal.ahead: 409, Refusal.too_many_streams: 429}


@dataclass(frozen=True)
class HttpSettings:
    port: int
    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise InputError(f"listening on {self.host} needs a token (`token`)")
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise InputError(f"the token must have at least {SHORTEST_TOKEN} characters")


def is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class HttpGateway:
    def __init__(self, core: Core, settings: HttpSettings) -> None:
        self.core, self.settings = core, settings
        self.port: int | None = None  # the one really used, once it runs
        self.started = threading.Event()
        self._waiting: list[tuple[list[Reading | Refusal] | Refusal, asyncio.Future[list[Outcome]]]] = []
        self._wake = asyncio.Event()
        self._watchers = 0
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop`."""
        self._stop = stop
        asyncio.run(self._serve(stop))

    async def _serve(self, stop: threading.Event) -> None:
        runner = web.AppRunner(self.app(), access_log=None, keepalive_timeout=KEEP_ALIVE_S, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self.settings.host, self.settings.port)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise InputError(f"cannot listen on {self.settings.host}:{self.settings.port}: {error.strerror}") from None
        self.port = runner.addresses[0][1]
        log.info("http_listening", extra={"host": self.settings.host, "port": self.port})
        self.started.set()
        committer = asyncio.create_task(self._commit_waiting())
        while not stop.is_set():
            await asyncio.sleep(LOOK_S)
        await runner.cleanup()  # lets requests under way finish
        committer.cancel()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=self.core.serving.max_bytes)
        for path in PAGE:
            app.router.add_get(path, self._page)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/openapi.json", self._openapi)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/status", self._status)
        app.router.add_get("/v1/events", self._events)
        app.router.add_post("/v1/release", self._release)
        return app

    # --- who may ----------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            refusal = self._refusal(request)
            response = refusal if refusal is not None else await handler(request)
        except web.HTTPException as error:  # 404, 405, 413: aiohttp's own, with our headers
            response = _error(error.status, error.reason)
        except StoreError:
            response = _error(503, "the store cannot be written; nothing was released")
        except TimeoutError:
            response = _error(408, "the body did not arrive in time")
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        if self.settings.token is None:
            host = request.host.rsplit(":", 1)[0] if not request.host.endswith("]") else request.host
            if not is_loopback(request.remote) or not is_loopback(host.strip("[]")):
                return _error(401, "without a token only local requests are answered")
        elif request.path not in PUBLIC:
            given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
            if not hmac.compare_digest(given, self.settings.token.encode()):
                return _error(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
        if request.method == "POST" and request.content_type != "application/json":
            return _error(415, "the body must be application/json")
        return None

    # --- releases ---------------------------------------------------------------------------------------

    async def _release(self, request: web.Request) -> web.Response:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            body = await request.read()
        found = parse(body, self.core.spaces[""].grid, limit=self.core.serving.max_bytes)
        answer: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._waiting.append((found, answer))
        self._wake.set()
        outcomes = await answer
        if isinstance(found, Refusal):
            return _single(outcomes[0], found)
        return _json([_item(o) for o in outcomes]) if body.lstrip()[:1] == b"[" else _single(outcomes[0], found[0])

    async def _commit_waiting(self) -> None:
        """All requests that wait are one transaction."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            readings, places = together([found for found, _ in waiting])
            try:
                outcomes = (await asyncio.to_thread(self.core.process, readings)).outcomes
            except StoreError as error:
                for _, answer in waiting:
                    if not answer.done():
                        answer.set_exception(StoreError(str(error)))
                continue
            for (_, answer), at in zip(waiting, places, strict=True):
                if not answer.done():
                    answer.set_result([outcomes[i] for i in at])

    # --- looking ----------------------------------------------------------------------------------------

    async def _status(self, request: web.Request) -> web.Response:
        return _json(self.core.stats.status(self.core.spaces[""].ceiling))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: the status, once a second."""
        if self._watchers >= MAX_WATCHERS:
            return _error(503, "too many watchers")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **HEADERS})
        self._watchers += 1
        try:
            await response.prepare(request)
            while not self._stop.is_set():
                status = msgspec.json.encode(self.core.stats.status(self.core.spaces[""].ceiling))
                await response.write(b"data: " + status + b"\n\n")
                await asyncio.sleep(EVENT_EVERY_S)
        except ConnectionResetError:
            pass  # the watcher left
        finally:
            self._watchers -= 1
        return response

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.core.stats.prometheus(), content_type="text/plain", charset="utf-8")

    async def _health(self, request: web.Request) -> web.Response:
        """503 while the store cannot be written."""
        await asyncio.to_thread(self.core.probe)
        return _json({"status": "ok"})

    async def _openapi(self, request: web.Request) -> web.Response:
        return _json(document())

    async def _page(self, request: web.Request) -> web.Response:
        name, kind = PAGE[request.path]
        text = resources.files("veilstream.gateway.page").joinpath(name).read_text(encoding="utf-8")
        return web.Response(text=text, content_type=kind, charset="utf-8")


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


def _error(status: int, line: str, headers: dict[str, str] | None = None) -> web.Response:
    response = _json({"error": line}, status)
    response.headers.update(headers or {})
    return response


def _item(o: Outcome) -> object:
    if isinstance(o.status, Refusal):
        return {"refused": o.status.name, "error": o.status.value}
    if o.release is None:
        return {"waiting": True} if o.status is Status.waiting else {"released": None}
    return o.release


def _single(o: Outcome, r: Reading | Refusal) -> web.Response:
    if isinstance(o.status, Refusal):
        return _error(STATUS.get(o.status, 400), o.status.value)
    if o.release is None and isinstance(r, Reading):
        silent = {"stream": r.stream, "t": r.t, "released": None}
        return _json(silent, 202 if o.status is Status.waiting else 200)
    return _json(o.release)
