"""Attacks on the gateway on NATS: through answers, forged and foreign records, poison, deleted consumers, presence."""

import asyncio
import contextlib
import hashlib
import json
import random
import socket
import stat
import threading
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from fakejetstream import FaultyLink, Server
from gatewaykit import artefact, wait_until
from natskit import NEEDS_SERVER, SEAL, Running, key_file, message, session_on

import nats  # isort: skip

from veilstream.apps.bench.nats_accounts import PASSWORDS, accounts, as_user, settings
from veilstream.apps.bench.nats_drill import connected, everything, until
from veilstream.apps.bench.nats_server import NatsCluster
from veilstream.core.uniforms import uniforms
from veilstream.errors import InputError
from veilstream.gateway.nats.clock import Clock
from veilstream.gateway.nats.link import Rejected
from veilstream.gateway.nats.members import Members
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.nats.partition import Partition
from veilstream.gateway.nats.seal import FOLLOWS, Seal
from veilstream.gateway.nats.worker import _status

VEIL = Names()
ANN, META = VEIL.key(DEFAULT_SPACE, "ann"), VEIL.meta


@pytest.fixture(scope="module")
def art(tmp_path_factory):
    return artefact(tmp_path_factory.mktemp("attacks") / "policy.veil")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Where everybody may do everything: only seals and checks protect."""
    cluster = NatsCluster(tmp_path_factory.mktemp("open"), 1)
    yield cluster
    cluster.stop()


@contextlib.contextmanager
def shipped(folder):
    cluster = NatsCluster(folder, 1, accounts())
    try:
        yield cluster
    finally:
        cluster.stop()


async def stored(link, names: Names = VEIL) -> dict[str, bytes]:
    """What the bucket holds, but for the probe."""
    return {m["subject"]: m["data"] for m in await everything(link, names.memory) if m["subject"] != names.probe}


async def send(link, names: Names, stream: str, steps, value: float = 3.0) -> None:
    bodies = [json.dumps({"t": t, "value": value}).encode() for t in steps]
    for body in bodies:
        (answer,) = await link.ask([(names.reading(DEFAULT_SPACE, stream), body, None)])
        assert isinstance(answer, dict)


async def released(link, names: Names, stream: str) -> list[bytes]:
    return [m["data"] for m in await everything(link, names.releases) if m["subject"].endswith(f".{stream}")]


# --- through answers, under the accounts that are shipped --------------------------------------------------------


TARGETS = (ANN, META, "veil.workers", "veil.out.default.ann", "$JS.API.STREAM.DELETE.KV_veil-memory")
TARGETS += ("$JS.API.STREAM.PURGE.KV_veil-memory", "$JS.API.CONSUMER.DELETE.veil-readings.p0")
NEXT = "$JS.API.CONSUMER.MSG.NEXT.veil-releases."


async def attack(url: str, target: str) -> None:
    """Everything we know that has the server, or a worker, write to a subject of the attacker's choice."""

    async def ignore(error: Exception) -> None:
        """Permission errors are what is wanted."""

    for user in ("device", "service"):
        password = PASSWORDS[f"{user.upper()}_PASSWORD"]
        nc = await nats.connect(url, user=user, password=password, error_cb=ignore, inbox_prefix=f"_INBOX.{user}")
        nothing = {"name": "eve", "durable_name": "eve", "ack_policy": "explicit", "filter_subject": "veil.out.no.one"}
        pushed = {"name": "push", "deliver_subject": target, "ack_policy": "none"}
        for subject, body in (
            ("$JS.API.CONSUMER.CREATE.veil-releases.eve", {"stream_name": "veil-releases", "config": nothing}),
            ("$JS.API.CONSUMER.CREATE.veil-releases.push", {"stream_name": "veil-releases", "config": pushed}),
            (f"{NEXT}eve", {"batch": 1, "no_wait": True}),
            (f"{NEXT}service", {"batch": 9, "no_wait": True}),
            (f"{NEXT}service", "nonsense"),
            ("$JS.ACK.veil-releases.service.1.1.1.1.0", "+NXT"),
            ("veil.status", ""),
            ("veil.in.default.eve", {"t": 1, "value": 1}),
            ("veil.in.default.eve", "nonsense"),
            ("$JS.API.STREAM.INFO.veil-releases", ""),
            ("$JS.API.INFO", ""),
            ("$SYS.REQ.USER.INFO", ""),
            (target, ""),
        ):
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            for headers in (None, {"Nats-Trace-Dest": target}, {"Nats-Rollup": "all"}):
                await nc.publish(subject, data, reply=target, headers=headers)
        await nc.flush()
        await nc.close()


