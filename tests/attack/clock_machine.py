"""The gateway's core under a clock, killed between any two statements: a release of every stream per tick."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from attack.drill import Trial
from attack.killable import STATEMENTS, STREAMS, VALUES, Killable, counted, run, toy
from veilstream.gateway.core import Core
from veilstream.gateway.records import Status
from veilstream.gateway.scheduler import Serving
from veilstream.gateway.space import Space
from veilstream.gateway.store import Store
from veilstream.gateway.wire import Reading, Refusal

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
        for o in self.core.tick("", self.now):
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


def clock(t: Trial) -> int:
    return run(ClockMachine, t)
