"""Devices and services at an MQTT broker, and a gateway in a thread."""

import contextlib
import json
import threading

from patience import PATIENCE_S, wait_until
from veilstream.gateway.broker import BrokerSettings, Connection
from veilstream.gateway.mqtt import MqttGateway
from veilstream.gateway.topics import Route


class Client(threading.Thread):
    """A device or a service: publishes what is put in, collects what it hears; reconnects for ever."""

    def __init__(self, port: int, *filters: str, client_id: str = "", **settings) -> None:
        super().__init__(daemon=True)
        self.settings = BrokerSettings("127.0.0.1", port, client_id, status_topic="", **settings)
        self.filters = list(filters)
        self.heard: list[tuple[str, bytes, bool]] = []
        self.queue: list[tuple[str, bytes, bool]] = []
        self.confirmed: set[int] = set()
        self.ready, self.ended = threading.Event(), threading.Event()
        self.start()
        assert self.ready.wait(PATIENCE_S)

    def run(self) -> None:
        while not self.ended.is_set():
            with contextlib.suppress(OSError):
                self.session(Connection(self.settings, self.filters))
            self.ended.wait(0.1)

    def session(self, connection: Connection) -> None:
        sent: dict[int, int] = {}
        at = 0
        self.ready.set()
        while not self.ended.is_set():
            while at < len(self.queue) and len(sent) < 200:
                if at not in self.confirmed:
                    topic, payload, retain = self.queue[at]
                    sent[connection.publish(topic, payload, retain)] = at
                at += 1
            connection.turn(0.02)
            for m in connection.inbox.take(1000):
                self.heard.append((m.topic, m.payload, m.retain))
                connection.ack(m)
            while connection.confirmed:
                mid = connection.confirmed.popleft()
                if mid in sent:
                    self.confirmed.add(sent.pop(mid))
        connection.close()

    def say(self, topic: str, payload, retain: bool = False) -> None:
        self.queue.append((topic, payload if isinstance(payload, bytes) else json.dumps(payload).encode(), retain))

    def all_sent(self) -> bool:
        return len(self.confirmed) == len(self.queue)

    def releases(self) -> list[dict]:
        found = []
        for _, payload, _ in list(self.heard):
            body = json.loads(payload)
            found += body if isinstance(body, list) else [body]
        return found

    def end(self) -> None:
        self.ended.set()
        self.join(PATIENCE_S)


@contextlib.contextmanager
def serving(core, port, *routes: Route, republish: int = 100, home=None, audiences=(), **settings):
    stop = threading.Event()
    settings = BrokerSettings("127.0.0.1", port, "gateway", republish=republish, **settings)
    gateway = MqttGateway(core, list(routes) or [Route("in/+", "out/+")], settings, home, audiences)
    thread = threading.Thread(target=gateway.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: core.stats.connected, what="the gateway's connection")
        yield gateway
    finally:
        stop.set()
        thread.join()
