"""The HTTP gateway: POST a reading, get its release; a status page on released data alone.

Listens on loopback unless told otherwise, and elsewhere only with a token; where there is a token every request for
data needs it, from wherever it comes. The page itself holds no data. On loopback without a token a foreign web page
in the same browser must not get in: the Host must be local and a POST must say it is JSON.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from typing import Any

import msgspec
from aiohttp import web

from veilstream.errors import InputError
from veilstream.gateway.core import Core, Found, Message, handle, place_of
from veilstream.gateway.guard import HEADERS, Guard, HttpConnection, HttpSettings, Slots
from veilstream.gateway.openapi import document
from veilstream.gateway.owntracks import phone_of
from veilstream.gateway.records import Outcome, Status, StoreError
from veilstream.gateway.topics import Route
from veilstream.gateway.wire import Reading, Refusal

log = logging.getLogger("veilstream.http")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BODY_TIMEOUT_S = 10
KEEP_ALIVE_S, SHUTDOWN_S = 30, 2
BACKLOG = 128
LOOK_S = 0.1  # at whether to stop, and at connections
FIRST_LOOK_S, LAST_LOOK_S = 0.5, 30.0  # at whether a store that failed works again
EVENT_EVERY_S = 1.0
MAX_WATCHERS = 32
PAGE = {
    "/": ("index.html", "text/html"),
    "/status.js": ("status.js", "text/javascript"),
    "/status.css": ("status.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
PUBLIC = {*PAGE, "/healthz", "/openapi.json"}  # nothing about any stream
STATUS = {
    Refusal.too_large: 413,
    Refusal.too_many_readings: 413,
    Refusal.late: 409,
    Refusal.ahead: 409,
    Refusal.too_many_streams: 429,
    Refusal.unhandled: 500,
}


class HttpGateway:
    def __init__(self, core: Core, settings: HttpSettings, routes: Sequence[Route] = ()) -> None:
        """routes: those of a broker that publishes what is released here; names must fit them."""
        self.core, self.settings, self.guard = core, settings, Guard(settings, PUBLIC)
        self._routes = [route for route in routes if route.space == ""]
        self.port: int | None = None  # the one really used, once it runs
        self.started = threading.Event()
        self._waiting: list[Message] = []  # each with the future that someone awaits
        self._wake = asyncio.Event()
        self._slots = Slots(self.guard.is_near)
        self._dead = False  # nothing is released any more
        self._watchers = 0
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop`."""
        self._stop = stop
        asyncio.run(self._serve(stop))

    async def _serve(self, stop: threading.Event) -> None:
        runner = web.AppRunner(self.app(), shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        assert runner.server is not None
        connection = partial(HttpConnection, self._slots, runner.server, KEEP_ALIVE_S)
        try:
            server = await asyncio.get_running_loop().create_server(
                connection, self.settings.host, self.settings.port, backlog=BACKLOG
            )
        except OSError as error:
            await runner.cleanup()
            raise InputError(f"cannot listen on {self.settings.host}:{self.settings.port}: {error.strerror}") from None
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # the store takes one at a time anyway
        self.port = server.sockets[0].getsockname()[1]
        log.info("http_listening", extra={"host": self.settings.host, "port": self.port})
        self.started.set()
        committer, healer = (asyncio.create_task(work) for work in (self._commit_waiting(), self._heal()))
        while not stop.is_set() and not committer.done():
            await asyncio.wait([committer], timeout=LOOK_S)
            self._slots.sweep()
        server.close()
        await runner.cleanup()  # lets requests under way finish
        healer.cancel()
        committer.cancel()
        if committer.done() and not committer.cancelled():
            committer.result()  # raises what it died of

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
        if self.settings.owntracks is not None:
            app.router.add_post(self.settings.owntracks, self._owntracks)
            app.router.add_post(self.settings.owntracks + "/{rest:.*}", self._owntracks)
        return app

    # --- who may ----------------------------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        stays = False
        try:
            no = self.guard.refusal(request)
            stays = self._slots.keep(request.protocol, no is None and self.guard.knows(request))
            response = await handler(request) if no is None else _error(*no)
        except web.HTTPException as error:  # 404, 405, 413: aiohttp's own, with our headers
            response = _error(error.status, error.reason)
        except StoreError:
            response = _error(503, "the store cannot be written; nothing was released")
        except TimeoutError:
            response = _error(408, "the body did not arrive in time")
        except Exception as error:  # whatever a request holds, the process lives on
            log.error("request_failed", extra={"reason": type(error).__name__, "at": place_of(error)})
            response = _error(500, Refusal.unhandled.value)
        if not response.prepared:
            response.headers.update(self.guard.headers(request))
            if not stays:
                response.force_close()
        return response

    # --- releases ---------------------------------------------------------------------------------------

    async def _release(self, request: web.Request) -> web.Response:
        message = await self._commit_one(request)
        found, outcomes = message.found, message.outcomes
        if isinstance(found, Refusal):
            return _error(STATUS.get(found, 400), found.value)
        if outcomes is None:
            return _error(500, Refusal.unhandled.value)
        if message.data.lstrip()[:1] == b"[":
            return _json([_item(o) for o in outcomes])
        return _single(outcomes[0], found[0])

    async def _owntracks(self, request: web.Request) -> web.Response:
        """A phone sends again what is not answered by 200, so all that is settled is: with an empty list, always."""
        stream, _ = phone_of(request.headers)
        if stream is None:
            return _error(400, "which phone? Basic authentication or X-Limit-U must name a user, X-Limit-D a device")
        message = await self._commit_one(request, stream)
        found = message.found
        all_of_it = [found] if isinstance(found, Refusal) else [o.status for o in message.outcomes or ()]
        no = next((r for r in all_of_it if r in (Refusal.stream, Refusal.too_large)), None)
        return _json([]) if no is None else _error(STATUS.get(no, 400), no.value)

    async def _commit_one(self, request: web.Request, stream: str | None = None) -> Message:
        """The body of a request and what was found in it; outcomes are None if it could not be handled."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await request.read()
            message = Message.of(self.core, body, lambda data: self._read(data, stream), committed)
        except (web.RequestPayloadError, ConnectionError):  # not in the encoding that its header says, or cut off
            message = Message(b"", Refusal.unreadable)
        if isinstance(message.found, Refusal):
            self.core.stats.refused[message.found.name] += 1
            return message
        start = time.perf_counter()
        self._waiting.append(message)
        self._wake.set()
        await committed
        if any(o.status is Status.released for o in message.outcomes or ()):
            self.core.stats.request.add(time.perf_counter() - start)
        return message

    def _read(self, body: bytes | bytearray, stream: str | None = None) -> Found:
        found = self.core.scheduler.read(body, "", stream)
        if isinstance(found, Refusal) or not self._routes:
            return found
        return [r if isinstance(r, Refusal) or self._carried(r.stream) else Refusal.stream for r in found]

    def _carried(self, stream: str) -> bool:
        return all(route.carries(stream) for route in self._routes)

    async def _commit_waiting(self) -> None:
        """Requests that wait are one transaction. Should this ever end, nobody is left waiting."""
        waiting: list[Message] = []
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                waiting, self._waiting = self._waiting, []
                await self._commit(waiting)
        finally:
            self._dead = True
            for message in [*waiting, *self._waiting]:
                if not message.note.done():
                    message.note.set_exception(StoreError("the gateway ends"))

    async def _commit(self, waiting: Sequence[Message]) -> None:
        failure: Exception | None = None
        try:
            await asyncio.to_thread(handle, self.core, waiting)
        except StoreError as error:
            failure = error
        for message in waiting:
            if not message.note.done():  # whoever asked may have gone
                if failure is not None and message.outcomes is None:
                    message.note.set_exception(StoreError(str(failure)))
                else:
                    message.note.set_result(None)

    async def _heal(self) -> None:
        """While the store fails, look whether it does still."""
        delay = FIRST_LOOK_S
        while True:
            await asyncio.sleep(delay)
            if not self.core.failing:
                delay = FIRST_LOOK_S
                continue
            try:
                await asyncio.to_thread(self.core.probe)
                log.info("store_works_again")
            except StoreError as error:
                delay = min(2 * delay, LAST_LOOK_S)
                log.error("store_unavailable", extra={"retry_s": delay, "reason": str(error)})

    # --- looking ----------------------------------------------------------------------------------------

    async def _status(self, request: web.Request) -> web.Response:
        return _json(self._now(self.guard.audience(request) or ""))

    def _now(self, audience: str) -> dict[str, Any]:
        """The status, all of it or what an audience may see; releases have a unit where all spaces have the same."""
        units = {"" if s.states is None else s.states.unit for s in self.core.spaces.values()}
        stats = self.core.audiences[audience] if audience else self.core.stats
        return stats.status(self.core.spaces[audience].ceiling, units.pop() if len(units) == 1 else "")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events: the status, once a second."""
        if self._watchers >= MAX_WATCHERS:
            return _error(503, "too many watchers")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **HEADERS})
        audience = self.guard.audience(request) or ""
        self._watchers += 1
        try:
            await response.prepare(request)
            while not self._stop.is_set():
                status = msgspec.json.encode(self._now(audience))
                async with asyncio.timeout(BODY_TIMEOUT_S):
                    await response.write(b"data: " + status + b"\n\n")
                await asyncio.sleep(EVENT_EVERY_S)
        except ConnectionResetError:
            pass  # the watcher left
        except TimeoutError:  # it does not read any more
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._watchers -= 1
        return response

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.core.stats.metrics(), content_type="text/plain", charset="utf-8")

    async def _health(self, request: web.Request) -> web.Response:
        """503 while the store cannot be written. Whoever has the token makes us try; others are told what is known."""
        if self.guard.has_token(request):
            await asyncio.to_thread(self.core.probe)
        if self._dead or self.core.failing:
            return _error(503, "the store cannot be written; nothing is released")
        if self.core.stats.trouble is not None:
            return _error(503, self.core.stats.trouble)
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
