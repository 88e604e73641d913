"""The counts of a gateway as Prometheus reads them. Released data, steps and sizes only, and no labels but refusals.

No stream is named, so the number of series is fixed. Latencies are of what releases something, whatever the values are;
under a clock there are none, since how long a tick takes could tell whether readings came before it.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from veilstream.gateway.stats import Latency, Stats


def text(stats: Stats) -> str:
    """What GET /metrics answers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(stats))
    return generate_latest(registry).decode()


class _Collector:
    """Reads the counts when it is asked: nothing is counted twice, nothing is kept here."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        s = self._stats
        yield CounterMetricFamily("veil_releases", "Releases that were committed.", s.released)
        yield CounterMetricFamily("veil_silent_steps", "Steps at which a stream was silent.", s.silent)
        yield CounterMetricFamily("veil_blind_releases", "Releases beyond a ceiling: they look at no data.", s.blind)
        if not s.clock:
            yield CounterMetricFamily("veil_repeats", "Readings of a step that was released before.", s.repeated)
            yield CounterMetricFamily("veil_store_errors", "Commits that failed; nothing was released.", s.store_errors)
            yield CounterMetricFamily("veil_republished", "Releases sent again after a break.", s.republished)
            yield CounterMetricFamily("veil_dropped", "Messages of QoS 0 that found no room.", s.dropped)
            yield CounterMetricFamily("veil_commits", "Transactions that released something.", s.commit.n)
            yield CounterMetricFamily("veil_commit_seconds", "Time in these transactions.", s.commit.seconds)
        refused = CounterMetricFamily("veil_refused", "Readings that were refused, by reason.", labels=["reason"])
        for reason, n in sorted(s.shown_refusals.items()):
            refused.add_metric([reason], n)
        if refused.samples:
            yield refused
        by = CounterMetricFamily(
            "veil_broker_refused", "Releases the broker refused, by its reason.", labels=["reason"]
        )
        for reason, n in sorted(s.broker_refused.items()):
            by.add_metric([reason], n)
        yield by
        yield GaugeMetricFamily(
            "veil_broker_trouble", "Whether something is wrong with the broker.", int(s.trouble is not None)
        )
        yield GaugeMetricFamily("veil_streams", "Streams in the store.", s.streams)
        yield GaugeMetricFamily("veil_outbox", "Releases on their way to the broker.", s.outbox)
        yield GaugeMetricFamily("veil_broker_connected", "Whether the broker is connected.", int(bool(s.connected)))
        if not s.clock:
            yield _histogram("veil_commit_latency_seconds", "From a batch of readings to its durable commit.", s.commit)
            yield _histogram("veil_request_latency_seconds", "From an HTTP body to its releases.", s.request)


def _histogram(name: str, what: str, latency: Latency) -> HistogramMetricFamily:
    counts, so_far, buckets = list(latency.counts), 0, []
    for edge, n in zip((*map(str, latency.EDGES), "+Inf"), counts, strict=True):
        so_far += n
        buckets.append((edge, so_far))
    return HistogramMetricFamily(name, what, buckets=buckets, sum_value=latency.seconds)
