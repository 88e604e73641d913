"""Two local workers against one on the work of a fleet, the two taking turns in one run."""

import os
from dataclasses import replace
from statistics import median
from time import perf_counter, process_time
from typing import Any

from veilstream.apps.fleet.engines import Failure, Run, engine
from veilstream.apps.fleet.spec import FleetSpec
from veilstream.apps.fleet.task import Task, task_of, work
from veilstream.data.readings import from_arrays
from veilstream.data.spec import FitSpec
from veilstream.data.synthetic import household

USERS, ROUNDS, STEPS = 8, 3, 4000


def tasks(users: int = USERS) -> list[Task]:
    """Equal amounts of work: one invented household, under as many names."""
    source = household(STEPS)
    readings = from_arrays(source.t_s, source.points, source.unit, "household")
    one = task_of("household", readings, FitSpec(n_states=6, cycle="none"), FleetSpec(points=6, certify=0.0))
    return [replace(one, name=f"household {i}") for i in range(users)]


def cpu_seconds(task: Task) -> float:
    """The work of one user; what it cost of a processor."""
    began = process_time()
    work(task)
    return process_time() - began


def timed(run: Run[Task], what: list[Task]) -> tuple[float, float]:
    """Seconds on the clock, and seconds of a processor."""
    began = perf_counter()
    outcomes = [outcome for _, outcome in run(cpu_seconds, what)]
    failed = [o.line for o in outcomes if isinstance(o, Failure)]
    if failed or len(outcomes) != len(what):
        raise RuntimeError(f"the benchmark's own tasks failed: {failed[:1]}")
    return perf_counter() - began, sum(outcomes)


def bench_workers(name: str, users: int = USERS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Both pools are up and warm, so what is timed is the work.

    `core_each`: the share of a core that every worker got. Well under 1 the machine was busy with something else, and
    `times_faster` says little.
    """
    what = tasks(users)
    took: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    with engine(name, 1) as one, engine(name, 2) as two:
        pools = {1: one, 2: two}
        for workers, run in pools.items():
            timed(run, what[: 2 * workers])  # imports
        for i in range(rounds):
            for workers in (1, 2) if i % 2 == 0 else (2, 1):
                took[workers].append(timed(pools[workers], what))
    ratios = [a / b for (a, _), (b, _) in zip(took[1], took[2], strict=True)]
    found: dict[str, Any] = {"users": users}
    for workers, word in ((1, "one_worker"), (2, "two_workers")):
        found[f"{word}_s"] = median(wall for wall, _ in took[workers])
        found[f"{word}_cpu_s"] = median(cpu for _, cpu in took[workers])
        found[f"{word}_core_each"] = median(cpu / wall / workers for wall, cpu in took[workers])
    return {
        **found,
        "times_faster": median(ratios),
        "times_faster_each_round": ", ".join(f"{r:.2f}" for r in ratios),
        "cores": os.cpu_count() or 1,
        "load_average": os.getloadavg()[0],
    }


def run() -> dict[str, dict[str, Any]]:
    return {f"workers_{name}": bench_workers(name) for name in ("joblib", "dask")}
