"""What comes over a wire: messages bent at every level, through every transport. One message costs one message."""

import asyncio
import contextlib
import logging
import random
import socket
import string
from collections.abc import Iterator
from unittest import mock

from attack.drill import Trial
from attack.files import bent
from gatewaykit import artefact, core_of
from httpkit import Server
from mosquitto import Mosquitto
from mqttkit import Client, serving
from nats_drill import connected, everything, until
from nats_server import NatsCluster
from natskit import Running
from patience import wait_until
from veilstream.gateway.core import Message, handle
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.wire import Refusal, parse

NOW = 6000.0
TIMES = [b"5990", b"6000", b"6000.5", b'"6000"', b'"1970-01-01T01:40:00Z"', b'"9999-12-31T23:59:59-01:00"', b"1e18",
         b"-1", b'"0001-01-01T00:00:00+01:00"', b"null", b"NaN", b"1e400", b"[]", b'"\\u0000"', b"9" * 40,
         b"true"]  # fmt: skip
VALUES = [b"3", b"3.5", b"-7", b"1e300", b"NaN", b"-Infinity", b"1e400", b'"home"', b'"4"', b"null", b"[1]", b'{"a":1}',
          b"true", b"9" * 400, b'""', b'"\xc3\xa9"', b"0", b"16", b"-0.0", b"5e-324"]  # fmt: skip
NAMES = [
    b"a",
    b"b",
    b"a b",
    b"\xc3\xa9",
    b"a+b",
    b"#",
    b"a/b",
    b"\\u0000",
    b"x" * 201,
    b"",
    b"NaN",
    b'\\"',
    b"=41",
    b".",
]
KINDS = [b'"location"', b'"transition"', b'"waypoint"', b"7", b"null"]


def message(rng: random.Random, value: bytes | None = None) -> bytes:
    """A reading, more or less."""
    fields = [(b"t", rng.choice(TIMES if rng.random() < 0.4 else TIMES[:2]))]
    if rng.random() < 0.8:
        fields.append((b"stream", b'"' + rng.choice(NAMES if rng.random() < 0.3 else NAMES[:2]) + b'"'))
    if rng.random() < 0.7:
        fields.append((b"value", rng.choice(VALUES) if value is None else value))
    else:
        fields += [(k, rng.choice(VALUES) if value is None else value) for k in (b"lat", b"lon")]
    if rng.random() < 0.2:
        fields += [(b"_type", rng.choice(KINDS)), (b"tst", rng.choice(TIMES))]
    if rng.random() < 0.2:
        fields.append((b"SSID", rng.choice(VALUES)))
    rng.shuffle(fields)
    return b"{" + b",".join(b'"%b":%b' % f for f in fields) + b"}"


