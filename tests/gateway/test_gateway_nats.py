"""The gateway on NATS JetStream: a real server, a real cluster."""

import asyncio
import json
import logging
import threading
import time

import pytest

from benchmarks.nats import cluster_in, kill_drill, ready
from gatewaykit import artefact
from nats_drill import FAULTS, account, agrees, connected, everything, feed, until, worker
from natskit import NEEDS_SERVER, SEAL, Running, key_file, session_on
from patience import PATIENCE_S
from veilcli import refused as refused_line
from veilcli import veil
from veilstream.artefact import dumps, load
from veilstream.gateway.nats import layout as layout_module
from veilstream.gateway.nats.client import Puller
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.layout import NatsSettings, binding_of, consumer, prepare, promises_of
from veilstream.gateway.nats.ledger import Ledger
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names, partition_of, token
from veilstream.gateway.nats.partition import Partition
from veilstream.gateway.space import Space


@pytest.fixture(scope="module")
def art(tmp_path_factory):
    return artefact(tmp_path_factory.mktemp("nats") / "policy.veil")


# --- a real server ---------------------------------------------------------------------------------------------


async def partitions(link, names: Names, workers: int) -> list[int]:
    """How many each worker owns, by their own word."""
    inbox = "_INBOX.test"
    answers = await link.nc.subscribe(inbox)
    await link.nc.publish(f"{names.prefix}.status", b"", inbox)
    found = [json.loads((await answers.next_msg(5)).data) for _ in range(workers)]
    await answers.unsubscribe()
    return [len(status["partitions"]) for status in found]


@NEEDS_SERVER
def test_one_server_two_workers_leaving_and_coming(art, server):
    """Readings go on while workers come and go; the account must be clean and nothing may be drawn twice."""
    names = Names("w2")

    async def drive():
        link = await connected(server.urls)
        with Running(art, server.urls, "w2", partitions=4) as first:
            await feed(link, names, 20, range(5))
            with Running(art, server.urls, "w2") as second:
                await feed(link, names, 20, range(5, 20))
                await until(link, names.releases, 400, PATIENCE_S)
                assert sorted(await partitions(link, names, 2)) == [2, 2]
            await feed(link, names, 20, range(20, 25))
            await until(link, names.releases, 500, PATIENCE_S)
            assert await partitions(link, names, 1) == [4]
            assert await until(link, names.readings, 0, PATIENCE_S) == 0  # true values are gone
            assert first.stats.released + second.stats.released == 500 and second.stats.released > 0
        found = await account(link, names, SEAL, art, 20, 25)
        await link.close()
        return found

    found = asyncio.run(drive())
    assert {k: found[k] for k in FAULTS} == dict.fromkeys(FAULTS, 0) and found["releases"] == 500


async def pulled(puller: Puller, n: int) -> list:
    """So many readings, also on a busy machine."""
    got: list = []
    for _ in range(PATIENCE_S):
        got += await puller.pull(n - len(got), 1.0) if len(got) < n else []
    assert len(got) == n
    return got


@NEEDS_SERVER
def test_what_a_dead_worker_holds_comes_first(art, server, monkeypatch):
    """It took the first readings and is gone: the new owner must wait for them, or their steps would be closed."""
    names = Names("order")
    monkeypatch.setattr(layout_module, "ACK_WAIT_S", 2)

    async def drive():
        link = await connected(server.urls)
        await prepare(
            link, NatsSettings(key_file(), names=names, partitions=1), promises_of({DEFAULT_SPACE: Space(art)})
        )
        await feed(link, names, 3, range(4))
        dead = await Puller.open(link, names.readings, consumer(0))
        await pulled(dead, 6)  # steps 0 and 1, never acknowledged
        with Running(art, server.urls, "order") as g:
            await until(link, names.releases, 12, PATIENCE_S)
            refused = sum(g.stats.refused.values())
        out = [json.loads(m["data"])["t"] for m in await everything(link, names.releases)]
        found = await account(link, names, SEAL, art, 3, 4)
        await link.close()
        return refused, out, found

    refused, out, found = asyncio.run(drive())
    assert refused == 0 and out == sorted(out)
    assert {k: found[k] for k in FAULTS} == dict.fromkeys(FAULTS, 0)


