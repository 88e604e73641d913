"""What the gateway is measured against, each a process of its own on a broker of our own.

echo      by paho, the usual client: what somebody would write
own       by our own client, which is lighter: the bare transport, and nothing is kept
durable   the same, and every message is committed to SQLite before it is said again: transport and disk, no privacy
gateway   `veil serve` without its command line
"""

import json
import select
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environment
from mosquitto import Mosquitto, RawClient, publish
from veilstream.artefact import save
from veilstream.control.automaton import window
from veilstream.control.controller import Controller
from veilstream.gateway.broker import QUICKACK, BrokerSettings, Connection
from veilstream.gateway.inbox import Heard
from veilstream.model.builtin import builtin_problem
from veilstream.model.problem import Average, Problem

STREAMS = 500
IDLE_S, AT_ONCE = 0.05, 1000  # as the gateway


def example() -> tuple[Problem, Controller]:
    """A window-1 policy on the paper's grid, of the optimal one's shape; speed does not depend on its numbers."""
    problem = builtin_problem("grid4x4-q2", Average(weight=1.0))
    r = np.random.default_rng(0).dirichlet(np.ones(problem.n_outputs), problem.n_outputs)
    return problem, Controller(
        window(problem.n_outputs, 1), r[None], np.exp2(-problem.distortion)[None, None], window=1
    )


@contextmanager
def setting(*lines: str, broker: bool = True) -> Iterator[tuple[Path, Any]]:
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


def warm(client: RawClient, prefix: str) -> None:
    """Until the first answer: the program behind the topics has started."""
    for t in range(600):
        client.paced([publish(f"{prefix}/warm", b'{"t":%d,"value":1}' % t, t)], 1, linger_s=0.1)
        if client.received:
            client.paced([], 1, linger_s=0.5)
            return
    raise RuntimeError("the program under test did not start within a minute")


@contextmanager
def running(folder: Path, port: int, what: str) -> Iterator[int]:
    """Its process id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.echo", what, str(folder), str(port)], env=environment()
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(10)


def cpu_seconds(pid: int) -> float:
    """What the threads of a process have used of processors so far."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def readings_from(prefix: str, first: int, n: int, batch: int = 1) -> list[bytes]:
    """n messages of `batch` readings each, round the streams, from step `first` on."""
    out = []
    for i in range(n):
        start = first + i // STREAMS * batch
        body = [{"t": start + k, "value": (i + k) % 16} for k in range(batch)]
        out.append(publish(f"{prefix}/s{i % STREAMS}", json.dumps(body if batch > 1 else body[0]).encode(), i))
    return out


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
        connection.turn(IDLE_S)
        _echoed(connection, connection.inbox.take(AT_ONCE), "own")


def _echoed(connection: Connection, heard: list[Heard], prefix: str) -> None:
    for m in heard:
        connection.publish(f"{prefix}/out/" + m.topic.removeprefix(f"{prefix}/in/"), m.payload)
        connection.ack(m)
    connection.confirmed.clear()


def _durable_echo(folder: Path, port: int) -> None:
    """Ours again, and what it heard is committed, as the gateway commits, before it is said or acknowledged."""
    db = sqlite3.connect(folder / "echo.db", isolation_level=None)
    for line in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "CREATE TABLE heard (name BLOB, said BLOB)"):
        db.execute(line)
    connection = Connection(BrokerSettings("127.0.0.1", port, "durable", status_topic=""), ["durable/in/+"])
    while True:
        connection.turn(IDLE_S)
        if heard := connection.inbox.take(AT_ONCE):
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO heard VALUES (?, ?)", [(m.topic, m.payload) for m in heard])
            db.execute("COMMIT")
        _echoed(connection, heard, "durable")


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
    what, folder, port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if what == "gateway":
        _gateway(folder, port)
    elif what == "durable":
        _durable_echo(folder, port)
    else:
        {"echo": _echo, "own": _own_echo}[what](port)
