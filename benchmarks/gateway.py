"""How fast the gateway is, against the plainest program that does the same transport.

release_many   releases a CPU second against numpy's own categorical draw (Generator.multinomial)
mqtt           durable QoS 1 releases/s against echoes: by paho, by our own client, by our own with a commit (`echo`);
               batches of 20; CPU of each a message, where the machine is busy with other things
latency        from sending a reading to receiving its release, at 500/s
memory, serving, start      how small and how soon (`resident`)
"""

import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.echo import STREAMS, cpu_seconds, example, readings_from, running, setting, warm
from benchmarks.resident import bench_memory, bench_serving, bench_start
from mosquitto import RawClient, mosquitto_command
from veilstream.control.release import release_many

ROUNDS, BATCH = 5, 20
PROGRAMS = {"echo": "echo/", "own": "own/", "durable": "durable/", "gateway": ""}  # and where their topics begin


def bench_release_many(streams: int = 20_000, steps: int = 25) -> dict[str, float]:
    """In turn, the best round of each."""
    problem, policy = example()
    x = problem.chain.sample(steps, streams)
    law = policy.channel(policy.start(streams))[np.arange(streams), x[:, 0]]
    rng = np.random.default_rng()
    work: dict[str, Callable[[], object]] = {
        "numpy": lambda: [rng.multinomial(1, law).argmax(-1) for _ in range(steps)],
        "exact": lambda: release_many(policy, x, problem),
    }
    best = dict.fromkeys(work, 0.0)
    for _ in range(ROUNDS):
        for name, run_it in work.items():
            start = time.process_time()
            run_it()
            best[name] = max(best[name], x.size / (time.process_time() - start))
    numpys, exact = best.values()
    return {
        "numpy_categorical_per_s": numpys,
        "release_many_exact_per_s": exact,
        "release_many_exact_ratio": exact / numpys,
    }


def bench_mqtt(messages: int = 6000) -> dict[str, float]:
    """Echoes and gateway in turn, on the same broker, in the same run; ratios are medians over the rounds."""
    with ExitStack() as stack:
        folder, broker = stack.enter_context(setting())
        clients, pids = {}, {}
        for name, prefix in PROGRAMS.items():
            pids[name] = stack.enter_context(running(folder, broker.port, name))
            clients[name] = RawClient(broker.port, f"{prefix}out/+")
            stack.callback(clients[name].close)
            warm(clients[name], f"{prefix}in")
        rates: dict[str, list[float]] = {name: [] for name in [*PROGRAMS, "batch"]}
        used = dict.fromkeys(PROGRAMS, 0.0)
        step, n = 10, messages // 4
        for _ in range(ROUNDS):
            for name, prefix in PROGRAMS.items():
                packets, before = readings_from(f"{prefix}in", step, messages), cpu_seconds(pids[name])
                rates[name].append(messages / clients[name].run(packets, messages))
                used[name] += cpu_seconds(pids[name]) - before
            step += messages // STREAMS + 1
            rates["batch"].append(BATCH * n / clients["gateway"].run(readings_from("in", step, n, BATCH), n))
            step += BATCH * (n // STREAMS + 1)
    best = {name: max(found) for name, found in rates.items()}

    def ratio(of: str, to: str) -> float:
        return statistics.median(a / b for a, b in zip(rates[of], rates[to], strict=True))

    return {
        "echo_per_s": best["echo"],
        "own_echo_per_s": best["own"],
        "durable_echo_per_s": best["durable"],
        "gateway_per_s": best["gateway"],
        "gateway_to_echo_ratio": ratio("gateway", "echo"),
        "gateway_to_own_echo_ratio": ratio("gateway", "own"),
        "gateway_to_durable_echo_ratio": ratio("gateway", "durable"),
        "batch_of_20_per_s": best["batch"],
        "batch_to_single_ratio": ratio("batch", "gateway"),
        **{f"{name}_cpu_us": 1e6 * used[name] / (ROUNDS * messages) for name in PROGRAMS},
    }


def bench_latency(per_second: float = 500, seconds: float = 6) -> dict[str, float]:
    """With `set_tcp_nodelay true` in the broker, as docs/gateway.md advises, and as mosquitto comes."""
    advised = _latency(per_second, seconds, "set_tcp_nodelay true")
    plain = _latency(per_second, seconds)
    return {"rate_per_s": per_second, **advised, **{f"{k}_plain_broker": v for k, v in plain.items()}}


def _latency(per_second: float, seconds: float, *lines: str) -> dict[str, float]:
    with setting(*lines) as (folder, broker), running(folder, broker.port, "gateway"):
        client = RawClient(broker.port, "out/+")
        warm(client, "in")
        n = int(per_second * seconds)
        due = {(f"s{i % STREAMS}", 10 + i // STREAMS): i / per_second for i in range(n)}
        packets = list(readings_from("in", 10, n))  # made before the clock starts
        late: list[float] = []

        def arrived(payload: bytes) -> None:
            body = json.loads(payload)
            late.append(time.perf_counter() - client.started - due[body["stream"], body["t"]])

        client.on_message = arrived
        client.paced(packets, per_second)
        client.close()
    p50, p99 = np.quantile(late, [0.5, 0.99]) * 1000
    return {"answered": len(late) / n, "p50_ms": float(p50), "p99_ms": float(p99)}


def run(quick: bool = False) -> dict[str, dict[str, Any]]:
    """All of them, by name."""
    missing = {"skipped": "needs mosquitto: apt-get install mosquitto"} if mosquitto_command() is None else None
    no_echo = {"skipped": "needs paho: pip install paho-mqtt"} if find_spec("paho") is None else None
    return {
        "release_many": bench_release_many(),
        "mqtt": missing or no_echo or bench_mqtt(2000 if quick else 6000),
        "latency": missing or bench_latency(seconds=2 if quick else 6),
        "memory": bench_memory(100_000 if quick else 1_000_000),
        "serving": missing or bench_serving(100_000 if quick else 1_000_000),
        "start": bench_start(),
    }
