"""Attacks on the gateway on NATS through answers, under the accounts that are shipped."""

import asyncio
import contextlib
import json

import pytest

from gatewaykit import artefact
from natskit import ANN, META, NEEDS_SERVER, SEAL, VEIL, Running, released, send, stored
from patience import PATIENCE_S

import nats  # isort: skip

from nats_accounts import PASSWORDS, accounts, as_user, settings
from nats_drill import connected, until
from nats_server import NatsCluster
from veilstream.gateway.nats.names import Names


@pytest.fixture(scope="module")
def art(tmp_path_factory):
    return artefact(tmp_path_factory.mktemp("attacks") / "policy.veil")


@contextlib.contextmanager
def shipped(folder):
    cluster = NatsCluster(folder, 1, accounts())
    try:
        yield cluster
    finally:
        cluster.stop()


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
        await until(link, VEIL.releases, 3, PATIENCE_S)
        before = await stored(link), await released(link, VEIL, "ann")
        for target in TARGETS:
            await attack(cluster.urls[0], target)
            await asyncio.sleep(0.3)
            now = await stored(link)
            assert {k: now.get(k) for k in before[0]} == before[0], target
        await until(link, VEIL.readings, 0, PATIENCE_S)
        g.stats.repeated = 0  # eve's own
        assert (await link.api("CONSUMER.INFO.veil-readings.p0"))["config"]["max_deliver"] == -1
        assert await released(link, VEIL, "ann") == before[1] and g.healthy
        await send(device, VEIL, "ann", range(3), 9.0)
        await until(link, VEIL.readings, 0, PATIENCE_S)
        await link.close()
        await device.close()
        return before

    async def again(cluster, before):
        link, device = await as_user(cluster.urls, "gate"), await as_user(cluster.urls, "device")
        await send(device, VEIL, "ann", range(3), 5.0)
        await until(link, VEIL.readings, 0, PATIENCE_S)
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
            for m in await pull.fetch(5 - len(found), timeout=PATIENCE_S):
                found.append(json.loads(m.data)["t"])
                await m.ack()
        status = json.loads((await nc.request("veil.status", timeout=PATIENCE_S)).data)
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
        for _ in range(20 * PATIENCE_S):
            await asyncio.sleep(0.05)
            if heard:
                break
        await asyncio.sleep(0.3)  # and no more
        keys = await stored(link, names)
        await link.close()
        return heard, keys

    with Running(art, server.urls, "inbox", partitions=1) as g:
        heard, keys = asyncio.run(drive())
        assert heard == ["_INBOX.me"] and SEAL.open("$KV.inbox-memory.meta 0", keys["$KV.inbox-memory.meta"])
        assert g.stats.connected
