"""A connection to NATS: many requests at once with one deadline, pulls, and errors a user can act on."""

import asyncio
import itertools
import logging
import os
import re
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec
import nats.protocol.parser as protocol
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, Error, NoServersError

from veilstream.errors import InputError
from veilstream.gateway.tls import Tls

log = logging.getLogger("veilstream.nats")
TIMEOUT_S = 3.0  # for an answer; an election takes longer, so whoever asks must be ready to ask again
PULL_ANSWER_S = 1.0  # and what it was told to wait
CONNECT_S, CONNECT_ONE_S = 10.0, 3  # to any server, to one of them
RECONNECT_S, PING_S, MISSED_PINGS = 0.2, 5, 2
ERRORS_KEPT = 20
PORT = 4222
NANOSECONDS = 10**9  # JetStream counts in them
NOBODY_THERE, DELETED = 503, "Consumer Deleted"  # to a pull: before it came there, while it waited
AT_ONCE_BYTES = 8 << 20  # of one pull
INBOX = "_VEIL"  # readings are delivered to inboxes: not where everybody may listen
ANSWERS = ("_INBOX.", "_R_.")  # where others may want an answer; the second is the server's way to another account
DELIVERED = "$JS.ACK."  # the reply of what a consumer delivers
Request = tuple[str, bytes, dict[str, str] | None]  # subject, payload, headers
Answer: TypeAlias = "dict[str, Any] | Rejected | Unavailable"


class Unavailable(Exception):
    """No answer, or none that says what happened."""


class Rejected(Exception):
    """JetStream's answer is an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("description", "error")))
        self.err_code = error.get("err_code")


@dataclass(frozen=True)
class LinkSettings:
    urls: tuple[str, ...] = (f"nats://localhost:{PORT}",)
    creds: str | None = None  # a file
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    inbox: str = INBOX

    def __post_init__(self) -> None:
        if self.creds is not None:
            _check_creds(self.creds)
        for url in self.urls or ("",):
            try:
                parts = _split(url)
                ok = parts.scheme in ("nats", "tls") and parts.hostname and (parts.port is None or parts.port > 0)
            except ValueError:
                ok = False
            if not ok:
                raise InputError("`urls` takes nats://HOST:PORT or tls://HOST:PORT, one or several")

    @property
    def shown(self) -> str:
        """Where, without who: a URL may hold a password."""
        return ", ".join(f"{p.hostname}:{p.port or PORT}" for p in map(_split, self.urls))


def _check_creds(file: str) -> None:
    """nats-py reads on for ever in a file that is none."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"no credentials file {file!r} that can be read") from None
    if not all(f"BEGIN {part}" in text for part in ("NATS USER JWT", "USER NKEY SEED")):
        raise InputError(f"{file} is no NATS credentials file: a user JWT and an NKEY seed are needed (nsc makes them)")


def _split(url: str) -> SplitResult:
    return urlsplit(url if "//" in url else f"nats://{url}")


# nats-py takes \v and \f in a subject for its end, and a line it cannot read ends the connection
_SUBJECTS = rb"[ \t]+([^ \t\r\n]+)[ \t]+(\d+)[ \t]+(([^ \t\r\n]+)[ \t]+)?"
protocol.MSG_RE = re.compile(rb"\AMSG" + _SUBJECTS + rb"(\d+)\r\n")
protocol.HMSG_RE = re.compile(rb"\AHMSG" + _SUBJECTS + rb"(\d+)[ \t]+(\d+)\r\n")


class _Client(Client):
    """Whatever a sender wrote into subject, reply and headers: it must not end the connection."""

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        if reply:  # from others; of these nobody needs the headers
            headers = None
        try:
            await super()._process_msg(sid, subject, reply, data, headers)  # type: ignore[arg-type]  # None is none
        except (ValueError, IndexError):  # bytes that are no text
            subject, reply = (part.decode(errors="replace").encode() for part in (subject, reply))
            await super()._process_msg(sid, subject, reply, data, b"")


