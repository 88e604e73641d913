"""The fleet from sources to summary: read, pool, hand out, collect, tell."""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from veilstream.apps.fleet import folder as disk
from veilstream.apps.fleet.engines import DIED, GONE, Failure, engine
from veilstream.apps.fleet.page import page
from veilstream.apps.fleet.pooling import Pool
from veilstream.apps.fleet.spec import FleetSpec
from veilstream.apps.fleet.summary import Summary
from veilstream.apps.fleet.task import Task, task_of, work
from veilstream.apps.fleet.users import Broken, User, read_users
from veilstream.container import write
from veilstream.data.clusters import given_places
from veilstream.data.fitting import find_states
from veilstream.data.hold_out import split
from veilstream.data.readings import Account
from veilstream.data.spec import FitSpec
from veilstream.data.states import StateSpace
from veilstream.data.steps import default_period_s, encode_steps, to_steps
from veilstream.errors import InputError
from veilstream.solvers import make_solver
from veilstream.units import counted

MOST_SHARED = 128  # states that people may share: with more, each has her own
Tell = Callable[[float, str], None]


def run_fleet(sources: Sequence[str], out: Path, spec: FleetSpec, tell: Tell | None = None) -> Summary:
    """One model, policy, curve and audit per user, under `out`; what is there already is kept."""
    began = perf_counter()
    say: Tell = tell or (lambda done, what: None)
    with disk.claimed(out), engine(spec.engine, spec.workers, spec.scheduler) as run:
        make_solver(spec.method, window=spec.window)  # it exists and takes its options
        users, broken = read_users(sources, lambda name: say(0.0, f"reading {name}"), **spec.fit.reading)
        spec.check_units({u.readings.unit for u in users})
        say(0.0, f"{counted(len(users), 'user')}: states and pooling")
        tasks, more, notes = tasks_of(users, spec)
        broken += more
        place = disk.places(out, [t.name for t in tasks] + [name for name, _ in broken])
        rows: list[dict[str, Any]] = []
        failed = dict(broken)
        due, digests = [], {t.name: t.digest for t in tasks}
        for task in tasks:
            row = disk.kept(place[task.name], digests[task.name])
            due += [] if row else [task]
            rows += [{**row, "kept": True}] if row else []
        summary = Summary(rows, failed, notes, spec.engine, spec.seed)
        try:
            for task, outcome in run(work, due):
                if isinstance(outcome, Failure):
                    failed[task.name] = outcome.line
                else:
                    files, row = outcome
                    disk.put(place[task.name], files, row, digests[task.name])
                    rows.append(row)
                done = len(rows) + len(failed)
                say(done / (len(tasks) + len(broken)), f"{done} of {len(tasks) + len(broken)}, {task.name}")
            for name, line in failed.items():
                if line not in (DIED.line, GONE.line):  # her data is at fault, not the machine
                    disk.set_aside(place[name])
        finally:  # also when interrupted: what is done is told
            if (without := sum(r["cycle"] is None for r in rows)) and spec.fit.cycle in ("day", "week"):
                summary.notes += [f"{without} of {len(rows)} users have no clock: their records are too short"]
            summary.seconds = perf_counter() - began
            summary.missing = sorted({t.name for t in tasks} - {r["user"] for r in rows} - set(failed))
            told = summary.to_json()
            write(out / "fleet.json", (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode())
            write(out / "index.html", page(told).encode())
    return summary


def tasks_of(users: Sequence[User], spec: FleetSpec) -> tuple[list[Task], list[Broken], list[str]]:
    """A task per user; users of one source and unit get states in common and are pooled, where that can be."""
    groups: dict[tuple[Any, ...], list[User]] = defaultdict(list)
    for user in users:
        r = user.readings
        groups[user.source, r.kind, r.unit, r.stepped].append(user)
    tasks, broken, notes = [], list[Broken](), []
    for (source, kind, *_), group in groups.items():
        options = _options_for(spec.fit, kind)
        name = Path(source).name or source
        shared = kind == "value" or options.grid_m is not None or options.places is not None
        if not (spec.pool == "auto" and len(group) > 1 and shared):
            if spec.pool == "auto" and len(group) > 1:
                notes.append(
                    f"{name}: stops are personal, so {len(group)} users have nothing to pool; `grid` shares cells"
                )
            space = given_places(options.places) if options.places else None  # read here: a worker may be elsewhere
            alone = [task_of(u.name, u.readings, options, spec) for u in group]
            tasks += [replace(task, space=space) for task in alone]
            continue
        pooled, bad, note = _pooled(group, options, spec)
        tasks += pooled
        broken += bad
        notes.append(f"{name}: {note}")
    return tasks, broken, notes


def _options_for(fit: FitSpec, kind: str) -> FitSpec:
    """With sources of both kinds, each takes the options that are for it."""
    if kind == "value":
        return replace(fit, grid_m=None, places=None, noise="nearest")
    return replace(fit, width=None, edges=None)


def _pooled(group: Sequence[User], options: FitSpec, spec: FleetSpec) -> tuple[list[Task], list[Broken], str]:
    """Tasks on shared states, each with what the others say about her."""
    periods = list[float]()
    for user in group:
        with suppress(InputError):  # it is told when her steps are made
            periods += [p for p in [default_period_s(user.readings)] if p is not None]
    period_s = options.period_s or float(np.median(periods or [1.0]))
    options = replace(options, period_s=None if group[0].readings.stepped else period_s).in_unit(group[0].readings.unit)
    recording = options.recording
    found, broken = [], []
    for user in group:
        try:
            own_account = replace(user.readings, account=Account())  # cleaning writes into it
            _, steps, resolved = to_steps(own_account, recording)
            found.append((user, split(steps, resolved, options.hold_out).fitted, resolved))
        except InputError as fault:
            broken.append((user.name, str(fault)))
    own = [task_of(u.name, u.readings, options, spec) for u, _, _ in found]
    if len(found) < 2:
        return own, broken, "fewer than two users can be read, nothing to pool"
    try:
        space: StateSpace = find_states(np.concatenate([s.points for _, s, _ in found]), group[0].readings, options)[0]
    except InputError as fault:
        return own, broken, f"no states in common ({fault}); each user has her own"
    if len(space) > MOST_SHARED:
        many = f"{len(space)} states in common are too many to pool (at most {MOST_SHARED}); each has her own"
        return own, broken, many
    runs = [encode_steps(steps, resolved, space).sequences for _, steps, resolved in found]
    pool = Pool(runs, len(space))
    tasks = []
    for i, task in enumerate(own):
        prior = pool.prior(i)
        tasks.append(replace(task, space=space, prior=prior.pseudo, pool=prior.to_json()))
    return tasks, broken, f"{len(tasks)} users share {len(space)} states and are pooled"
