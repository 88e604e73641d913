"""A connection to NATS: many requests at once with one deadline, pulls, and errors a user can act on."""

import asyncio
import itertools
import logging
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, Error, NoServersError

from veilstream.errors import InputError

log = logging.getLogger("veilstream.nats")
TIMEOUT_S = 3.0  # for an answer; an election takes longer, so whoever asks must be ready to ask again
CONNECT_S = 10.0
INBOX = "_VEIL"  # readings are delivered to inboxes: not where everybody may listen
Request = tuple[str, bytes, dict[str, str] | None]  # subject, payload, headers


class Unavailable(Exception):
    """No answer, or none that says what happened."""


class Rejected(Exception):
    """JetStream's answer is an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("description", "error")))
        self.code, self.err_code = error.get("code"), error.get("err_code")


@dataclass(frozen=True)
class LinkSettings:
    urls: tuple[str, ...] = ("nats://localhost:4222",)
    creds: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for url in self.urls:
            try:
                parts = urlsplit(url if "//" in url else f"nats://{url}")
                ok = parts.scheme in ("nats", "tls") and parts.hostname and (parts.port is None or parts.port > 0)
            except ValueError:
                ok = False
            if not ok:
                raise InputError("--nats takes nats://HOST:PORT or tls://HOST:PORT, several with commas between")

    @property
    def shown(self) -> str:
        """Where, without who: a URL may hold a password."""
        parts = [urlsplit(u if "//" in u else f"nats://{u}") for u in self.urls]
        return ", ".join(f"{p.hostname}:{p.port or 4222}" for p in parts)

    def tls(self) -> ssl.SSLContext | None:
        if not (self.ca_file or self.cert_file):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise InputError(f"the TLS files for NATS cannot be used: {error.strerror}") from None
        return context


class Link:
    def __init__(self, settings: LinkSettings) -> None:
        self.settings = settings
        self.nc = Client()
        self.closed = asyncio.Event()
        self._closing = False
        self.denied: str | None = None  # the last thing we had no permission for
        self.pullers: list[Puller] = []
        self._numbers = itertools.count()
        self._open: dict[str, tuple[list[Msg | None], int, asyncio.Future[None], list[int]]] = {}

    async def connect(self) -> None:
        s, seen = self.settings, list[Exception]()

        async def on_error(error: Exception) -> None:
            seen[:] = [*seen[-20:], error]
            if "permissions violation" in str(error).lower():
                self.denied = str(error).removeprefix("nats: ")
                log.error("nats_permission_denied", extra={"reason": self.denied})

        async def on_disconnect() -> None:
            if not self._closing:
                log.warning("nats_lost")

        async def on_reconnect() -> None:
            log.info("nats_connected", extra={"server": self.server})
            for puller in self.pullers:
                puller.interrupt()

        async def on_close() -> None:
            self.closed.set()

        options: dict[str, Any] = {"tls": s.tls(), "user_credentials": s.creds, "user": s.user, "password": s.password}
        try:
            connecting = self.nc.connect(
                list(s.urls),
                name="veil",
                error_cb=on_error,
                disconnected_cb=on_disconnect,
                reconnected_cb=on_reconnect,
                closed_cb=on_close,
                connect_timeout=3,
                max_reconnect_attempts=1,  # of each server, for the first connection
                inbox_prefix=INBOX,
                reconnect_time_wait=0.2,  # type: ignore[arg-type]  # seconds; it sleeps that long
                ping_interval=5,
                max_outstanding_pings=2,
                **{k: v for k, v in options.items() if v is not None},
            )
            await asyncio.wait_for(connecting, CONNECT_S)  # nats-py alone may try for ever, as after a failed handshake
        except (OSError, ValueError, Error) as error:
            raise InputError(self._reason([*seen, error])) from None
        self.nc.options["max_reconnect_attempts"] = -1  # from now on for ever
        self._inbox = self.nc.new_inbox()
        await self.nc.subscribe(f"{self._inbox}.*", cb=self._answered)
        log.info("nats_connected", extra={"server": self.server})

    def _reason(self, seen: list[Exception]) -> str:
        where = self.settings.shown
        if any(isinstance(e, AuthorizationError) or "authorization" in str(e).lower() for e in seen):
            return (
                f"the NATS server at {where} refused these credentials; give --nats-creds FILE, "
                "or --user NAME and the password in VEIL_NATS_PASSWORD"
            )
        for error in seen:
            if isinstance(error, ssl.SSLError):
                return f"no TLS with the NATS server at {where}: {error.reason}; --ca FILE names the authority"
        known = [e for e in seen if not isinstance(e, NoServersError)]
        why = "no answer"
        if known:
            number = getattr(known[-1], "errno", None)
            why = os.strerror(number) if number and number > 0 else str(known[-1]) or type(known[-1]).__name__
        return f"cannot reach a NATS server at {where}: {why.removeprefix('nats: ')}; is it running there?"

    @property
    def server(self) -> str:
        return self.nc.connected_url.netloc.rpartition("@")[2] if self.nc.connected_url else "none"

    # --- questions and answers -------------------------------------------------------------------------

    async def ask(self, requests: Sequence[Request], timeout_s: float = TIMEOUT_S) -> list[Msg | None]:
        """The answer to each, in one go; None where none came in time."""
        if not requests:
            return []
        answers: list[Msg | None] = [None] * len(requests)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        left, numbers = [len(requests)], []
        try:
            for i, (subject, payload, headers) in enumerate(requests):
                number = str(next(self._numbers))
                self._open[number] = (answers, i, done, left)
                numbers.append(number)
                await self.nc.publish(subject, payload, f"{self._inbox}.{number}", headers)
            await asyncio.wait_for(done, timeout_s)
        except (TimeoutError, Error):
            pass  # what is missing stays None
        finally:
            for number in numbers:
                self._open.pop(number, None)
        return answers

    async def _answered(self, msg: Msg) -> None:
        found = self._open.pop(msg.subject.rpartition(".")[2], None)
        if found is None:
            return
        answers, i, done, left = found
        if not (msg.headers and msg.headers.get("Status") == "503"):  # nobody there to answer
            answers[i] = msg
        left[0] -= 1
        if not left[0] and not done.done():
            done.set_result(None)

    async def api(self, call: str, timeout_s: float = TIMEOUT_S, **body: Any) -> dict[str, Any]:
        """A JetStream API call."""
        (answer,) = await self.ask([(f"$JS.API.{call}", msgspec.json.encode(body) if body else b"", None)], timeout_s)
        return read(answer)

    async def tell(self, subject: str, payload: bytes) -> None:
        try:
            await self.nc.publish(subject, payload)
        except Error as error:
            raise Unavailable(type(error).__name__) from None

    async def close(self) -> None:
        self._closing = True
        await self.nc.close()


def read(answer: Msg | None) -> dict[str, Any]:
    """JetStream's answer as an object; raises for the ones that are errors."""
    if answer is None:
        raise Unavailable("no answer in time")
    try:
        found = msgspec.json.decode(answer.data)
    except msgspec.MsgspecError:
        raise Unavailable("an answer that is not JSON") from None
    if "error" in found:
        if found["error"].get("code") == 503:
            raise Unavailable(str(found["error"].get("description")))
        raise Rejected(found["error"])
    return found