@NEEDS_SERVER
def test_a_sleeper_drops_what_others_did_and_waits_for_what_they_hold(art, server, monkeypatch):
    """It wakes with readings that were released meanwhile; counting would let it overtake those in other hands."""
    names = Names("sleeper")
    monkeypatch.setattr(layout_module, "ACK_WAIT_S", 1)

    async def drive():
        link = await connected(server.urls)
        await prepare(
            link, NatsSettings(key_file(), names=names, partitions=1), promises_of({DEFAULT_SPACE: Space(art)})
        )
        await feed(link, names, 3, range(2))
        sleeper = await Partition.open(session_on(art, link, names), 0, threading.Event())
        other = await Puller.open(link, names.readings, consumer(0))
        sleeper._add(await pulled(sleeper._puller, 6))
        assert sorted(sleeper._held) == [1, 2, 3, 4, 5, 6]
        with Running(art, server.urls, "sleeper"):
            await until(link, names.readings, 0, PATIENCE_S)
        await feed(link, names, 3, [2])
        await pulled(other, 3)
        await feed(link, names, 3, [3])
        sleeper._add(await pulled(sleeper._puller, 3))
        info = await link.api(f"CONSUMER.INFO.{names.readings}.p0")
        assert info["num_ack_pending"] <= len(sleeper._held)  # counting is fooled
        assert await sleeper._clear() == [] and sorted(sleeper._held) == [10, 11, 12]
        await asyncio.sleep(1.2)
        sleeper._add(await pulled(sleeper._puller, 3))
        clear = await sleeper._clear()
        await link.close()
        return clear

    assert asyncio.run(drive()) == [7, 8, 9, 10, 11, 12]


@NEEDS_SERVER
def test_names_that_no_subject_may_hold_travel(art, server):
    names, odd = Names("odd"), "a. *>/ä="

    async def drive():
        link = await connected(server.urls)
        with Running(art, server.urls, "odd", partitions=2):
            await link.request((names.reading(DEFAULT_SPACE, odd), b'{"t":1,"value":3}', None))
            await until(link, names.readings, 0, PATIENCE_S)
            out = await everything(link, names.releases)
        await link.close()
        return out

    (found,) = asyncio.run(drive())
    assert found["subject"] == f"odd.out.default.{token(odd)}" and json.loads(found["data"])["stream"] == odd


@NEEDS_SERVER
@pytest.mark.slow
def test_under_a_clock_every_stream_releases_once_per_step_through_a_kill(tmp_path, server):
    """Readings come for one step only; then a worker is killed, and the other ticks for all."""
    art = artefact(tmp_path / "clock.veil", period_s=1.0)
    names, streams = Names("clock"), [f"s{i}" for i in range(8)]

    async def drive():
        link = await connected(server.urls)
        options = ("--option", "prefix=clock", "--option", "partitions=4", "--clock")
        workers = [worker(tmp_path / "clock.veil", server.urls, tmp_path / f"{i}.log", *options) for i in range(2)]
        try:
            await ready(link, names, 2)
            await asyncio.sleep(1.1 - time.time() % 1)  # early in a step: the readings are for this one
            reading = json.dumps({"t": time.time(), "value": 3}).encode()
            await link.ask([(names.reading(DEFAULT_SPACE, name), reading, None) for name in streams])
            await asyncio.sleep(3)
            workers[0].kill()
            await asyncio.sleep(4.5)
        finally:
            for process in workers:
                process.terminate()
                process.wait(PATIENCE_S)
        assert [process.returncode for process in workers] == [-9, 0]
        out = await everything(link, names.releases)
        seal = Seal.of_file(str(tmp_path / "clock.veil.key"))
        ledger = Ledger(link, names, seal, {DEFAULT_SPACE: binding_of(Space(art))})
        kept = (await ledger.lend([(DEFAULT_SPACE, name) for name in streams])).records
        info = await link.api(f"STREAM.INFO.{names.memory}", subjects_filter="$KV.clock-memory.*.*")
        await link.close()
        return out, kept, info["state"]["subjects"]

    out, kept, keys = asyncio.run(drive())
    assert len(keys) == len(streams)
    released = {name: {} for name in streams}
    for m in out:
        body = json.loads(m["data"])
        assert body["t"] not in released[body["stream"]], "twice"
        released[body["stream"]][body["t"]] = m["data"]
    for name, steps in released.items():
        assert len(steps) >= 6 and max(steps) - min(steps) + 1 == len(steps), "a step without a release"
        assert agrees(art, kept[DEFAULT_SPACE, name], steps) == (True, True, True)


