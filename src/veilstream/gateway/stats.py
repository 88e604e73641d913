"""What may be known of a running gateway: counts and the last releases. Released data only.

One thread at a time counts (the core holds a lock); any thread may look.
"""

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from veilstream.gateway.outcome import Outcome, Status
from veilstream.gateway.wire import Refusal, Release

RATE_WINDOW_S = 10


class Stats:
    RECENT = 200  # streams shown

    def __init__(self, streams: int, recent: Sequence[Release]) -> None:
        self.started = time.monotonic()
        self.streams = streams
        self.released = self.repeated = self.silent = self.waiting = 0
        self.refused: Counter[str] = Counter({r.name: 0 for r in Refusal})
        self.store_errors = self.outbox = self.republished = 0
        self.connected: bool | None = None  # to the broker, if there is one
        self.commit_seconds = 0.0
        self.commits = 0
        self.recent: OrderedDict[str, Release] = OrderedDict((r.stream, r) for r in reversed(recent))
        self._ticks: deque[tuple[float, int]] = deque()

    @contextmanager
    def commit_time(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.commit_seconds += time.perf_counter() - start
        self.commits += 1

    def count(self, outcomes: Sequence[Outcome]) -> None:
        """After a commit."""
        released = 0
        for o in outcomes:
            status, release = o.status, o.release
            if status is Status.released:
                if release is None:
                    self.silent += 1
                else:
                    released += 1
                    self.recent[release.stream] = release
                    self.recent.move_to_end(release.stream)
            elif status is Status.repeated:
                self.repeated += 1
            elif status is Status.waiting:
                self.waiting += 1
            else:
                self.refused[status.name] += 1
        while len(self.recent) > self.RECENT:
            self.recent.popitem(last=False)
        if released:
            self.released += released
            self._ticks.append((time.monotonic(), released))
        limit = time.monotonic() - RATE_WINDOW_S
        while self._ticks and self._ticks[0][0] < limit:
            self._ticks.popleft()

    @property
    def per_second(self) -> float:
        now = time.monotonic()
        recent = [n for at, n in list(self._ticks) if at >= now - RATE_WINDOW_S]  # a copy: another thread counts
        return sum(recent) / min(RATE_WINDOW_S, max(now - self.started, 1))

    def status(self, ceiling: float | None) -> dict[str, Any]:
        """For the page and the programs that ask."""
        return {
            "uptime_s": round(time.monotonic() - self.started, 1),
            "streams": self.streams,
            "released": self.released,
            "repeated": self.repeated,
            "silent": self.silent,
            "refused": dict(self.refused),
            "releases_per_second": round(self.per_second, 1),
            "broker_connected": self.connected,
            "ceiling_bits": ceiling,
            "recent": list(self.recent.values())[::-1],
        }

    def prometheus(self) -> str:
        counters = {
            "releases": self.released,
            "repeats": self.repeated,
            "silent_steps": self.silent,
            "waiting": self.waiting,
            "store_errors": self.store_errors,
            "republished": self.republished,
            "commits": self.commits,
        }
        lines = [f"# TYPE veil_{name}_total counter\nveil_{name}_total {n}" for name, n in counters.items()]
        lines.append("# TYPE veil_commit_seconds_total counter")
        lines.append(f"veil_commit_seconds_total {self.commit_seconds:.6f}")
        lines.append("# TYPE veil_refused_total counter")
        lines += [f'veil_refused_total{{reason="{reason}"}} {n}' for reason, n in sorted(self.refused.items())]
        gauges = {"streams": self.streams, "outbox": self.outbox, "broker_connected": int(bool(self.connected))}
        lines += [f"# TYPE veil_{name} gauge\nveil_{name} {n}" for name, n in gauges.items()]
        return "\n".join(lines) + "\n"
