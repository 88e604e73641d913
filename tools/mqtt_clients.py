"""Which MQTT client should the gateway use? Each as a durable echo: what it hears is committed before it is said again.

    pip install gmqtt 'paho-mqtt>=2'; python tools/mqtt_clients.py

Rate, CPU a message, p99 at 500/s and resident size, in turns at one mosquitto. The decision is in docs/architecture.md.
"""

import asyncio
import select
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from veilstream.apps.bench.echo import AT_ONCE, IDLE_S, cpu_seconds, readings_from, warm
from veilstream.apps.bench.mosquitto import Mosquitto, RawClient
from veilstream.apps.bench.resident import resident
from veilstream.gateway import broker
from veilstream.gateway.packets import THREE

MESSAGES, ROUNDS, PER_SECOND, PACED = 6000, 5, 500, 2000
Keep = Callable[[list[tuple[str, bytes]]], None]


def kept(folder: Path, name: str) -> Keep:
    db = sqlite3.connect(folder / f"{name}.db", isolation_level=None)
    for line in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "CREATE TABLE heard (name BLOB, said BLOB)"):
        db.execute(line)

    def keep(rows: list[tuple[str, bytes]]) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO heard VALUES (?, ?)", rows)
        db.execute("COMMIT")

    return keep


def out(topic: str) -> str:
    return topic.replace("/in/", "/out/")


def codec(port: int, keep: Keep, name: str = "mqtt5") -> None:
    """Our loop; the packets are those of the library `mqtt5`."""
    connection = broker.Connection(broker.BrokerSettings("127.0.0.1", port, name, status_topic=""), [f"{name}/in/+"])
    while True:
        connection.turn(IDLE_S)
        if heard := connection.inbox.take(AT_ONCE):
            keep([(m.topic, m.payload) for m in heard])
        for m in heard:
            connection.publish(out(m.topic), m.payload)
            connection.ack(m)
        connection.confirmed.clear()


def hand(port: int, keep: Keep) -> None:
    """The same over MQTT 3.1.1, by hand."""
    broker.FIVE = THREE  # type: ignore[attr-defined]
    codec(port, keep, "hand")


def paho(port: int, keep: Keep) -> None:
    import paho.mqtt.client as mqtt
    from paho.mqtt.enums import CallbackAPIVersion

    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="paho", protocol=mqtt.MQTTv5, manual_ack=True)
    client.max_inflight_messages_set(0)
    client.on_socket_register_write = lambda *_: None
    heard: list[Any] = []
    client.on_connect = lambda client, *_: client.subscribe("paho/in/+", 1)
    client.on_message = lambda client, userdata, m: heard.append(m)
    client.connect("127.0.0.1", port)
    sock: Any = client.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while client.loop_misc() == mqtt.MQTT_ERR_SUCCESS:
        if client.want_write():
            client.loop_write()
        wait = IDLE_S
        while len(heard) < AT_ONCE and select.select([sock], [], [], wait)[0] and client.loop_read() == 0:
            wait = 0.0
        if heard:
            keep([(m.topic, m.payload) for m in heard])
        for m in heard:
            client.publish(out(m.topic), m.payload, qos=1)
            client.ack(m.mid, m.qos)
        heard.clear()
        sock.setsockopt(socket.IPPROTO_TCP, broker.QUICKACK, 1)


def gmqtt(port: int, keep: Keep) -> None:
    from gmqtt import Client

    async def main() -> None:
        client = Client("gmqtt", clean_session=False, session_expiry_interval=3600, optimistic_acknowledgement=False)
        heard: list[tuple[str, bytes, asyncio.Future[None]]] = []
        some = asyncio.Event()

        async def on_message(client: Any, topic: str, payload: bytes, qos: int, properties: Any) -> int:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heard.append((topic, payload, done))
            some.set()
            await done
            return 0

        client.on_message = on_message
        client.on_connect = lambda client, *_: client.subscribe("gmqtt/in/+", qos=1)
        await client.connect("127.0.0.1", port, keepalive=30)
        while await some.wait():
            some.clear()
            now, heard[:] = heard[:], []
            keep([(topic, payload) for topic, payload, _ in now])
            for topic, payload, done in now:
                client.publish(out(topic), payload, qos=1)
                done.set_result(None)
            await asyncio.sleep(0)

    asyncio.run(main())


PROGRAMS: dict[str, Callable[[int, Keep], None]] = {"hand": hand, "mqtt5": codec, "paho": paho, "gmqtt": gmqtt}


def measured(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        mosquitto = Mosquitto(folder, "set_tcp_nodelay true", persistent=False)
        running, clients = {}, {}
        try:
            for name in names:
                command = [sys.executable, __file__, name, str(mosquitto.port), text]
                running[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
                clients[name] = RawClient(mosquitto.port, f"{name}/out/+")
                warm(clients[name], f"{name}/in")
            rates: dict[str, list[float]] = {name: [] for name in names}
            used = dict.fromkeys(names, 0.0)
            for _ in range(ROUNDS):
                for name in names:
                    said, before = readings_from(f"{name}/in", 10, MESSAGES), cpu_seconds(running[name].pid)
                    rates[name].append(MESSAGES / clients[name].run(said, MESSAGES))
                    used[name] += cpu_seconds(running[name].pid) - before
            for name in names:
                p50, p99 = paced(clients[name], name)
                print(
                    f"{name:6} {statistics.median(rates[name]):8.0f}/s (best {max(rates[name]):.0f})"
                    f"  {1e6 * used[name] / (ROUNDS * MESSAGES):6.1f} µs  p50 {p50:.2f} ms  p99 {p99:.2f} ms"
                    f"  {resident(running[name].pid) / 1e6:.0f} MB",
                    flush=True,
                )
        finally:
            for process in running.values():
                process.terminate()
                process.wait(10)
            mosquitto.stop()


def paced(client: RawClient, name: str) -> tuple[float, float]:
    late: list[float] = []
    client.on_message = lambda _: late.append(time.perf_counter() - client.started - len(late) / PER_SECOND)
    client.paced(readings_from(f"{name}/in", 10, PACED), PER_SECOND)
    client.on_message = None
    p50, p99 = np.quantile(late, [0.5, 0.99]) * 1000
    return float(p50), float(p99)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[2].isdigit():
        PROGRAMS[sys.argv[1]](int(sys.argv[2]), kept(Path(sys.argv[3]), sys.argv[1]))
    else:
        measured(sys.argv[1:] or list(PROGRAMS))
