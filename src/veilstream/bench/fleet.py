"""Two local workers against one on the work of a fleet, the two taking turns in one run."""

import os
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

from veilstream.data.readings import from_arrays
from veilstream.data.synthetic import household
from veilstream.fitting import FitOptions
from veilstream.fleet.engines import Failure, Run, engine
from veilstream.fleet.settings import Settings
from veilstream.fleet.task import Task, task_of, work

USERS, ROUNDS, STEPS = 8, 3, 4000


def tasks(users: int = USERS) -> list[Task]:
    """Equal amounts of work: one invented household, under as many names."""
    source = household(STEPS)
    readings = from_arrays(source.t_s, source.points, source.unit, "household")
    settings = Settings(points=6, certify_s=0.0)
    one = task_of("household", readings, FitOptions(n_states=6), settings, seed=0)
    return [replace(one, name=f"household {i}") for i in range(users)]


def seconds(run: Run, what: list[Task]) -> float:
    began = perf_counter()
    outcomes = [outcome for _, outcome in run(work, what)]
    failed = [o.line for o in outcomes if isinstance(o, Failure)]
    if failed or len(outcomes) != len(what):
        raise RuntimeError(f"the benchmark's own tasks failed: {failed[:1]}")
    return perf_counter() - began


def bench_workers(name: str, users: int = USERS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Both pools are up and warm; what is timed is the work. Other load on the machine hurts two more than one."""
    what = tasks(users)
    took: dict[int, list[float]] = {1: [], 2: []}
    with engine(name, 1) as one, engine(name, 2) as two:
        for workers, run in ((1, one), (2, two)):
            seconds(run, what[: 2 * workers])  # imports
        for _ in range(rounds):
            for workers, run in ((1, one), (2, two)):
                took[workers].append(seconds(run, what))
    ratios = [a / b for a, b in zip(took[1], took[2], strict=True)]
    return {
        "users": users,
        "one_worker_s": median(took[1]),
        "two_workers_s": median(took[2]),
        "times_faster": median(ratios),
        "times_faster_each_round": ", ".join(f"{r:.2f}" for r in ratios),
        "cores": os.cpu_count() or 1,
        "load_average": os.getloadavg()[0],
    }


def run() -> dict[str, dict[str, Any]]:
    return {f"workers_{name}": bench_workers(name) for name in ("joblib", "dask")}
