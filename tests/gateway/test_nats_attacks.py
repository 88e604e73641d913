"""Attacks on the gateway on NATS: invented members, poison, deleted consumers, presence."""

import asyncio
import contextlib
import hashlib
import json
import random
import socket
import threading
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from fakejetstream import FaultyLink, Server
from gatewaykit import artefact
from nats_drill import connected, everything, until
from natskit import NEEDS_SERVER, SEAL, Running, message, released, send, session_on
from patience import PATIENCE_S, wait_until
from veilstream.control.uniforms import uniforms
from veilstream.gateway.nats.client import Rejected
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.membership import Members
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.nats.partition import Partition
from veilstream.gateway.nats.session import Clock
from veilstream.gateway.nats.worker import _status


@pytest.fixture(scope="module")
def art(tmp_path_factory):
    return artefact(tmp_path_factory.mktemp("attacks") / "policy.veil")


# --- members -----------------------------------------------------------------------------------------------------


def test_invented_and_repeated_members_get_no_partitions():
    said: list[bytes] = []

    class Wire:
        async def tell(self, subject, payload):
            said.append(payload)

    async def drive():
        a, b = (Members(Wire(), "veil.workers", 8, SEAL) for _ in range(2))
        await a.look()
        forged = [b"+somebody", b"", b'{"uptime_s":3.0}', Seal(bytes(32)).put("veil.workers", b"+ eve 1")]
        for data in (*forged, SEAL.put("veil.status", b"+ eve 1")):
            await a._hear(SimpleNamespace(data=data))
        assert len(a.mine) == 8 and a.forged == 5
        await b._say("+")
        await a._hear(SimpleNamespace(data=said[0]))
        assert len(a.mine) == 4
        await b._say("-")
        await a._hear(SimpleNamespace(data=said[1]))
        assert len(a.mine) == 8
        for data in said:  # heard again by somebody, and said again
            await a._hear(SimpleNamespace(data=data))
        assert len(a.mine) == 8 and a.forged == 7

    asyncio.run(drive())


# --- one message can cost one message ----------------------------------------------------------------------------


def raw(url: str, *lines: bytes) -> bytes:
    """Bytes as no library would send them; what the server said."""
    at = urlsplit(url)
    with socket.create_connection((at.hostname, at.port), 5) as s:
        s.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + b"".join(lines) + b"PING\r\n")
        said = b""
        while b"PONG" not in said and (more := s.recv(4096)):
            said += more
    return said


def pub(subject: bytes, body: bytes = b'{"t":1,"value":1}') -> bytes:
    return b"PUB %b %d\r\n%b\r\n" % (subject, len(body), body)


def hpub(subject: bytes, headers: bytes, body: bytes = b'{"t":1,"value":1}') -> bytes:
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(headers), len(headers) + len(body), headers, body)


@NEEDS_SERVER
def test_no_subject_header_or_body_costs_more_than_its_message(art, server, monkeypatch):
    """Subjects and headers on which nats-py breaks off, bodies that raise; then a good reading is still released."""
    names = Names("poison")
    subjects = b"a\x0bb", b"a\x0cb", b"\xff\xfe", b"a" * 3900, b"\x00", b"a$b"
    status, odd = b"NATS/1.0 \xff\xff\xff\r\n\r\n", b"NATS/1.0\r\n\xff: \xfe\r\n\r\n"
    headers = b"NATS/1.0", status, odd, b"NATS/1.0 503\r\n\r\n"
    times = b"9999-12-31T23:59:59-01:00", b"0001-01-01T00:00:00+01:00"
    bad = [
        *(pub(b"poison.in.default." + s) for s in subjects),
        *(hpub(b"poison.in.default.h%d" % i, h) for i, h in enumerate(headers)),
        *(pub(b"poison.in.default.t%d" % i, b'{"t":"%b","value":1}' % t) for i, t in enumerate(times)),
        pub(b"poison.in.default.raises", b"boom 7.25"),
        pub(b"poison.in.default.deep", b"[" * 100_000),
    ]
    from veilstream.gateway import scheduler as module

    parse = module.parse

    def fragile(data, *more):
        if data.startswith(b"boom"):
            raise ZeroDivisionError(f"it was {data!r}")
        return parse(data, *more)

    monkeypatch.setattr(module, "parse", fragile)

    async def drive(g):
        link = await connected(server.urls)
        for one in bad:
            raw(server.urls[0], one)
            await send(link, names, "good", [g.stats.released])
            await until(link, names.readings, 0, 5)
        left = await until(link, names.readings, 0, 5)
        good, kept = await released(link, names, "good"), await everything(link, names.unhandled)
        await link.close()
        return left, good, [json.loads(m["data"]) for m in kept]

    running = Running(art, server.urls, "poison", partitions=1)
    with running as g:
        left, good, kept = asyncio.run(drive(g))
        counted = g.stats.refused["unhandled"]
    assert left == 0 and not running.error
    assert [json.loads(r)["t"] for r in good] == sorted({json.loads(r)["t"] for r in good}) and len(good) == len(bad)
    mine = [k for k in kept if k["length"] == 9]
    assert [k["sha256"] for k in mine] == [hashlib.sha256(b"boom 7.25").hexdigest()] and counted == len(kept)
    assert mine[0]["reason"].startswith("ZeroDivisionError at ") and "7.25" not in json.dumps(kept)