def payload(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.5:
        return message(rng)
    if kind < 0.7:
        return b"[" + b",".join(message(rng) for _ in range(rng.randint(0, 8))) + b"]"
    if kind < 0.95:
        return bent(rng, message(rng))
    return rng.choice([b"", b"[" * 3000, b"\xff" * 50, rng.randbytes(60), b'"' * 99, b"null", b"0", b"[[]]", b"[{}]"])


# --- without a transport ---------------------------------------------------------------------------------------


def messages(t: Trial) -> int:
    """Nothing is raised, and what becomes of a message does not depend on its values."""
    art, n = artefact(t.folder / "p.veil", period_s=60.0), t.times(400)
    with core_of(art, now=lambda: NOW) as core:
        grid = core.spaces[""].grid
        for _ in range(n):
            data = payload(t.rng)
            name = t.rng.choice([None, "a"])
            found = parse(data, grid, name)
            assert isinstance(found, Refusal) or all(hasattr(r, "stream") or isinstance(r, Refusal) for r in found)
            handle(core, [Message.of(core, data, lambda d, name=name: parse(d, grid, name), None)])
        for _ in range(n // 4):
            state = t.rng.getstate()
            verdicts = []
            for value in (t.rng.choice(VALUES), t.rng.choice(VALUES)):
                t.rng.setstate(state)
                found = parse(message(t.rng, value), grid, "a")
                verdicts.append(
                    [found] if isinstance(found, Refusal) else [r if isinstance(r, Refusal) else r.step for r in found]
                )
            assert verdicts[0] == verdicts[1], "a refusal that depends on the value"
        assert core.stats.refused["unhandled"] == 0, "an exception nobody thought of"
    return n


# --- HTTP ------------------------------------------------------------------------------------------------------

PATHS = [
    "/v1/release",
    "/v1/status",
    "/metrics",
    "/healthz",
    "/",
    "/openapi.json",
    "/v1/x",
    "/../etc",
    "/%00",
    "*",
    "//",
]


def request(rng: random.Random) -> bytes:
    """Bytes on a socket that begin like HTTP, mostly."""
    body = payload(rng)
    length = rng.choice([len(body)] * 8 + [0, len(body) + 5, 10**12, -1])
    lines = [
        f"{rng.choice(['POST'] * 6 + ['GET', 'PUT', 'X' * 50, 'post'])} {rng.choice(PATHS[:1] * 6 + PATHS)} HTTP/1.1",
        f"Host: {rng.choice(['localhost'] * 9 + ['evil.example', ''])}",
        f"Content-Type: {rng.choice(['application/json'] * 8 + ['text/plain', '', 'application/json;charset=x'])}",
        f"Content-Length: {length}",
        *(["Transfer-Encoding: chunked"] if rng.random() < 0.1 else []),
        *(["Content-Encoding: gzip"] if rng.random() < 0.1 else []),
        *([f"X-{'a' * rng.choice([3, 9000])}: {'b' * rng.choice([3, 9000])}"] if rng.random() < 0.1 else []),
    ]
    data = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    return bent(rng, data) if rng.random() < 0.2 else data


def http(t: Trial) -> int:
    """No answer says 500, and the next good reading is released."""
    with core_of(artefact(t.folder / "p.veil"), t.folder / "s.db") as core, failures("veilstream.http") as failed:
        server = Server(core)
        try:
            n = t.times(150)
            for _ in range(n):
                _raw(server.gateway.port, request(t.rng))
            code, answer, _ = server.ask("/v1/release", {"stream": "good", "t": 1, "value": 3})
            assert code == 200 and "released" in answer
            assert server.ask("/healthz")[0] == 200 and core.stats.refused["unhandled"] == 0
        finally:
            server.end()
    assert not failed, f"an exception nobody thought of: {failed[0].reason} at {failed[0].at}"
    return n


@contextlib.contextmanager
def failures(logger: str) -> Iterator[list[logging.LogRecord]]:
    """What is said there at level error."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = found.append  # type: ignore[method-assign]
    logging.getLogger(logger).addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger(logger).removeHandler(handler)


def _raw(port: int, data: bytes) -> bytes:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as s:
        s.settimeout(0.1)
        s.sendall(data)
        return s.recv(200)
    return b""


# --- MQTT ------------------------------------------------------------------------------------------------------


def topic(rng: random.Random) -> str:
    """What a client may publish to: no wildcards, else the broker ends it."""
    if rng.random() < 0.6:
        return f"in/{rng.choice('ab')}"
    letters = string.ascii_letters + "é=. $%{}\\'\"/"
    return "in/" + "".join(rng.choice(letters) for _ in range(rng.choice([1, 5, 250])))


def mqtt(t: Trial) -> int:
    """Every message is acknowledged, the connection holds, and the next good reading is released."""
    (t.folder / "broker").mkdir()
    broker = Mosquitto(t.folder / "broker", persistent=False)
    client = Client(broker.port, "out/#")
    try:
        with core_of(artefact(t.folder / "p.veil"), t.folder / "s.db") as core, serving(core, broker.port):
            n = t.times(200)
            for _ in range(n):
                client.say(topic(t.rng), payload(t.rng), retain=t.rng.random() < 0.05)
            wait_until(client.all_sent, what="publishing")
            client.say("in/good", {"t": 1, "value": 3})
            wait_until(
                lambda: any(topic == "out/good" for topic, _, _ in client.heard), what="a release after all that"
            )
            assert core.stats.connected and core.stats.refused["unhandled"] == 0
    finally:
        client.end()
        broker.stop()
    return n


# --- NATS ------------------------------------------------------------------------------------------------------


def subject(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return f"veil.in.default.{rng.choice('ab')}"
    token = "".join(rng.choice(string.ascii_letters + "=0123é$-_") for _ in range(rng.choice([1, 4, 120])))
    return rng.choice([f"veil.in.default.{token}", f"veil.in.{token}.a", f"veil.in.default.={token}"])


HEADERS = [
    "Nats-Msg-Id",
    "Nats-Rollup",
    "Nats-TTL",
    "Status",
    "Description",
    "X",
    "Nats-Expected-Last-Subject-Sequence",
]


@contextlib.contextmanager
def hurried() -> Iterator[None]:
    """Nobody else is there: workers need not wait for each other."""
    with (
        mock.patch("veilstream.gateway.nats.membership.EVERY_S", 0.05),
        mock.patch("veilstream.gateway.nats.partition.IDLE_S", 0.1),
    ):
        yield


def nats(t: Trial) -> int:
    """The queue runs empty, and the next good reading is released."""
    cluster, names, n = NatsCluster(t.folder, 1), Names("veil"), t.times(200)

    async def drive() -> None:
        link = await connected(cluster.urls)
        for _ in range(n):
            headers = (
                {t.rng.choice(HEADERS): t.rng.choice(["1", "all", "x", "100", ""])} if t.rng.random() < 0.2 else None
            )
            await link.nc.publish(subject(t.rng), payload(t.rng), headers=headers)
        await link.request((names.reading(DEFAULT_SPACE, "good"), b'{"t":1,"value":3}', None))
        left = await until(link, names.readings, 0, 30)
        assert left == 0, f"{left} readings are still in the queue"
        released = [m["subject"] for m in await everything(link, names.releases)]
        assert names.release(DEFAULT_SPACE, "good") in released, "no release after all that"
        await link.close()

    try:
        with hurried(), Running(artefact(t.folder / "p.veil"), cluster.urls, "veil", partitions=2) as gateway:
            asyncio.run(drive())
            assert gateway.stats.connected and gateway.stats.refused["unhandled"] == 0
    finally:
        cluster.stop()
    return n