class Puller:
    """Pulls from one consumer. Messages of a pull that was given up turn up in the next one."""

    def __init__(self, link: Link, stream: str, consumer: str) -> None:
        self._link, self._next = link, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._numbers = itertools.count()
        self._got: list[Msg] = []
        self._want, self._reply = 0, ""
        self._end = asyncio.Event()

    async def start(self) -> None:
        self._inbox = self._link.nc.new_inbox()
        await self._link.nc.subscribe(f"{self._inbox}.*", cb=self._arrived)
        self._link.pullers.append(self)

    async def _arrived(self, msg: Msg) -> None:
        if msg.reply:
            self._got.append(msg)
            if len(self._got) >= self._want:
                self._end.set()
        elif msg.subject == self._reply and not (msg.headers and msg.headers.get("Status") == "100"):
            self._end.set()  # no more messages, or the pull is over for another reason

    def interrupt(self) -> None:
        self._end.set()

    async def pull(self, n: int, wait_s: float = 0.0) -> list[Msg]:
        """Up to n messages: what is there at once, else what comes first within `wait_s`."""
        await self._pull({"batch": n, "no_wait": True}, n, 1.0)
        if not self._got and wait_s:
            await self._pull({"batch": 1, "expires": int(wait_s * 1e9)}, 1, wait_s + 1.0)
            if self._got:
                await self._pull({"batch": n - 1, "no_wait": True}, n, 1.0)
        got, self._got = self._got, []
        return got

    async def _pull(self, request: dict[str, Any], want: int, patience_s: float) -> None:
        self._want, self._reply = want, f"{self._inbox}.{next(self._numbers)}"
        self._end.clear()
        if len(self._got) >= want:
            return
        try:
            await self._link.nc.publish(self._next, msgspec.json.encode(request), self._reply)
            await asyncio.wait_for(self._end.wait(), patience_s)
        except (TimeoutError, Error):
            return


def settings_of(text: str, **more: Any) -> LinkSettings:
    """--nats URL[,URL...]"""
    return LinkSettings(tuple(part.strip() for part in text.split(",") if part.strip()), **more)
