"""The gateway's core, killed between any two statements, against its promises and the meter's formula."""

import json
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from attack.drill import Trial
from attack.killable import STATEMENTS, STREAMS, VALUES, Killable, counted, run, toy
from veilstream.gateway.core import Core
from veilstream.gateway.records import Status
from veilstream.gateway.scheduler import Serving
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.wire import Reading, Refusal
from veilstream.model.problem import leakage, next_prior

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


def core(t: Trial) -> int:
    return run(CoreMachine, t)