@NEEDS_SERVER
def test_outsiders_cannot_write_near_the_memory_not_even_by_their_answers(art, tmp_path):
    """A ceiling of 2.2 bits is spent; whatever is tried, nothing is drawn again, after a restart neither."""

    async def drive(cluster, g):
        link, device = await as_user(cluster.urls, "gate"), await as_user(cluster.urls, "device")
        await send(device, VEIL, "ann", range(3))
        await until(link, VEIL.releases, 3, 10)
        before = await stored(link), await released(link, VEIL, "ann")
        for target in TARGETS:
            await attack(cluster.urls[0], target)
            await asyncio.sleep(0.3)
            now = await stored(link)
            assert {k: now.get(k) for k in before[0]} == before[0], target
        await until(link, VEIL.readings, 0, 10)
        g.stats.repeated = 0  # eve's own
        assert (await link.api("CONSUMER.INFO.veil-readings.p0"))["config"]["max_deliver"] == -1
        assert await released(link, VEIL, "ann") == before[1] and g.healthy
        await send(device, VEIL, "ann", range(3), 9.0)
        await until(link, VEIL.readings, 0, 10)
        await link.close()
        await device.close()
        return before

    async def again(cluster, before):
        link, device = await as_user(cluster.urls, "gate"), await as_user(cluster.urls, "device")
        await send(device, VEIL, "ann", range(3), 5.0)
        await until(link, VEIL.readings, 0, 10)
        assert (await stored(link))[ANN] == before[0][ANN] and await released(link, VEIL, "ann") == before[1]
        await link.close()
        await device.close()

    with shipped(tmp_path) as cluster:
        run = {"link": settings(cluster.urls, "gate"), "partitions": 2, "ceiling": 2.2}
        running = Running(art, cluster.urls, "veil", **run)
        with running as g:
            before = asyncio.run(drive(cluster, g))
            assert g.stats.repeated == 3 and not g.stats.refused["memory"]
        assert not running.error
        with Running(art, cluster.urls, "veil", **run) as g:
            asyncio.run(again(cluster, before))
            assert g.stats.released == 0 and g.stats.repeated == 3 and not g.stats.refused["memory"]


@NEEDS_SERVER
def test_a_service_reads_every_release_by_the_consumer_that_is_there_for_it_and_asks_for_the_status(art, tmp_path):
    async def drive(cluster):
        device = await as_user(cluster.urls, "device")
        await send(device, VEIL, "ann", range(5))
        await device.close()
        nc = await nats.connect(
            cluster.urls[0], user="service", password=PASSWORDS["SERVICE_PASSWORD"], inbox_prefix="_INBOX.service"
        )
        pull = await nc.jetstream().pull_subscribe_bind("service", VEIL.releases)
        found = []
        while len(found) < 5:
            for m in await pull.fetch(5 - len(found), timeout=5):
                found.append(json.loads(m.data)["t"])
                await m.ack()
        status = json.loads((await nc.request("veil.status", timeout=2)).data)
        await nc.close()
        return found, status

    with shipped(tmp_path) as cluster, Running(art, cluster.urls, "veil", settings(cluster.urls, "gate"), partitions=2):
        found, status = asyncio.run(drive(cluster))
    assert found == [0, 1, 2, 3, 4] and status["released"] == 5 and status["healthy"] is True


@NEEDS_SERVER
def test_only_an_inbox_gets_an_answer(art, server):
    async def drive():
        link, names = await connected(server.urls), Names("inbox")
        heard = []

        async def hear(m):
            heard.append(m.subject)

        for subject in ("inbox.target", "_INBOX.me"):
            await link.nc.subscribe(subject, cb=hear)
            await link.nc.publish(f"{names.prefix}.status", b"", subject)
        await link.nc.publish(f"{names.prefix}.status", b"", names.meta)
        await asyncio.sleep(0.5)
        keys = await stored(link, names)
        await link.close()
        return heard, keys

    with Running(art, server.urls, "inbox", partitions=1) as g:
        heard, keys = asyncio.run(drive())
        assert heard == ["_INBOX.me"] and SEAL.open("$KV.inbox-memory.meta 0", keys["$KV.inbox-memory.meta"])
        assert g.stats.connected


# --- records that nobody of ours wrote ---------------------------------------------------------------------------


