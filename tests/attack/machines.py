"""State machines for the store and for the gateway's core, against simple models, killed between any two statements.

A kill is made without a process: at the chosen statement the files are copied as they are (the log and the count with
them), which is what `kill -9` leaves, and the next gateway starts from the copy.
"""

import contextlib
import functools
import itertools
import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from attack.drill import Trial
from gatewaykit import artefact
from veilstream.artefact import Artefact
from veilstream.core.problem import leakage, next_prior
from veilstream.gateway.core import Core
from veilstream.gateway.kept import Batch, Binding, StoreError, Stream
from veilstream.gateway.outcome import Status
from veilstream.gateway.settle import Serving
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.wire import Reading, Refusal

FILES = ("s.db", "s.db-wal", "s.db-count")
STREAMS = st.sampled_from(["a", "b", "c"])
STATEMENTS = st.integers(1, 9)
counted = {"rules": 0, "kills": 0}  # of the trial that runs


@functools.cache
def toy(period_s: float | None) -> Artefact:
    """One policy for all of them."""
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        return artefact(Path(folder) / "p.veil", name="grid2x3-toy", period_s=period_s)


class Killed(BaseException):
    """Nobody catches it, as nobody catches a kill."""


class Tripwire:
    """A connection that dies before or after its n-th statement, once."""

    def __init__(self, db: Any, at: int, after: bool, copy: Any) -> None:
        self._db, self._left, self._after, self._copy = db, at, after, copy
        self.committed = 0

    def execute(self, sql: str, *values: Any) -> Any:
        return self._do(self._db.execute, sql, *values)

    def executemany(self, sql: str, rows: Any) -> Any:
        return self._do(self._db.executemany, sql, rows)

    def _do(self, call: Any, sql: str, *values: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after:
            self._die()
        found = call(sql, *values)
        self.committed += sql == "COMMIT"
        if self._left == 0:
            self._die()
        return found

    def _die(self) -> None:
        self._copy()
        raise Killed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


class Killable(RuleBasedStateMachine):
    """What both have: a store in a folder that can be closed, opened again, and killed."""

    def __init__(self) -> None:
        super().__init__()
        self._folders = tempfile.TemporaryDirectory(prefix="attack-")
        self._numbers = itertools.count()
        self.folder = self._fresh()

    def _fresh(self) -> Path:
        folder = Path(self._folders.name) / str(next(self._numbers))
        folder.mkdir()
        return folder

    @property
    def path(self) -> Path:
        return self.folder / "s.db"

    def killed(self, store: Store, at: int, after: bool, work: Any) -> tuple[bool, bool]:
        """Do it with a kill at that statement; whether it was killed, and whether its commit was done by then."""
        counted["kills"] += 1
        next_folder = self._fresh()

        def copy() -> None:
            for name in FILES:
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy(self.folder / name, next_folder / name)

        wire = store._db = Tripwire(store._db, at, after, copy)
        try:
            work()
        except Killed:
            store._abandon()
            self.folder = next_folder
            return True, wire.committed > 0
        finally:
            store._db = wire._db
        return False, True

    def teardown(self) -> None:
        self._folders.cleanup()


# --- the store -------------------------------------------------------------------------------------------------


class StoreMachine(Killable):
    """The model: what every stream was last, every release, and what is in the outbox."""

    def __init__(self) -> None:
        super().__init__()
        self.binding = Binding("policy", "chain")
        self.streams: dict[str, tuple] = {}
        self.releases: dict[tuple[str, int], bytes | None] = {}
        self.outbox: list[tuple[str, bytes]] = []
        self.pruned: set[tuple[str, int]] = set()
        self.store = self._open()

    def _open(self) -> Store:
        return Store(self.path, {"": self.binding})

    def _batch(self, what: list[tuple[str, int, bytes | None]]) -> tuple[Batch, dict[str, tuple]]:
        """The commit of these releases, and what the streams are then."""
        batch, after = Batch(), {}
        for name, step, message in what:
            s = (
                next((s for s in batch.streams if s.name == name), None)
                or self.store.load("", name)
                or Stream("", name)
            )
            s.last_step = max(step, -1 if s.last_step is None else s.last_step)
            s.total, s.memory, s.state = s.total + 0.5, message, step % 7
            if s not in batch.streams:
                batch.streams.append(s)
            batch.releases.append((s, step, s.total, message))
            after[name] = (s.last_step, s.total, s.memory, s.state)
        batch.outbox = [(f"out/{name}", message or b"-") for name, _, message in what]
        return batch, after

    def _took(self, what: list, after: dict[str, tuple]) -> None:
        self.streams |= after
        self.releases |= {(name, step): message for name, step, message in what}
        self.outbox += [(f"out/{name}", message or b"-") for name, _, message in what]

    RELEASES = st.lists(
        st.tuples(STREAMS, st.integers(0, 12), st.none() | st.binary(max_size=6)), min_size=1, max_size=6
    )

    @rule(what=RELEASES)
    def commit(self, what: list) -> None:
        counted["rules"] += 1
        keys = [(name, step) for name, step, _ in what]
        batch, after = self._batch(what)
        gone = self.pruned & set(keys)  # the core asks for the last step: the store alone cannot know
        if len(set(keys)) < len(keys) or (set(keys) & self.releases.keys()):
            try:
                self.store.commit(batch)
            except StoreError:
                pass
            else:
                raise AssertionError("a step was released twice")
        elif not gone:
            self.store.commit(batch)
            self._took(what, after)
        self.compare()

    @rule(what=RELEASES, at=STATEMENTS, after=st.booleans())
    def kill(self, what: list, at: int, after: bool) -> None:
        counted["rules"] += 1
        keys = [(name, step) for name, step, _ in what]
        if len(set(keys)) < len(keys) or set(keys) & (self.releases.keys() | self.pruned):
            return
        batch, then = self._batch(what)
        died, done = self.killed(self.store, at, after, lambda: self.store.commit(batch))
        if done:
            self._took(what, then)
        if died:
            self.store = self._open()
        self.compare()

    @rule(n=st.integers(0, 5))
    def confirm(self, n: int) -> None:
        self.store.confirm([i for i, _, _ in self.store.unsent()[:n]])
        self.outbox = self.outbox[n:]
        self.compare()

    @rule(keep=st.integers(0, 6))
    def prune(self, keep: int) -> None:
        self.store.prune(keep)
        for name, step in [k for k in self.releases if k[1] <= self.streams[k[0]][0] - keep]:
            del self.releases[name, step]
            self.pruned.add((name, step))
        self.compare()

    @rule(chain=st.booleans())
    def another_policy(self, chain: bool) -> None:
        """Steps and totals stay, the memory goes; the last true state with the chain."""
        new = Binding(self.binding.policy + "'", self.binding.chain + "'" * chain)
        self.store.close()
        self.binding = new
        self.store = self._open()
        self.streams = {
            name: (last, total, None, -1 if chain else state) for name, (last, total, _, state) in self.streams.items()
        }
        self.compare()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()
        self.compare()

    def compare(self) -> None:
        found = {s.name: s for s in self.store.streams()}
        assert {n: (s.last_step, s.total, s.memory, s.state) for n, s in found.items()} == self.streams
        for (name, step), message in self.releases.items():
            assert self.store.find(found[name], step) == (message,)
        for name, step in self.pruned - self.releases.keys():
            assert self.store.find(found[name], step) is None
        assert [(topic, payload) for _, topic, payload in self.store.unsent()] == self.outbox

    def teardown(self) -> None:
        self.store.close()
        super().teardown()


# --- the gateway's core ----------------------------------------------------------------------------------------

VALUES = st.one_of(st.integers(-2, 20).map(float), st.just(math.nan), st.none(), st.just((1.0, 2.0)), st.just(1e300))
READINGS = st.lists(st.tuples(STREAMS, st.integers(-3, 9), VALUES), min_size=1, max_size=8)
FAR = 30  # steps that a reading may lie ahead


class CoreMachine(Killable):
    """The model: which steps of every stream are decided and by what message, and the meter by its formula."""

    def __init__(self) -> None:
        super().__init__()
        self.art = toy(None)
        self.log: dict[str, dict[int, bytes | None]] = {}  # what is in the log
        self.ever: dict[str, dict[int, bytes | None]] = {}  # every release, in order
        self.core: Core | None = None

    @initialize(ceiling=st.sampled_from([None, None, 0.0, 0.4, 2.0]), most=st.sampled_from([1, 2, 3, 9]))
    def begin(self, ceiling: float | None, most: int) -> None:
        self.ceiling, self.most = ceiling, most
        self.core = self._open()

    def _open(self) -> Core:
        space = Space(self.art, self.ceiling)
        store = Store(self.path, {"": space.binding})
        return Core({"": space}, store, Serving(max_ahead=FAR, max_streams=self.most))

    def _readings(self, said: list) -> list[Reading]:
        """Steps are told from the stream's last one: before, at, or after it."""
        last = {name: max(steps) for name, steps in self.ever.items()}
        return [Reading(n, last.get(n, 0) + k, last.get(n, 0) + k, v) for n, k, v in said]

    def expected(self, readings: list[Reading]) -> list[str]:
        """By the promises alone."""
        out, log = [], {name: set(steps) for name, steps in self.log.items()}
        last = {name: max(steps) for name, steps in self.ever.items()}
        for r in readings:
            if r.step in log.get(r.stream, ()):
                out.append("repeated")
            elif r.stream in last and r.step <= last[r.stream]:
                out.append("late")
            elif r.stream in last and r.step > last[r.stream] + FAR:
                out.append("ahead")
            elif r.stream not in last and len(last) >= self.most:
                out.append("too_many_streams")
            else:
                out.append("released")
                log.setdefault(r.stream, set()).add(r.step)
                last[r.stream] = r.step
        return out

    def _took(self, r: Reading, message: bytes | None) -> None:
        assert r.step not in self.ever.get(r.stream, {}), "a second draw"
        for kept in (self.log, self.ever):
            kept.setdefault(r.stream, {})[r.step] = message

    @rule(said=READINGS)
    def say(self, said: list) -> None:
        counted["rules"] += 1
        readings = self._readings(said)
        expected = self.expected(readings)
        outcomes = self.core.process(readings).outcomes
        assert [o.status.name for o in outcomes] == expected
        for r, o in zip(readings, outcomes, strict=True):
            if o.status is Status.released:
                self._took(r, o.message)
            elif o.status is Status.repeated:
                assert o.message == self.log[r.stream][r.step]
            else:
                assert isinstance(o.status, Refusal) and o.message is None

    @rule(said=READINGS, at=STATEMENTS, after=st.booleans())
    def kill(self, said: list, at: int, after: bool) -> None:
        counted["rules"] += 1
        readings = self._readings(said)
        expected = self.expected(readings)
        result: list = []
        work = lambda: result.extend(self.core.process(readings).outcomes)  # noqa: E731
        died, done = self.killed(self.core.store, at, after, work)
        if died:
            self.core = self._open()
        for r, status in zip(readings, expected, strict=True):
            if status == "released":
                s = self.core.store.load("", r.stream)
                found = None if s is None else self.core.store.find(s, r.step)
                assert (found is not None) == done, "half a commit"
                if found is not None:
                    self._took(r, found[0])
        if not died:
            for r, o in zip(readings, result, strict=True):
                assert o.message == self.ever.get(r.stream, {}).get(r.step) or isinstance(o.status, Refusal)

    @rule()
    def restart(self) -> None:
        self.core.close()
        self.core = self._open()

    @rule(keep=st.integers(1, 5))
    def prune(self, keep: int) -> None:
        self.core.store.prune(keep)
        for name, steps in self.log.items():
            for step in [k for k in steps if k <= max(self.ever[name]) - keep]:
                del steps[step]

    def teardown(self) -> None:
        if self.core is not None:
            self.core.close()
        for steps in self.ever.values():
            check_meter(self.art, steps, self.ceiling)
        super().teardown()


def check_meter(art: Any, steps: dict[int, bytes | None], ceiling: float | None) -> None:
    """Total = sum of L(b, a) over released steps, b moved by P over gaps; under a ceiling never beyond it."""
    policy, problem = art.policy, art.problem
    P = problem.chain.transition
    memory, belief, total, last = policy.start(1), problem.chain.initial[None], 0.0, None
    for step in sorted(steps):
        if steps[step] is None:
            assert ceiling is not None, "silent without a ceiling"
            continue
        sent = json.loads(steps[step])
        assert 0 <= sent["released"] < policy.n_outputs and sent["t"] == step
        if ceiling is not None:
            assert total - 1e-6 <= sent["leaked_bits"] <= ceiling + 1e-6, "beyond the ceiling"
            total = sent["leaked_bits"]
            continue
        gap = 0 if last is None else step - last - 1
        if gap:
            memory, belief = policy.skip(memory, gap), belief @ np.linalg.matrix_power(P, gap)
        a, y = policy.channel(memory), np.array([sent["released"]])
        total += float(leakage(belief, a)[0])
        assert abs(total - sent["leaked_bits"]) < 1e-5, f"the meter says {sent['leaked_bits']}, the formula {total}"
        memory, belief, last = policy.update(memory, y, a), next_prior(belief, a, y, P), step


# --- under a clock ---------------------------------------------------------------------------------------------

PERIOD = 60


class ClockMachine(Killable):
    """Every tick releases every known stream once, reading or not, also when it is killed and ticked again."""

    def __init__(self) -> None:
        super().__init__()
        self.art = toy(float(PERIOD))
        self.now = 1000  # the step
        self.known: set[str] = set()
        self.first: dict[str, int] = {}
        self.seen: dict[tuple[str, int], bytes] = {}
        self.core = self._open()

    def _open(self) -> Core:
        space = Space(self.art)
        store = Store(self.path, {"": space.binding})
        return Core({"": space}, store, Serving(clock=True), now=lambda: self.now * PERIOD + 1.0)

    @rule(name=STREAMS, value=VALUES, off=st.integers(-2, 2))
    def say(self, name: str, value: Any, off: int) -> None:
        counted["rules"] += 1
        step = self.now + off
        (o,) = self.core.process([Reading(name, step, step * PERIOD, value)]).outcomes
        if off > 0:
            assert o.status is Refusal.ahead
        elif (name, step) in self.seen:
            assert o.status is Status.repeated and o.message == self.seen[name, step]
        elif off < 0:
            assert o.status is Refusal.late
        else:
            assert o.status is Status.waiting and o.message is None
            self.known.add(name)

    def _ticked(self) -> None:
        for name in self.known:
            s = self.core.store.load("", name)
            found = self.core.store.find(s, self.now)
            assert found is not None and found[0] is not None, "a stream without its release"
            assert self.seen.setdefault((name, self.now), found[0]) == found[0], "a second draw"

    @rule()
    def tick(self) -> None:
        counted["rules"] += 1
        for o in self.core.tick("", self.now).outcomes:
            assert self.seen.setdefault((o.release.stream, self.now), o.message) == o.message, "a second draw"
        self._ticked()
        self.now += 1

    @rule(at=STATEMENTS, after=st.booleans())
    def kill(self, at: int, after: bool) -> None:
        counted["rules"] += 1
        died, _ = self.killed(self.core.store, at, after, lambda: self.core.tick("", self.now))
        if died:
            self.core = self._open()
            before = {n: self.core.store.find(s, self.now) for n in self.known if (s := self.core.store.load("", n))}
            self.seen |= {(n, self.now): found[0] for n, found in before.items() if found is not None}
            self.core.tick("", self.now)
        self._ticked()
        self.now += 1

    @rule()
    def restart(self) -> None:
        self.core.close()
        self.core = self._open()

    @precondition(lambda self: self.seen)
    @rule()
    def nothing_changed(self) -> None:
        for (name, step), message in self.seen.items():
            assert self.core.store.find(self.core.store.load("", name), step) == (message,)

    def teardown(self) -> None:
        self.core.close()
        super().teardown()


# --- as drills -------------------------------------------------------------------------------------------------


def _run(machine: type[RuleBasedStateMachine], t: Trial) -> int:
    counted.update(rules=0, kills=0)
    quiet = settings(
        max_examples=t.times(25),
        stateful_step_count=20,
        deadline=None,
        database=None,
        print_blob=False,
        phases=[Phase.generate],  # a trial can be replayed; to make it smaller would take minutes
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(t.rng.randrange(2**32))(machine), settings=quiet)
    return counted["rules"]


def store(t: Trial) -> int:
    return _run(StoreMachine, t)


def core(t: Trial) -> int:
    return _run(CoreMachine, t)


def clock(t: Trial) -> int:
    return _run(ClockMachine, t)
