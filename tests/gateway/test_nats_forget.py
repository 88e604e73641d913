"""Forgetting on a cluster: one compare-and-set while workers run; steps stay closed, whatever answers are lost."""

import asyncio
import json
import random
from contextlib import closing

import pytest

pytest.importorskip("nats", reason="needs nats-py: pip install 'veilstream[nats]'")

from fakejetstream import FaultyLink, Server
from gatewaykit import artefact
from nats_drill import connected, everything
from nats_server import NatsCluster
from natskit import NEEDS_SERVER, SEAL, Running, key_file, message, session_on
from patience import wait_until
from veilcli import refused, veil
from veilstream.errors import InputError
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.ledger import Ledger, decode
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.nats.owner import forget_key
from veilstream.gateway.nats.session import Clock

NAMES, KEY = Names(), (DEFAULT_SPACE, "ann")


@pytest.fixture(scope="module")
def art(tmp_path_factory):
    return artefact(tmp_path_factory.mktemp("nats") / "policy.veil")


def reading(step, value=3.0, stream="ann"):
    return message(stream, {"t": step, "value": value}, f"{stream}/{step}")


def forget(link, seal=SEAL):
    return asyncio.run(forget_key(link, Ledger(link, NAMES, seal, {}), NAMES, KEY))


def kept(session, server):
    revision, body = server.history[NAMES.key(*KEY)][-1]
    opened = SEAL.recorded(NAMES.key(*KEY), server.stored(revision, body))
    return decode(KEY, revision, opened, session.ledger._bindings[DEFAULT_SPACE])


@pytest.mark.parametrize("faults", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_her_steps_stay_closed_and_her_bits_counted(art, faults, seed):
    server, rng = Server(), random.Random(seed)
    worker = session_on(art, FaultyLink(server, random.Random(0), 0))
    asyncio.run(worker.handle([reading(step) for step in range(5)]))
    before = kept(worker, server)
    gone = forget(FaultyLink(server, rng, faults))
    after = kept(worker, server)
    if not faults:
        assert (gone.last_step, gone.leaked_bits, gone.releases) == (4, before.stream.total, len(before.log))
    assert (after.stream.last_step, after.stream.total) == (4, before.stream.total)
    assert (
        after.log == []
        and after.stream.memory is None
        and after.stream.belief is None
        and after.stream.private.state == -1
    )
    drawn = {k: list(v) for k, v in server.published.items() if k.startswith("default.")}
    for g in (worker, session_on(art, FaultyLink(server, random.Random(0), 0))):  # one with a cache, one without
        asyncio.run(g.handle([reading(2, 9.0)]))
    assert all(len(set(v)) == 1 for k, v in server.published.items() if k in drawn)  # never another release
    asyncio.run(worker.handle([reading(5)]))  # its cache is behind: refused, read, drawn
    assert kept(worker, server).stream.total >= before.stream.total
    assert len(server.published["default.ann.5"]) == 1


def test_a_stream_that_is_not_there_or_not_ours(art):
    server = Server()
    link = FaultyLink(server, random.Random(0), 0)
    assert forget(link) is None
    asyncio.run(session_on(art, link).handle([reading(0)]))
    with pytest.raises(InputError, match="not sealed with this key"):
        forget(link, Seal(bytes(32)))
    first, second = (forget(link) for _ in range(2))
    assert (first.before, second.before) == (False, True)


def test_a_clock_does_not_tick_for_her(tmp_path):
    art, server = artefact(tmp_path / "p.veil", period_s=60.0), Server()
    link = FaultyLink(server, random.Random(0), 0)
    g = session_on(art, link, now=lambda: 630.0, clock=True)
    asyncio.run(g.handle([message(s, {"t": 601, "value": 3.0}, s) for s in ("ann", "bob")]))
    clock, keys = Clock(g, DEFAULT_SPACE), [KEY, (DEFAULT_SPACE, "bob")]
    asyncio.run(clock._tick(10, keys))
    forget(link)
    fresh = session_on(art, link, now=lambda: 690.0, clock=True)
    asyncio.run(Clock(fresh, DEFAULT_SPACE)._tick(11, keys))
    ticked = [k for k in server.published if k.endswith(".11")]
    assert ticked == ["default.bob.11"]


def cluster_of(folder):
    cluster = NatsCluster(folder, 1)
    cluster.close = cluster.stop
    return cluster


@NEEDS_SERVER
def test_the_command_while_a_worker_runs(tmp_path, art):
    names = Names("gone")
    with closing(cluster_of(tmp_path)) as server:

        async def send(*steps):
            link = await connected(server.urls)
            bodies = [json.dumps({"t": step, "value": 3.0}).encode() for step in steps]
            await link.ask([(names.reading(*key), b, None) for b in bodies for key in (KEY, (DEFAULT_SPACE, "bob"))])
            await link.close()

        async def released():
            link = await connected(server.urls)
            found = [json.loads(m["data"]) for m in await everything(link, names.releases)]
            await link.close()
            return sorted((r["stream"], r["t"]) for r in found)

        with Running(art, server.urls, "gone", partitions=2, replicas=1) as worker:
            asyncio.run(send(0, 1))
            wait_until(lambda: worker.stats.released == 4)
            flags = ("--nats", server.urls[0], "--nats-key", key_file(), "--option", "prefix=gone")
            told = json.loads(veil("forget", "ann", *flags, "--json").stdout)
            assert told["spaces"][0]["last_step"] == 1 and any("second time" in line for line in told["remains"])
            assert asyncio.run(released()) == [("bob", 0), ("bob", 1)]
            asyncio.run(send(1, 2))  # a step that is closed, and a new one
            wait_until(lambda: worker.stats.released >= 6)
            assert asyncio.run(released()) == [("ann", 2), ("bob", 0), ("bob", 1), ("bob", 2)]
            refused("forget", "carl", *flags, says="no stream 'carl'")


def test_bad_input_is_one_line(tmp_path):
    refused("forget", "ann", says="say where: --store FILE, or --nats URL")
    refused("forget", "ann", "--nats", "nats://127.0.0.1:1", says="--nats-key FILE")
    refused(
        "forget", "ann", "--nats", "nats://127.0.0.1:1", "--nats-key", key_file(), says="cannot reach a NATS server"
    )
