"""Two true values, the same release: the same bytecode runs, instruction by instruction.

A stopwatch needs thousands of releases and a quiet machine; what an interpreter executes is the same every time. Two
gateways with the same draws are told two truths, releases are forced to be the same, and every instruction of Python
from the message to the commit, and to the release that is sent, is written down: a branch, a loop, a cache or an
exception that depends on a value is a difference. What happens inside of a C function (numpy, msgspec, SQLite, `re`)
is not seen.
"""

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from attack.drill import Trial
from attack.same import POINTS, VALUES, force
from gatewaykit import artefact, core_of, levels, places, problem_of, window_policy
from veilstream.artefact import Artefact, save
from veilstream.control.adaptive import Ladder
from veilstream.control.controller import cycle
from veilstream.control.feedback import Feedback
from veilstream.data.spec import Recording
from veilstream.data.states import named
from veilstream.gateway.broker import BrokerSettings
from veilstream.gateway.inbox import Heard, Inbox
from veilstream.gateway.mqtt import MqttGateway
from veilstream.gateway.topics import Route
from veilstream.gateway.wire import parse
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.model.problem import Average, Problem
from veilstream.solvers.start import start

PERIOD, FIRST, LONG_AGO = 60, 100, 10**6
NAMES = ['"home"', '"work"', '"elsewhere"', '""', '" "', "7", "null", '"\\u00e9"', "NaN", '"%s"' % ("x" * 300), "[1]"]
Step = tuple[CodeType, int, str]  # where, and what: "call", "opcode", "exception" or "return"