class Link:
    """Made by `open`."""

    def __init__(self, settings: LinkSettings) -> None:
        self.settings = settings
        self.nc = _Client()
        self.denied: str | None = None  # the last thing we had no permission for
        self.pullers: list[Puller] = []
        self._errors: deque[Exception] = deque(maxlen=ERRORS_KEPT)
        self._inbox = _inbox(settings)
        self._open: dict[str, asyncio.Future[Msg]] = {}  # by the request's number

    @classmethod
    async def open(cls, settings: LinkSettings) -> "Link":
        """Connected to one of the servers; from then on it reconnects for ever."""
        link, context = cls(settings), None if settings.tls is None else settings.tls.context()
        try:
            # nats-py alone may try for ever, as after a failed handshake
            await asyncio.wait_for(link._connect(context), CONNECT_S)
        except (OSError, ValueError, Error) as error:
            raise InputError(link._reason([*link._errors, error])) from None
        link.nc.options["max_reconnect_attempts"] = -1
        await link.nc.subscribe(f"{link._inbox}.*", cb=link._answered)
        log.info("nats_connected", extra={"server": link.server})
        return link

    async def _connect(self, context: ssl.SSLContext | None) -> None:
        s = self.settings
        options: dict[str, Any] = {"tls": context, "user_credentials": s.creds, "user": s.user, "password": s.password}
        await self.nc.connect(
            list(s.urls),
            name="veil",
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            connect_timeout=CONNECT_ONE_S,
            max_reconnect_attempts=1,  # of each server, for the first connection
            inbox_prefix=s.inbox,
            reconnect_time_wait=RECONNECT_S,  # type: ignore[arg-type]  # seconds; it sleeps that long
            ping_interval=PING_S,
            max_outstanding_pings=MISSED_PINGS,
            **{k: v for k, v in options.items() if v is not None},
        )

    async def _on_error(self, error: Exception) -> None:
        self._errors.append(error)
        if "permissions violation" in str(error).lower():
            self.denied = str(error).removeprefix("nats: ")
            log.error("nats_permission_denied", extra={"reason": self.denied})

    async def _on_disconnect(self) -> None:
        if not self.nc.is_closed:
            log.warning("nats_lost")

    async def _on_reconnect(self) -> None:
        log.info("nats_connected", extra={"server": self.server})
        for puller in self.pullers:
            puller.interrupt()

    def _reason(self, seen: list[Exception]) -> str:
        where = self.settings.shown
        if any(isinstance(e, AuthorizationError) or "authorization" in str(e).lower() for e in seen):
            return f"the NATS server at {where} refused these credentials; give `creds`, or `user` and `password`"
        for error in seen:
            if isinstance(error, ssl.SSLError):
                return f"no TLS with the NATS server at {where}: {error.reason}; `ca_file=FILE` names the authority"
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

    async def ask(self, requests: Sequence[Request], timeout_s: float = TIMEOUT_S) -> list[Answer]:
        """The answer to each, in one go."""
        if not requests:
            return []
        first, loop = os.urandom(8).hex(), asyncio.get_running_loop()  # a count would tell how much else was asked
        asked: dict[str, asyncio.Future[Msg]] = {f"{first}-{i}": loop.create_future() for i in range(len(requests))}
        self._open |= asked
        try:
            for number, (subject, payload, headers) in zip(asked, requests, strict=True):
                await self.nc.publish(subject, payload, f"{self._inbox}.{number}", headers)
            await asyncio.wait(asked.values(), timeout=timeout_s)
        except Error:
            pass  # what is missing has no answer
        finally:
            for number in asked:
                del self._open[number]
        return [read(answer.result() if answer.done() else None) for answer in asked.values()]

    async def _answered(self, msg: Msg) -> None:
        answer = self._open.get(msg.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(msg)

    async def api(self, call: str, timeout_s: float = TIMEOUT_S, **body: Any) -> dict[str, Any]:
        """A JetStream API call."""
        return await self.request((f"$JS.API.{call}", msgspec.json.encode(body) if body else b"", None), timeout_s)

    async def request(self, request: Request, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """One answer; raises unless it is a good one."""
        (answer,) = await self.ask([request], timeout_s)
        if isinstance(answer, dict):
            return answer
        raise answer

    async def reply(self, msg: Msg, payload: bytes) -> None:
        """Answer somebody who may be anybody: only to an inbox, or they would write with our rights."""
        if msg.reply.startswith(ANSWERS):
            await self.tell(msg.reply, payload)

    async def tell(self, subject: str, payload: bytes) -> None:
        try:
            await self.nc.publish(subject, payload)
        except Error as error:
            raise Unavailable(type(error).__name__) from None

    async def close(self) -> None:
        await self.nc.close()


def read(msg: Msg | None) -> Answer:
    """JetStream's answer as an object."""
    if msg is None or (msg.headers and msg.headers.get("Status") == str(NOBODY_THERE)):
        return Unavailable("no answer in time")
    try:
        found: dict[str, Any] = msgspec.json.decode(msg.data)
    except msgspec.MsgspecError:
        return Unavailable("an answer that is not JSON")
    if not isinstance(found, dict):
        return Unavailable("an answer that is no object")
    if "error" not in found:
        return found
    error = found["error"]
    return Unavailable(str(error.get("description"))) if error.get("code") == NOBODY_THERE else Rejected(error)


class Puller:
    """Pulls from one consumer; made by `open`. Messages of a pull that was given up turn up in the next one."""

    def __init__(self, link: Link, stream: str, consumer: str) -> None:
        self._link, self._next = link, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox, self._numbers = _inbox(link.settings), itertools.count()
        self._got: list[Msg] = []
        self._want, self._reply = 0, ""
        self._end = asyncio.Event()
        self.lost = False  # the consumer may be gone

    @classmethod
    async def open(cls, link: Link, stream: str, consumer: str) -> "Puller":
        puller = cls(link, stream, consumer)
        await link.nc.subscribe(f"{puller._inbox}.*", cb=puller._arrived)
        link.pullers.append(puller)
        return puller

    async def _arrived(self, msg: Msg) -> None:
        headers = msg.headers or {}
        status = headers.get("Status")
        if msg.reply.startswith(DELIVERED):
            self._got.append(msg)
            if len(self._got) >= self._want:
                self._end.set()
        elif msg.subject == self._reply and status != "100":
            self.lost |= status == str(NOBODY_THERE) or headers.get("Description") == DELETED
            self._end.set()  # no more messages, or the pull is over for another reason

    def interrupt(self) -> None:
        self._end.set()

    async def pull(self, n: int, wait_s: float = 0.0) -> list[Msg]:
        """Up to n messages: what is there at once, else what comes first within `wait_s`."""
        self.lost = False
        await self._pull({"batch": n, "no_wait": True, "max_bytes": AT_ONCE_BYTES}, n)
        if not self._got and wait_s and not self.lost:
            await self._pull({"batch": 1, "expires": int(wait_s * NANOSECONDS)}, 1, wait_s)
            if self._got:
                await self._pull({"batch": n - 1, "no_wait": True, "max_bytes": AT_ONCE_BYTES}, n)
        got, self._got = self._got, []
        return got

    async def _pull(self, request: dict[str, Any], want: int, wait_s: float = 0.0) -> None:
        self._want, self._reply = want, f"{self._inbox}.{next(self._numbers)}"
        self._end.clear()
        if len(self._got) >= want:
            return
        try:
            await self._link.nc.publish(self._next, msgspec.json.encode(request), self._reply)
            await asyncio.wait_for(self._end.wait(), wait_s + PULL_ANSWER_S)
        except (TimeoutError, Error):
            return


def _inbox(settings: LinkSettings) -> str:
    """Where only we listen."""
    return f"{settings.inbox}.{os.urandom(16).hex()}"