def forge(own: bytes, other: bytes) -> dict[str, bytes]:
    flipped = bytearray(own)
    flipped[20] ^= 1
    return {
        "empty": b"",
        "an answer of the server": b'{"stream":"veil-readings","seq":7}',
        "of another stream": other,
        "one bit": bytes(flipped),
        "cut": own[:-1],
        "another key": Seal(bytes(32)).put(f"{ANN} 1", own[:-32]),
        "sealed, but of another version": SEAL.put(f"{ANN} 1", b"\x93\x09\x01\x02"),
    }


@pytest.mark.parametrize("how", forge(bytes(64), b""))
@pytest.mark.parametrize("cached", [True, False])
def test_a_foreign_record_refuses_its_stream_and_nothing_else(art, how, cached, monkeypatch):
    fake = Server()
    g = session_on(art, FaultyLink(fake, random.Random(0), 0))
    asyncio.run(g.handle([message(s, {"t": 0, "value": 3}) for s in ("ann", "bob")]))
    own, other = (fake.history[VEIL.key(DEFAULT_SPACE, s)][-1][1] for s in ("ann", "bob"))
    sent = dict(fake.published)
    fake.last += 1
    fake.history[ANN].append((fake.last, forge(own, other)[how]))
    fake.headers[fake.last] = {FOLLOWS: "1"}  # as a worker would
    if not cached:
        g = session_on(art, FaultyLink(fake, random.Random(0), 0))
    both = [message(s, {"t": t, "value": 3}, f"{s}{t}") for t in (0, 1, 2) for s in ("ann", "bob")]
    assert asyncio.run(g.handle(both)) == both  # all may be acknowledged: the queue does not stop
    assert len(fake.history[ANN]) == 2  # and nothing was written over it
    assert {k for k in fake.published if k.startswith("default.ann")} == {"default.ann.0"}
    assert fake.published["default.ann.0"] == sent["default.ann.0"]
    assert g.stats.refused["memory"] == 3
    assert {"default.bob.1", "default.bob.2"} <= fake.published.keys()


ELSEWHERE = {FOLLOWS: "0", f"{FOLLOWS}-Subject": "$KV.nothing.there"}  # compared with a key that has no revision


@NEEDS_SERVER
@pytest.mark.parametrize("header", ["none", "latest", "another subject's"])
@pytest.mark.parametrize("which", ["stream", "policy"])
def test_an_old_record_put_back_is_noticed(art, server, header, which):
    """By somebody who may write there, as it was, with every header the server takes: nothing is drawn again."""
    names = Names(f"old-{header[0]}-{which}")

    async def put_back(old: bytes, key: str) -> None:
        link = await connected(server.urls)
        last = (await link.api(f"STREAM.MSG.GET.{names.memory}", last_by_subj=key))["message"]["seq"]
        headers = {"none": None, "latest": {FOLLOWS: str(last)}, "another subject's": ELSEWHERE}[header]
        assert (await link.request((key, old, headers)))["seq"] > last
        await link.close()

    async def old_and_new() -> tuple[bytes, list[bytes]]:
        link = await connected(server.urls)
        await send(link, names, "ann", [0])
        await until(link, names.readings, 0, 10)
        old = (await stored(link, names))[key]
        await send(link, names, "ann", [1, 2])
        await until(link, names.readings, 0, 10)
        found = await released(link, names, "ann")
        await link.close()
        return old, found

    async def again() -> list[bytes]:
        link = await connected(server.urls)
        await send(link, names, "ann", [1, 2, 3], 9.0)
        await until(link, names.readings, 0, 10)
        found = await released(link, names, "ann")
        await link.close()
        return found

    key = names.meta if which == "policy" else names.key(DEFAULT_SPACE, "ann")
    with Running(art, server.urls, names.prefix, partitions=1):
        old, before = asyncio.run(old_and_new())
    asyncio.run(put_back(old, key))
    if which == "policy":
        with pytest.raises(InputError, match="not sealed with this key"):
            Running(art, server.urls, names.prefix).gateway.probe()
        return
    with Running(art, server.urls, names.prefix, partitions=1) as g:
        assert asyncio.run(again()) == before
        assert g.stats.refused["memory"] == 3