@contextlib.contextmanager
def followed(into: list[Step]) -> Iterator[None]:
    """Everything that this thread executes in Python, but for what the garbage collector calls."""

    def trace(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        into.append((frame.f_code, frame.f_lasti, event))
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()


def line_of(step: Step) -> str:
    code, at, event = step
    line = next((line for start, end, line in code.co_lines() if start <= at < end and line), code.co_firstlineno)
    return f"{code.co_filename.rpartition('/')[2]}:{line} ({code.co_name}, {event})"


def parting(a: list[Step], b: list[Step]) -> str | None:
    """Where two paths part; None if they are the same."""
    if a == b:
        return None
    i = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    at = [line_of(path[i]) if i < len(path) else "the end" for path in (a, b)]
    return f"after {line_of(a[i - 1])}: {at[0]} / {at[1]}; {len(a)} and {len(b)} instructions"


# --- gateways of every kind --------------------------------------------------------------------------------------


def symbols(t: Trial, **more: Any) -> Artefact:
    return artefact(t.folder / "p.veil", **more)


def bins(t: Trial, **more: Any) -> Artefact:
    return levels(t.folder / "p.veil", "kWh")


def on_a_map(t: Trial, **more: Any) -> Artefact:
    return artefact(t.folder / "p.veil", states=places(), **more)


def zones(t: Trial, **more: Any) -> Artefact:
    states = named(["home", "work", "gym"])
    problem = Problem(MarkovChain(np.full((3, 3), 1 / 3)), states.distances(), Average(weight=1.0))
    return save(t.folder / "p.veil", window_policy(problem), problem=problem, states=states, **more)


def second_order(t: Trial, **more: Any) -> Artefact:
    simple = problem_of("binary")
    chain = MarkovChain.fit(simple.chain.sample(400, 2), order=2, smoothing=0.1)
    problem = Problem(chain, simple.distortion[chain.symbols], simple.constraint)
    return save(t.folder / "p.veil", window_policy(problem), problem=problem, **more)


def by_the_hour(t: Trial, **more: Any) -> Artefact:
    simple = problem_of()
    P = simple.chain.transition
    chain = MarkovChain(np.stack([P, P @ P, (P + np.eye(len(P))) / 2]), clock=Clock("steps", 3))
    problem = Problem(chain, simple.distortion, simple.constraint)
    policy = cycle(tuple(window_policy(problem, seed) for seed in range(3)))
    return save(t.folder / "p.veil", policy, problem=problem, **more)


def ladder(t: Trial, **more: Any) -> Artefact:
    """Its moves depend on the truth, and are public: none comes in a trial."""
    problem = problem_of()
    rungs = Ladder(tuple(window_policy(problem, s) for s in range(3)), Feedback(LONG_AGO, 1.0, 4.0, (0.4, 0.8, 1.2)), 1)
    made = rungs.made_for(problem.chain).proved(problem.chain)
    return save(t.folder / "p.veil", made, problem=problem, states=places(), **more)


@lru_cache(1)
def started() -> Any:
    return start(avg="2km", progress=False).policy


def anywhere(t: Trial, **more: Any) -> Artefact:
    return save(t.folder / "p.veil", started(), chain=started().chain, **more)


Kind = tuple[Callable[..., Artefact], Sequence[str], Sequence[str]]  # its file, the names of its fields, their values
RECORDINGS = [Recording(), Recording(PERIOD), Recording(PERIOD, max_gap_s=5 * PERIOD, fill="hold")]
KINDS: list[Kind] = [
    (symbols, ["value"], VALUES),
    (bins, ["value"], VALUES),
    (on_a_map, ["lat", "lon"], POINTS),
    (zones, ["value"], NAMES),
    (second_order, ["value"], VALUES),
    (by_the_hour, ["value"], VALUES),
    (ladder, ["lat", "lon"], POINTS),
    (anywhere, ["lat", "lon"], POINTS),
]


class Broker:
    """As much of a connection as a gateway uses to take a message."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self.said: list[tuple[str, bytes]] = []

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> int:
        self.said.append((topic, payload))
        return len(self.said)

    def ack(self, message: Heard) -> None:
        pass


class Told:
    """A gateway, and what it did."""

    def __init__(self, core: Any) -> None:
        self.core, self.broker, self.path = core, Broker(), []
        self.gateway = MqttGateway(core, [Route("in/+", "out/+")], BrokerSettings())

    def over_mqtt(self, body: bytes) -> None:
        self.broker.inbox.put(Heard("in/a", body, 1))
        self.path.clear()
        with followed(self.path):
            self.gateway._take(self.broker)  # type: ignore[arg-type]

    def straight(self, body: bytes) -> None:
        self.path.clear()
        with followed(self.path):
            self.core.process(parse(body, self.core.spaces[""].grid))

    def tick(self, step: int) -> None:
        self.path.clear()
        with followed(self.path):
            self.core.tick("", step)


def path(t: Trial) -> int:
    recording = t.rng.choice(RECORDINGS)
    return walked(t, t.rng.choice(KINDS), recording, t.rng.random() < 0.3, t.rng.choice([None, None, 3.0]))


def walked(t: Trial, kind: Kind, recording: Recording, clock: bool, ceiling: float | None = None) -> int:
    """Two gateways side by side; a third goes first: what all of them keep from message to message is then there."""
    made, names, values = kind
    art = made(t, recording=recording)
    period, clock = int(art.period_s or 1), clock and art.period_s is not None
    now, n, step, most = [0.0], t.times(40), FIRST, 0
    ys = [t.rng.randrange(art.policy.n_outputs) for _ in range(20 * (n + 1))]
    standing = SimpleNamespace(monotonic=lambda: 0.0, perf_counter=lambda: 0.0)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("veilstream.gateway.stats.time", standing))
        told = []
        for _ in range(3):
            draws = np.random.default_rng(1).random
            core = stack.enter_context(core_of(art, ceiling=ceiling, uniforms=draws, now=lambda: now[0], clock=clock))
            force(core, ys)
            told.append(Told(core))
        for number in range(n):
            step += t.rng.choice([1, 1, 1, 2, 4])
            now[0] = float(period * step)
            over_mqtt = t.rng.random() < 0.5
            shape = _shape(t, step, period, names, clock, over_mqtt)
            for one in told:
                body = _said(t, shape, values)
                if not clock or number == 0 or t.rng.random() < 0.5:  # under a clock one may say nothing at all
                    (one.over_mqtt if over_mqtt else one.straight)(body)
                if clock:
                    one.tick(step)
            _, a, b = told
            where, most = parting(a.path, b.path), max(most, len(a.path))
            assert where is None, f"{made.__name__}{', clock' * clock}, filled: {recording.holds}: {where}"
            assert a.broker.said == b.broker.said, "two different answers"
    t.figures["most instructions of a message"] = float(most)
    return n


def _shape(t: Trial, step: int, period: int, names: Sequence[str], clock: bool, named: bool) -> str:
    """A message, with places for its values; named: its topic says whose it is, as OwnTracks needs."""
    readings = []
    for k in range(1 if clock else t.rng.choice([1, 1, 1, 3])):
        fields = ['"stream":"a"', f'"t":{period * (step + k)}', *(f'"{name}":%s' for name in names)]
        if t.rng.random() < 0.2:
            fields += ['"battery":%s']
        if named and "lat" in names and period > 1 and t.rng.random() < 0.3:
            fields = ['"_type":"location"', f'"tst":{period * (step + k)}', '"SSID":%s', *fields[2:]]
        t.rng.shuffle(fields)
        readings.append("{" + ",".join(fields) + "}")
    return readings[0] if len(readings) == 1 else "[" + ",".join(readings) + "]"


def _said(t: Trial, shape: str, values: Sequence[str]) -> bytes:
    return (shape % tuple(t.rng.choice(values) for _ in range(shape.count("%s")))).encode()
