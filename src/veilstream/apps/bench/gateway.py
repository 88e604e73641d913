"""How fast the gateway is, against the plainest program that does the same transport.

release_many   releases/s against numpy's own categorical draw (Generator.multinomial)
mqtt           durable QoS 1 releases/s against bare echoes: by paho, the usual client, and by our own; batches of 20
latency        from sending a reading to receiving its release, at 500/s
memory         resident size of `veil release` over a million readings
"""

import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from veilstream.apps.bench.mosquitto import Mosquitto, RawClient, mosquitto_command, publish
from veilstream.artefact import save
from veilstream.core.builtin import builtin_problem
from veilstream.core.problem import Average, Problem
from veilstream.core.release import release_many
from veilstream.core.window import WindowPolicy
from veilstream.gateway.broker import QUICKACK, BrokerSettings, Connection

STREAMS, ROUNDS, BATCH = 500, 3, 20


def example() -> tuple[Problem, WindowPolicy]:
    """A window-1 policy on the paper's grid, of the optimal one's shape; speed does not depend on its numbers."""
    problem = builtin_problem("grid4x4-q2", Average(weight=1.0))
    r = np.random.default_rng(0).dirichlet(np.ones(problem.n_outputs), problem.n_outputs)
    return problem, WindowPolicy(r, np.exp2(-problem.distortion)[None], 1)


def bench_release_many(streams: int = 20_000, steps: int = 25) -> dict[str, float]:
    problem, policy = example()
    x = problem.chain.sample(steps, streams)
    law = policy.channel(policy.start(streams))[np.arange(streams), x[:, 0]]
    rng = np.random.default_rng()

    def rate(work: Callable[[], object], n: int) -> float:
        best = 0.0
        for _ in range(ROUNDS):
            start = time.perf_counter()
            work()
            best = max(best, n / (time.perf_counter() - start))
        return best

    numpys = rate(lambda: [rng.multinomial(1, law).argmax(-1) for _ in range(steps)], x.size)
    table = rate(lambda: release_many(policy, x, problem, meter="table"), x.size)
    exact = rate(lambda: release_many(policy, x, problem), x.size)
    return {
        "numpy_categorical_per_s": numpys,
        "release_many_table_per_s": table,
        "release_many_table_ratio": table / numpys,
        "release_many_exact_per_s": exact,
        "release_many_exact_ratio": exact / numpys,
        "release_many_table_to_exact_ratio": table / exact,
    }


@contextmanager
def _running(folder: Path, port: int, what: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "veilstream.apps.bench.gateway", what, str(folder), str(port)])
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def _readings(prefix: str, first: int, n: int, batch: int = 1) -> list[bytes]:
    """n messages of `batch` readings each, round the streams, from step `first` on."""
    out = []
    for i in range(n):
        start = first + i // STREAMS * batch
        body = [{"t": start + k, "value": (i + k) % 16} for k in range(batch)]
        out.append(publish(f"{prefix}/s{i % STREAMS}", json.dumps(body if batch > 1 else body[0]).encode(), i))
    return out


