"""Two true values, the same release: everything public must be equal, bytes, order and counts; and take as long.

The release is forced: the mechanism draws as it always does, and what it drew is replaced by what both are to release.
"""

import contextlib
import logging
import re
import sqlite3
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import mannwhitneyu

from attack.drill import Trial
from gatewaykit import Outbox, artefact, core_of, places
from httpkit import Server
from veilstream.gateway.service import JsonLine
from veilstream.gateway.topics import Route
from veilstream.gateway.wire import parse

VALUES = [
    "3",
    "11.5",
    "-7",
    "1e300",
    "NaN",
    "-Infinity",
    "1e400",
    '"home"',
    '"4"',
    "null",
    "[1]",
    "{}",
    "true",
    "9" * 400,
]
POINTS = ["39.91", "116.32", "0", "-90", "NaN", "1e400", '"x"', "null"]
PERIOD = 60
TIMED = re.compile(
    rb"'(uptime_s|releases_per_second)': [\d.]+|veil_commit_seconds_total [\d.e-]+|'Date', '[^']*'|"
    rb"veil_\w+_latency_seconds_(sum|bucket\S+) [\d.e-]+"
)
PUBLIC = [
    "SELECT name, last_step, total, memory, belief FROM streams ORDER BY name",
    "SELECT step, stream, total, message FROM releases ORDER BY 1, 2",
    "SELECT id, stream, topic, payload FROM outbox ORDER BY 1",
    "SELECT key, value FROM meta WHERE key NOT IN ('id') ORDER BY 1",
]
TELLING_US, TELLING_SHARE = 5.0, 0.03  # a shift of the median that counts, and as a share of it: machines may be busy
TELLING_P = 1e-6


def force(core, ys: list[int]) -> None:
    """Releases in this order, whatever the truth."""
    mechanism, left = core.spaces[""].mechanism, iter(ys)
    draw = mechanism.draw

    def forced(*said):
        drawn = draw(*said)
        chosen = np.array([next(left) for _ in drawn])
        return chosen if drawn.ndim == 1 else mechanism.policy.offsets.near[chosen % 9]  # moves of a frame

    mechanism.draw = forced


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Everything the gateway says, without the time."""
    lines: list[str] = []
    handler, formatter = logging.Handler(), JsonLine()
    handler.emit = lambda r: lines.append(re.sub(r'"time": "[^"]*"', "", formatter.format(r)))  # type: ignore[method-assign]
    logger = logging.getLogger("veilstream")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def shown(folder: Path, art, said: list[list[bytes]], ys: list[int], ceiling: float | None, clock: bool) -> list[bytes]:
    """Everything that can be seen of a gateway to which this is said, step by step."""
    moment, out = [0.0], []
    folder.mkdir()
    draws = np.random.default_rng(1)
    core_is = core_of(art, folder / "s.db", ceiling, uniforms=draws.random, now=lambda: moment[0], clock=clock)
    with logged() as lines, core_is as core:
        force(core, ys)
        core.outlets += [Outbox()] if clock else []
        server = Server(core, routes=[Route("in/+", "out/+")])
        try:
            for step, bodies in enumerate(said, 100):
                moment[0] = float(PERIOD * step)
                for body in bodies:
                    code, answer, headers = server.ask("/v1/release", body)
                    out.append(repr((code, answer, sorted(headers.items()))).encode())
                if clock:
                    out.append(repr((core.tick("", step), core.unsent())).encode())
                out += [repr(server.ask(path)[:2]).encode() for path in ("/v1/status", "/metrics", "/healthz")]
        finally:
            server.end()
    with contextlib.closing(sqlite3.connect(folder / "s.db")) as db:
        out += [repr(row).encode() for query in PUBLIC for row in db.execute(query)]
    out += [
        str((folder / "s.db").stat().st_size).encode(),
        *(re.sub(r'"port": \d+', "", line).encode() for line in lines),
    ]
    return [TIMED.sub(b"", line) for line in out]


def equal(t: Trial) -> int:
    on_a_map, clock = t.rng.random() < 0.5, t.rng.random() < 0.5
    art = artefact(t.folder / "p.veil", states=places() if on_a_map else None, period_s=float(PERIOD))
    ceiling = t.rng.choice([None, None, 3.0])
    steps, streams = t.times(8), ["a", "b", "c"]
    ys = [t.rng.randrange(16) for _ in range(steps * 4 * len(streams))]
    times = [[(s, k) for s in t.rng.sample(streams, t.rng.randint(1, 3))] for k in range(100, 100 + steps)]

    def truth() -> list[list[bytes]]:
        def reading(stream: str, step: int) -> bytes:
            names = ("lat", "lon") if on_a_map else ("value",)
            values = "".join(f',"{n}":{t.rng.choice(POINTS if on_a_map else VALUES)}' for n in names)
            return f'{{"stream":"{stream}","t":{PERIOD * step}{values}}}'.encode()

        return [[reading(*at) for at in said] for said in times]

    first, second = (shown(t.folder / name, art, truth(), ys, ceiling, clock) for name in ("one", "two"))
    assert len(first) == len(second), "more is to be seen of the one than of the other"
    for a, b in zip(first, second, strict=True):
        assert a == b, f"it differs: {a[:300]!r} / {b[:300]!r}"
    return len(first)


def as_long(t: Trial) -> int:
    """A rank test on the time from message to committed release, in turns; in memory, where no disk hides it."""
    pair = t.rng.sample(VALUES, 2)
    taken: list[list[int]] = [[], []]
    n = t.times(1200)
    with core_of(artefact(t.folder / "p.veil")) as core:
        grid = core.spaces[""].grid
        for step in range(n):
            order = [0, 1] if t.rng.random() < 0.5 else [1, 0]
            for which in order:
                body = b'{"stream":"%d","t":%d,"value":%b}' % (which, step, pair[which].encode())
                start = time.perf_counter_ns()
                core.process(parse(body, grid))
                taken[which].append(time.perf_counter_ns() - start)
    a, b = taken[0][n // 10 :], taken[1][n // 10 :]
    p = float(mannwhitneyu(a, b).pvalue)
    shift = abs(statistics.median(a) - statistics.median(b)) / 1000
    t.figures["largest shift of the median in µs"] = shift
    telling = max(TELLING_US, TELLING_SHARE * statistics.median(a) / 1000)
    assert shift < telling or p > TELLING_P, f"{pair[0][:20]} and {pair[1][:20]}: {shift:.1f} us, p = {p:.1g}"
    return 2 * n