def test_a_refused_stream_does_not_hold_up_the_tick_of_the_others(tmp_path):
    art, fake = artefact(tmp_path / "clock.veil", period_s=60.0), Server()
    g = session_on(art, FaultyLink(fake, random.Random(0), 0), clock=True, now=lambda: 30.0)
    fake.history[ANN] = [(7, b"")]
    asyncio.run(g.handle([message("bob", {"t": 12, "value": 3})]))
    keys = [(DEFAULT_SPACE, "ann"), (DEFAULT_SPACE, "bob")]
    assert asyncio.run(Clock(g, DEFAULT_SPACE)._tick(0, keys)) == ([], [])
    assert set(fake.published) == {"default.bob.0"}


@NEEDS_SERVER
def test_a_policy_record_written_over_ends_nobody_and_a_rebind_mends_it(art, server):
    names = Names("meta")

    async def junk(value: bytes):
        link = await connected(server.urls)
        await link.request((names.meta, value, None))
        await link.close()

    async def one(t):
        link = await connected(server.urls)
        await send(link, names, "ann", [t])
        await until(link, names.readings, 0, 10)
        found = await released(link, names, "ann")
        await link.close()
        return found

    for value in (b"", b'{"uptime_s":3.0}', Seal(bytes(32)).put(names.meta, b'{"schema":1,"spaces":{}}')):
        running = Running(art, server.urls, "meta", partitions=1, rebind=True)
        with running as g:
            first = asyncio.run(one(0))
            asyncio.run(junk(value))
            time.sleep(2.5)  # it has looked
            assert g.stats.connected and asyncio.run(one(0)) == first and not running.error
        with pytest.raises(InputError, match=r"`key_file=FILE`.*`rebind=True`"):
            Running(art, server.urls, "meta").gateway.probe()
    with Running(art, server.urls, "meta", rebind=True) as g:
        assert asyncio.run(one(0)) == first and g.stats.released == 0


# --- the key -----------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_for_its_owner_alone(tmp_path):
    path = tmp_path / "key"
    made = []
    threads = [threading.Thread(target=lambda: made.append(Seal.of_file(str(path)).key)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(made)) == 1 and [p.name for p in tmp_path.iterdir()] == ["key"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and made[0].hex() not in repr(Seal(made[0]))
    path.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        Seal.of_file(str(path))
    path.chmod(0o600)
    path.write_text("secret")
    with pytest.raises(InputError, match="64 hexadecimal digits") as caught:
        Seal.of_file(str(path))
    assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read or made: No such file"):
        Seal.of_file(str(tmp_path / "no" / "key"))


@NEEDS_SERVER
def test_a_worker_without_the_key_is_refused_and_makes_none(art, server, tmp_path):
    with Running(art, server.urls, "keyed", partitions=1) as g:
        with pytest.raises(InputError, match="copy the key of another worker"):
            Running(art, server.urls, "keyed", key=str(tmp_path / "new")).gateway.probe()
        assert not (tmp_path / "new").exists()
        Seal.of_file(str(tmp_path / "other"))
        with pytest.raises(InputError, match="not sealed with this key"):
            Running(art, server.urls, "keyed", key=str(tmp_path / "other")).gateway.probe()
        assert g.stats.connected
    Running(art, server.urls, "keyed", key=key_file()).gateway.probe()


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
    from veilstream.gateway.nats import session as module

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
    settle = g.settler.settle

    def fragile(readings, *more):
        if any(getattr(r, "point", None) == 13.0 for r in readings):
            raise RuntimeError
        return settle(readings, *more)

    g.settler.settle = fragile
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
        wait_until(lambda: not g.healthy, 10, "a word about it")
        assert asyncio.run(one()) == 1 and g.stats.released == 0
        asyncio.run(limit(-1))
        wait_until(lambda: g.healthy and g.stats.released == 1, 10, "the release")


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
            await until(link, names.releases, t + 1, 10)
        await asyncio.sleep(0.2)
        await link.close()
        return [int(r.rpartition(".")[2].partition("-")[0], 16) for r in replies]

    with Running(art, server.urls, "replies", partitions=1):
        numbers = asyncio.run(drive())
    assert len(set(numbers)) == 8 and numbers != sorted(numbers)


def test_a_missing_stream_is_not_taken_for_a_new_one(art):
    """The bucket is gone: its streams cannot be read, which is not the same as having none."""
    g = session_on(art, FaultyLink(Server(), random.Random(0), 0))

    async def no_bucket(requests, timeout_s=0):
        return [Rejected({"code": 404, "err_code": 10059, "description": "stream not found"}) for _ in requests]

    g.link.ask = no_bucket
    loan = asyncio.run(g.ledger.lend([(DEFAULT_SPACE, "ann")]))
    assert not loan.records and not loan.refused
