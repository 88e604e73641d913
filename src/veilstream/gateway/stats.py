"""What may be known of a running gateway: counts and the last releases, for its page, for programs, for Prometheus.

Released data only; no stream is named in a metric, so the number of series is fixed. Latencies are of what releases
something, whatever the values are; under a clock there are none, since how long a tick takes could tell whether
readings came before it. One thread at a time counts (the core holds a lock); any thread may look.
"""

import time
from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from veilstream.gateway.records import Outcome, Status
from veilstream.gateway.wire import Refusal, Release

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

RATE_WINDOW_S = 10
PRIVATE = {Refusal.not_a_location.name, Refusal.sealed.name}  # a phone sends more of them at a border


class Latency:
    """How long something took, in a fixed number of classes."""

    EDGES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

    def __init__(self) -> None:
        self.counts = [0] * (len(self.EDGES) + 1)
        self.n, self.seconds = 0, 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.EDGES, seconds)] += 1
        self.n += 1
        self.seconds += seconds


class Stats:
    RECENT = 200  # streams shown

    def __init__(self, streams: int, recent: Sequence[Release], clock: bool = False) -> None:
        """clock: what depends on whether a reading came is counted, but not shown."""
        self.started, self.clock = time.monotonic(), clock
        self.streams = streams
        self.released = self.repeated = self.silent = self.waiting = self.blind = 0
        self.refused: Counter[str] = Counter({r.name: 0 for r in Refusal})
        self.store_errors = self.outbox = self.republished = 0
        self.dropped = 0  # messages of QoS 0 that found no room
        self.connected: bool | None = None  # to the broker, if there is one
        self.protocol: str | None = None  # version of MQTT
        self.trouble: str | None = None  # with the broker, in a line
        self.broker_refused: Counter[str] = Counter()  # releases that it would not take, by its reason
        self.commit, self.request = Latency(), Latency()
        self.recent: OrderedDict[str, Release] = OrderedDict((r.stream, r) for r in reversed(recent))
        self._ticks: deque[tuple[float, int]] = deque()
        self._taken: Counter[str] = Counter()

    @contextmanager
    def commit_time(self) -> Iterator[None]:
        """Of a transaction that releases something: one of refusals alone may say that someone crosses a border."""
        start, released = time.perf_counter(), self.released + self.silent
        yield
        if self.released + self.silent > released:
            self.commit.add(time.perf_counter() - start)

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
                    self.blind += o.blind
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
    def shown_refusals(self) -> dict[str, int]:
        """What is no location comes when someone crosses a border, and under a clock every refusal says: a reading."""
        return {} if self.clock else {k: n for k, n in self.refused.items() if k not in PRIVATE}

    def take_private(self) -> dict[str, int]:
        """What happened to readings since the last call, for the owner alone; always the same reasons."""
        now = Counter({**self.refused, "waiting": self.waiting, "repeated": self.repeated})
        new = {reason: n - self._taken[reason] for reason, n in now.items()}
        self._taken = now
        return new

    @property
    def per_second(self) -> float:
        now = time.monotonic()
        recent = [n for at, n in list(self._ticks) if at >= now - RATE_WINDOW_S]  # a copy: another thread counts
        return sum(recent) / min(RATE_WINDOW_S, max(now - self.started, 1))

    def status(self, ceiling: float | None, unit: str = "") -> dict[str, Any]:
        """For the page and the programs that ask; unit: of released values."""
        return {
            "uptime_s": round(time.monotonic() - self.started, 1),
            "streams": self.streams,
            "released": self.released,
            "repeated": 0 if self.clock else self.repeated,
            "silent": self.silent,
            "blind": self.blind,
            "refused": self.shown_refusals,
            "releases_per_second": round(self.per_second, 1),
            "broker_connected": self.connected,
            "broker_protocol": self.protocol,
            "broker_trouble": self.trouble,
            "broker_refused": dict(self.broker_refused),
            "dropped": 0 if self.clock else self.dropped,
            "ceiling_bits": ceiling,
            "unit": unit,
            "recent": list(self.recent.values())[::-1],
        }

    def metrics(self) -> str:
        """What GET /metrics answers."""
        from prometheus_client import CollectorRegistry  # nobody may ever ask
        from prometheus_client.exposition import generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry).decode()

    def collect(self) -> "Iterator[Metric]":
        """For a registry of Prometheus: the counts as they are now, nothing is counted twice."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        counters: list[tuple[str, str, float]] = [
            ("releases", "Releases that were committed.", self.released),
            ("silent_steps", "Steps at which a stream was silent.", self.silent),
            ("blind_releases", "Releases beyond a ceiling: they look at no data.", self.blind),
        ]
        gauges = [
            ("broker_trouble", "Whether something is wrong with the broker.", self.trouble is not None),
            ("streams", "Streams in the store.", self.streams),
            ("outbox", "Releases on their way to the broker.", self.outbox),
            ("broker_connected", "Whether the broker is connected.", bool(self.connected)),
        ]
        latencies: list[tuple[str, str, Latency]] = []
        if not self.clock:
            counters += [
                ("repeats", "Readings of a step that was released before.", self.repeated),
                ("store_errors", "Commits that failed; nothing was released.", self.store_errors),
                ("republished", "Releases sent again after a break.", self.republished),
                ("dropped", "Messages of QoS 0 that found no room.", self.dropped),
                ("commits", "Transactions that released something.", self.commit.n),
                ("commit_seconds", "Time in these transactions.", self.commit.seconds),
            ]
            latencies = [
                ("commit", "From a batch of readings to its durable commit.", self.commit),
                ("request", "From an HTTP body to its releases.", self.request),
            ]
        by_reason = [
            ("refused", "Readings that were refused, by reason.", self.shown_refusals),
            ("broker_refused", "Releases the broker refused, by its reason.", self.broker_refused),
        ]
        for name, what, n in counters:
            yield CounterMetricFamily(f"veil_{name}", what, n)
        for name, what, reasons in by_reason:
            family = CounterMetricFamily(f"veil_{name}", what, labels=["reason"])
            for reason, n in sorted(reasons.items()):
                family.add_metric([reason], n)
            yield family
        for name, what, value in gauges:
            yield GaugeMetricFamily(f"veil_{name}", what, int(value))
        for name, what, latency in latencies:
            buckets = list(zip((*map(str, latency.EDGES), "+Inf"), accumulate(latency.counts), strict=True))
            yield HistogramMetricFamily(f"veil_{name}_latency_seconds", what, buckets, latency.seconds)