def test_one_of_many_that_cannot_be_handled_is_found_and_the_others_keep_their_order(art):
    """It is in the middle of a batch, and raises when it is settled, not when it is read."""
    fake = Server()
    g = session_on(art, FaultyLink(fake, random.Random(0), 0))
    told: list[tuple[str, bytes]] = []

    async def tell(subject, payload):
        told.append((subject, payload))

    g.link.tell = tell
    settle = g.scheduler.decide

    def fragile(readings, *more):
        if any(getattr(r, "point", None) == 13.0 for r in readings):
            raise RuntimeError
        return settle(readings, *more)

    g.scheduler.decide = fragile
    partition = Partition(g, None, 0, threading.Event())
    partition._held = {
        i: message("ann", {"t": i, "value": 13 if i == 5 else 3}, f"$JS.ACK.r.p0.1.{i}.{i}.0.0") for i in range(1, 12)
    }
    asyncio.run(partition._work(sorted(partition._held)))
    assert not partition._held and g.stats.refused["unhandled"] == 1
    assert [payload for _, payload in told] == [b"+ACK"] * 4 + [b"+TERM"] + [b"+ACK"] * 6
    ids = [i for i in fake.published if i is not None and i.startswith("default.ann")]
    assert [int(i.rpartition(".")[2]) for i in ids] == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


# --- what an administrator, or an accident, does under a worker ---------------------------------------------------


@NEEDS_SERVER
def test_consumers_deleted_under_a_worker_are_made_again_and_nothing_is_lost(art, server):
    names = Names("gone")

    async def drive(g):
        link = await connected(server.urls)
        for t in range(6):
            for p in range(2) if t % 2 else ():
                with contextlib.suppress(Rejected):  # not yet there again
                    await link.api(f"CONSUMER.DELETE.{names.readings}.p{p}")
            for s in ("ann", "bob", "cid"):
                await send(link, names, s, [t])
        await until(link, names.releases, 18, 20)
        assert await until(link, names.readings, 0, 10) == 0
        out = {s: [json.loads(m)["t"] for m in await released(link, names, s)] for s in ("ann", "bob", "cid")}
        await link.close()
        return out

    with Running(art, server.urls, "gone", partitions=2) as g:
        out = asyncio.run(drive(g))
        assert sum(g.stats.refused.values()) == 0
    assert out == {s: list(range(6)) for s in ("ann", "bob", "cid")}


@NEEDS_SERVER
def test_a_worker_says_that_the_memory_cannot_be_written_and_keeps_the_readings(art, server):
    names = Names("full")

    async def limit(most: int):
        link = await connected(server.urls)
        config = (await link.api(f"STREAM.INFO.{names.memory}"))["config"]
        await link.api(f"STREAM.UPDATE.{names.memory}", **{**config, "max_msg_size": most})
        await link.close()

    async def one():
        link = await connected(server.urls)
        await send(link, names, "ann", [0])
        await asyncio.sleep(1)
        waiting = await until(link, names.readings, 1, 3)
        await link.close()
        return waiting

    with Running(art, server.urls, "full", partitions=1) as g:
        asyncio.run(limit(10))
        wait_until(lambda: not g.healthy, what="a word about it")
        assert asyncio.run(one()) == 1 and g.stats.released == 0
        asyncio.run(limit(-1))
        wait_until(lambda: g.healthy and g.stats.released == 1, what="the release")


# --- under a clock -----------------------------------------------------------------------------------------------


def test_under_a_clock_nothing_that_leaves_tells_whether_readings_came(tmp_path, monkeypatch):
    """With readings of the state that is known anyway, late, ahead and unreadable ones, or none: the same bytes."""
    art = artefact(tmp_path / "clock.veil", period_s=60.0)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)

    def run(with_readings: bool) -> list[object]:
        fake, now = Server(), [30.0]
        link = FaultyLink(fake, random.Random(0), 0)
        g = session_on(art, link, clock=True, now=lambda: now[0], uniforms=uniforms(4))
        out: list[object] = []
        ask = link.ask

        async def seen(requests, timeout_s=0):
            out.extend((s, p, h) for s, p, h in requests if s.startswith("veil.out"))
            return await ask(requests)

        link.ask = seen
        asyncio.run(g.handle([message("ann", {"t": 12, "value": 3})]))
        for step in range(6):
            if with_readings:
                asyncio.run(g.handle([message("ann", {"t": now[0], "value": 3}), message("ann", b"{")]))
                odd = [message("ann", {"t": now[0] + s, "value": 5}) for s in (-70, 900, 0)]
                asyncio.run(g.handle(odd))
            now[0] += 60
            asyncio.run(Clock(g, DEFAULT_SPACE)._tick(step, [(DEFAULT_SPACE, "ann")]))
            out.append(_status(g, True))
        return out

    assert run(True) == run(False)


@NEEDS_SERVER
def test_what_comes_with_a_release_does_not_count_the_workers_questions(art, server):
    """The reply of a live release is an inbox of ours: its numbers must not tell how much was asked in between."""
    names = Names("replies")

    async def drive():
        link, replies = await connected(server.urls), []

        async def hear(m):
            replies.append(m.reply)

        await link.nc.subscribe(f"{names.prefix}.out.>", cb=hear)
        for t in range(8):  # each in a batch of its own
            await send(link, names, "ann", [t])
            await until(link, names.releases, t + 1, PATIENCE_S)
        await asyncio.sleep(0.2)
        await link.close()
        return [int(r.rpartition(".")[2].partition("-")[0], 16) for r in replies]

    with Running(art, server.urls, "replies", partitions=1):
        numbers = asyncio.run(drive())
    assert len(set(numbers)) == 8 and numbers != sorted(numbers)