def bench_mqtt(messages: int = 6000) -> dict[str, float]:
    """Echoes and gateway in turn, on the same broker, in the same run."""
    with (
        _setting() as (folder, broker),
        _running(folder, broker.port, "echo"),
        _running(folder, broker.port, "own"),
        _running(folder, broker.port, "gateway"),
    ):
        echo, own, gateway = (RawClient(broker.port, topic) for topic in ("echo/out/+", "own/out/+", "out/+"))
        _warm(echo, "echo/in")
        _warm(own, "own/in")
        _warm(gateway, "in")
        rates: dict[str, list[float]] = {"echo": [], "own": [], "single": [], "batch": []}
        step = 10
        for _ in range(ROUNDS):
            rates["echo"].append(messages / echo.run(_readings("echo/in", step, messages), messages))
            rates["own"].append(messages / own.run(_readings("own/in", step, messages), messages))
            rates["single"].append(messages / gateway.run(_readings("in", step, messages), messages))
            step += messages // STREAMS + 1
            n = messages // 4
            rates["batch"].append(BATCH * n / gateway.run(_readings("in", step, n, BATCH), n))
            step += BATCH * (n // STREAMS + 1)
        for client in (echo, own, gateway):
            client.close()
    best = {name: max(found) for name, found in rates.items()}

    def ratio(of: str, to: str) -> float:
        return statistics.median(a / b for a, b in zip(rates[of], rates[to], strict=True))

    return {
        "echo_per_s": best["echo"],
        "own_echo_per_s": best["own"],
        "gateway_per_s": best["single"],
        "gateway_to_echo_ratio": ratio("single", "echo"),
        "gateway_to_own_echo_ratio": ratio("single", "own"),
        "batch_of_20_per_s": best["batch"],
        "batch_to_single_ratio": ratio("batch", "single"),
    }


def bench_latency(per_second: float = 500, seconds: float = 6) -> dict[str, float]:
    """With `set_tcp_nodelay true` in the broker, as docs/gateway.md advises, and as mosquitto comes."""
    advised = _latency(per_second, seconds, "set_tcp_nodelay true")
    plain = _latency(per_second, seconds)
    return {"rate_per_s": per_second, **advised, **{f"{k}_plain_broker": v for k, v in plain.items()}}


def _latency(per_second: float, seconds: float, *lines: str) -> dict[str, float]:
    with _setting(*lines) as (folder, broker), _running(folder, broker.port, "gateway"):
        client = RawClient(broker.port, "out/+")
        _warm(client, "in")
        n = int(per_second * seconds)
        due = {(f"s{i % STREAMS}", 10 + i // STREAMS): i / per_second for i in range(n)}
        packets = list(_readings("in", 10, n))  # made before the clock starts
        late: list[float] = []

        def arrived(payload: bytes) -> None:
            body = json.loads(payload)
            late.append(time.perf_counter() - client.started - due[body["stream"], body["t"]])

        client.on_message = arrived
        client.paced(packets, per_second)
        client.close()
    p50, p99 = np.quantile(late, [0.5, 0.99]) * 1000
    return {"answered": len(late) / n, "p50_ms": float(p50), "p99_ms": float(p99)}


def bench_memory(readings: int = 1_000_000) -> dict[str, float]:
    """Resident size of `veil release` after a tenth and after all of the readings."""
    with _setting(broker=False) as (folder, _):
        code = "from veilstream.apps.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, "release", str(folder / "policy.veil")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        out, done = process.stdout, [0]
        sizes: dict[int, int] = {}

        def read() -> None:
            for _ in out:
                done[0] += 1
                if done[0] in (readings // 10, readings):
                    sizes[done[0]] = _resident(process.pid)

        reader = threading.Thread(target=read)
        reader.start()
        start = time.perf_counter()
        for first in range(0, readings, 1000):
            form, these = b'{"stream":"s%d","t":%d,"value":%d}\n', range(first, first + 1000)
            process.stdin.write(b"".join(form % (i % 1000, i // 1000, i % 16) for i in these))
            if first + 1000 == readings:
                process.stdin.flush()
                while done[0] < readings and process.poll() is None:
                    time.sleep(0.05)
        seconds = time.perf_counter() - start
        process.stdin.close()
        reader.join()
        process.wait()
    early, late = sizes[readings // 10], sizes[readings]
    return {
        "readings": readings,
        "readings_per_s": readings / seconds,
        "resident_mb_at_a_tenth": early / 1e6,
        "resident_mb_at_the_end": late / 1e6,
        "growth_ratio": late / early,
    }


def run(quick: bool = False) -> dict[str, dict[str, Any]]:
    """All of them, by name."""
    missing = {"skipped": "needs mosquitto: apt-get install mosquitto"} if mosquitto_command() is None else None
    no_echo = {"skipped": "needs paho: pip install paho-mqtt"} if find_spec("paho") is None else None
    return {
        "release_many": bench_release_many(),
        "mqtt": missing or no_echo or bench_mqtt(2000 if quick else 6000),
        "latency": missing or bench_latency(seconds=2 if quick else 6),
        "memory": bench_memory(100_000 if quick else 1_000_000),
    }


@contextmanager
def _setting(*lines: str, broker: bool = True) -> Iterator[tuple[Path, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem, policy = example()
        save(folder / "policy.veil", policy, problem=problem)
        running = Mosquitto(folder, *lines, persistent=False) if broker else None
        try:
            yield folder, running
        finally:
            if running is not None:
                running.stop()


def _warm(client: RawClient, prefix: str) -> None:
    """Until the first answer: the program behind the topics has started."""
    for t in range(600):
        client.paced([publish(f"{prefix}/warm", b'{"t":%d,"value":1}' % t, t)], 1, linger_s=0.1)
        if client.received:
            client.paced([], 1, linger_s=0.5)
            return
    raise RuntimeError("the program under test did not start within a minute")


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- the programs under test ---------------------------------------------------------------------------------


def _echo(port: int) -> None:
    """By paho, as quick as it gets: what is said leaves when there is nothing more to read."""
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="echo", clean_session=False, manual_ack=True)
    client.max_inflight_messages_set(0)
    client.on_socket_register_write = lambda *_: None

    def connected(client: Any, *_: Any) -> None:
        client.subscribe("echo/in/+", 1)

    def heard(client: Any, userdata: Any, m: Any) -> None:
        client.publish("echo/out/" + m.topic.removeprefix("echo/in/"), m.payload, qos=1)
        client.ack(m.mid, m.qos)

    client.on_connect, client.on_message = connected, heard
    client.connect("127.0.0.1", port)
    sock: Any = client.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while client.loop_misc() == paho.MQTT_ERR_SUCCESS:
        if client.want_write():
            client.loop_write()
        wait = 0.05
        while select.select([sock], [], [], wait)[0] and client.loop_read() == paho.MQTT_ERR_SUCCESS:
            wait = 0.0
        if QUICKACK is not None:
            sock.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)


def _own_echo(port: int) -> None:
    connection = Connection(BrokerSettings("127.0.0.1", port, "own", status_topic=""), ["own/in/+"])
    while True:
        connection.turn(0.05)
        for m in connection.inbox:
            connection.publish("own/out/" + m.topic.removeprefix("own/in/"), m.payload)
            connection.ack(m)
        connection.inbox.clear()
        connection.confirmed.clear()


def _gateway(folder: Path, port: int) -> None:
    from veilstream.artefact import load
    from veilstream.gateway import service
    from veilstream.gateway.core import Core
    from veilstream.gateway.mqtt import MqttGateway
    from veilstream.gateway.space import Space
    from veilstream.gateway.store import Store
    from veilstream.gateway.topics import Route

    space = Space(load(folder / "policy.veil"))
    core = Core({"": space}, Store(folder / "store.db", {"": space.binding}))
    gateway = MqttGateway(core, [Route("in/+", "out/+")], BrokerSettings("127.0.0.1", port, "gateway"))
    service.run({"mqtt": gateway.run}, core.stats)
    core.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["echo"]:
        _echo(int(sys.argv[3]))
    elif sys.argv[1:2] == ["own"]:
        _own_echo(int(sys.argv[3]))
    elif sys.argv[1:2] == ["gateway"]:
        _gateway(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        print(json.dumps(run(), indent=1))
