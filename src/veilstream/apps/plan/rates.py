"""What one core does here: the gateway with its store, a worker and a node of NATS, and the making of one model."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from veilstream.apps.plan.needs import NODES, Rates
from veilstream.solvers.solution import Progress

if TYPE_CHECKING:
    from veilstream.apps.bench.nats_server import NatsCluster
    from veilstream.artefact import Artefact

STREAMS, STEPS = 500, 20
BATCH = 256
CITY_STEPS = 7_000
CITY_KM = 0.5


def measure(policy: Path | None = None, nats: bool = True, progress: Progress | None = None) -> Rates:
    """All rates; of the given policy, or of one on the 4x4 grid of the paper."""
    from veilstream.artefact import load

    tell = progress or (lambda done, what: None)
    with tempfile.TemporaryDirectory(prefix="veil-plan-") as name:
        folder = Path(name)
        policy = policy or _example(folder)
        tell(0.0, "a gateway with its store")
        per_s, size = store_rate(load(policy), folder)
        tell(0.3, "fitting and solving one user")
        solve_s, places = solve_seconds()
        found = None
        if nats:
            tell(0.6, "NATS: three nodes, one worker")
            found = nats_seconds(load(policy), folder)
        tell(1.0, "done")
    return Rates(per_s, size, solve_s, places, *(found or ()))


def _example(folder: Path) -> Path:
    from veilstream.apps.bench.echo import example
    from veilstream.artefact import save

    problem, policy = example()
    save(folder / "policy.veil", policy, problem=problem)
    return folder / "policy.veil"


def store_rate(artefact: Artefact, folder: Path) -> tuple[float, float]:
    """Readings/s of the gateway's core with its durable store, and bytes a release takes there."""
    from veilstream.gateway.core import Core
    from veilstream.gateway.settle import Serving
    from veilstream.gateway.space import Space
    from veilstream.gateway.store import Store
    from veilstream.gateway.wire import Reading

    space, path, ahead = Space(artefact, force=True), folder / "plan.db", Serving(max_ahead=STEPS + 1)
    core = Core({"": space}, Store(path, {"": space.binding}), ahead, now=lambda: space.grid.epoch_s)
    points = [space.shown[y] for y in range(len(space.shown))]
    readings = []
    for step in range(STEPS):
        for i in range(STREAMS):
            value, lat, lon = points[(7 * i + 3 * step) % len(points)]
            readings.append(Reading(f"s{i}", step, space.grid.time(step), value if lat is None else (lat, lon)))  # type: ignore[arg-type]
    began = time.perf_counter()
    for start in range(0, len(readings), BATCH):
        core.process(readings[start : start + BATCH])
    took = time.perf_counter() - began
    core.close()
    size = sum(p.stat().st_size for p in folder.glob("plan.db*"))
    return len(readings) / took, size / len(readings)


def solve_seconds() -> tuple[float, int]:
    """Core seconds from steps to a policy for an invented commuter, and how many places that one has."""
    from veilstream.core.chain import MarkovChain
    from veilstream.core.problem import Average, Problem
    from veilstream.data.synthetic import city
    from veilstream.solvers import solve

    source = city(CITY_STEPS, 0)
    began = time.process_time()
    chain = MarkovChain.fit([source.path], n_states=len(source.states))
    solve(Problem(chain, source.states.distances(), Average(limit=CITY_KM)))
    return time.process_time() - began, len(source.states)


def nats_seconds(artefact: Artefact, folder: Path) -> tuple[float, ...] | None:
    """Core seconds a reading of a worker and of one of three nodes, bytes of a stream and of a release, how long that
    is kept; None without a server."""
    from importlib.util import find_spec

    from veilstream.apps.bench.nats_server import NatsCluster, nats_command
    from veilstream.artefact import save

    if nats_command() is None or find_spec("nats") is None or not Path("/proc/self/stat").exists():
        return None
    policy = folder / "steps.veil"  # without places or a period: readings are symbols, times are steps
    save(policy, artefact.policy, problem=artefact.problem)
    cluster = NatsCluster(folder, NODES)
    try:
        return asyncio.run(_nats(folder, policy, cluster))
    finally:
        cluster.stop()


async def _nats(folder: Path, policy: Path, cluster: NatsCluster) -> tuple[float, ...]:
    """One round to warm up, then the cost of the others."""
    from veilstream.apps.bench.nats_drill import connected, feed, until, worker
    from veilstream.errors import InputError
    from veilstream.gateway.nats.layout import RELEASES_AGE_S
    from veilstream.gateway.nats.names import Names

    names, link = Names("veil-plan"), await connected(cluster.urls)
    process = worker(policy, cluster.urls, folder / "worker.log", "--prefix", names.prefix)
    nodes = [node.process.pid for node in cluster.nodes]
    try:
        for _ in range(100):  # the worker makes the streams
            if await until(link, names.releases, 0, 0.3) == 0:
                break
        await feed(link, names, STREAMS, range(1))
        await until(link, names.releases, STREAMS, 30)
        before = core_seconds(process.pid), sum(map(core_seconds, nodes))
        await feed(link, names, STREAMS, range(1, STEPS))
        done = await until(link, names.releases, STREAMS * STEPS, 60)
        after = core_seconds(process.pid), sum(map(core_seconds, nodes))
        if done != STREAMS * STEPS:
            raise InputError(f"the NATS worker released {max(done, 0)} of {STREAMS * STEPS} readings within a minute")
        keys, messages = [
            int((await link.api(f"STREAM.INFO.{which}"))["state"]["bytes"]) for which in (names.memory, names.releases)
        ]
    finally:
        process.terminate()
        process.wait(15)
        await link.close()
    n = STREAMS * (STEPS - 1)
    spent = (after[0] - before[0]) / n, (after[1] - before[1]) / n / len(nodes)
    return *spent, keys / STREAMS, messages / (STREAMS * STEPS), RELEASES_AGE_S


def core_seconds(pid: int) -> float:
    """User and system time of a process, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