@NEEDS_SERVER
def test_we_know_the_servers_partitions(server):
    names = Names("hash")

    async def drive():
        link = await connected(server.urls)
        await prepare(link, NatsSettings(key_file(), names=names, partitions=7), {})
        subjects = [names.reading(f"space {i % 3}", f"s{i}/é") for i in range(40)]
        await link.ask([(s, b"{}", None) for s in subjects])
        found = [m["subject"] for m in await everything(link, names.readings)]
        await link.close()
        return found

    found = asyncio.run(drive())
    assert len(found) == 40
    for subject in found:
        assert partition_of(*names.parse(subject), 7) == int(subject.split(".")[2])


# --- a cluster -------------------------------------------------------------------------------------------------


@NEEDS_SERVER
@pytest.mark.slow
def test_three_nodes_a_worker_and_a_node_killed(art, tmp_path):
    """2,000 readings on 50 streams: every one exactly one release, memory never forks, totals agree."""
    fresh = artefact(tmp_path / "policy.veil")
    with cluster_in(tmp_path, "cluster") as cluster:
        found = asyncio.run(kill_drill(tmp_path, fresh, cluster, streams=50, steps=40, workers=3, partitions=6))
    print("\n ", {k: found[k] for k in ("seed", "worker", "node", "releases", "seconds")})
    assert {k: found[k] for k in FAULTS} == dict.fromkeys(FAULTS, 0), found
    assert found["verdict"] == "ok" and found["releases"] == 2000


@NEEDS_SERVER
def test_the_owner_looks_at_the_memory_while_workers_run_with_the_key_alone(art, tmp_path, server, monkeypatch):
    """Each step counted once in the private sums; somebody without the key sees nothing."""
    monkeypatch.setattr(logging, "raiseExceptions", False)  # an earlier test's log may be closed
    names, path = Names("look"), tmp_path / "p.veil"
    path.write_bytes(dumps(art.policy, problem=art.problem)[1])

    async def drive():
        link = await connected(server.urls)
        await feed(link, names, 3, range(30))
        await until(link, names.releases, 90, PATIENCE_S)
        await link.close()

    where = ("--nats", ",".join(server.urls), "--option", "prefix=look")
    with Running(load(path), server.urls, "look", partitions=2, ceiling=50.0):
        asyncio.run(drive())
        done = veil("status", path, *where, "--nats-key", key_file(), "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        refused_line("status", path, *where, says="there is no key")
        other = tmp_path / "other.key"
        other.touch(0o600)
        other.write_text("ab" * 32)
        refused_line("status", path, *where, "--nats-key", other, says="not sealed with this key")
        refused_line("status", path, *where[:2], "--option", "prefix=no", "--nats-key", key_file(), says="NATS at")
    assert len(found["streams"]) == 3 and found["refused"] == []
    for s in found["streams"]:
        assert (s["last_step"], s["felt_steps"], s["transitions"], s["ceiling_bits"]) == (29, 30, 29, 50.0)
        assert s["leaked_bits"] > 0 and s["felt"]["value"] >= 0 and s["drift"]["same"] == "too little later data to say"
