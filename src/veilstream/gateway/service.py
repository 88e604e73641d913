"""A gateway from its spec: parts run together over one core, the clock, signals, structured logs, a graceful end.

Logs are one JSON object per line on stderr: events and counts only; no stream's values, no payloads.
"""

import gc
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

from veilstream.errors import InputError
from veilstream.gateway.core import Core, place_of
from veilstream.gateway.records import StoreError
from veilstream.gateway.spec import ServeSpec
from veilstream.gateway.stats import Stats

log = logging.getLogger("veilstream.service")
LOOK_S = 0.5  # so that signals are seen
Run = Callable[[threading.Event], None]
_USUAL = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def serve(spec: ServeSpec) -> None:
    """Until a signal."""
    configure()
    (_work if spec.nats is not None else _serve)(spec)


def _serve(spec: ServeSpec) -> None:
    """MQTT, HTTP or both."""
    assert spec.policy is not None
    routes = spec.routes()
    serving, spaces = spec.serving(), spec.spaces({route.space: file for route, file in routes})
    http, forward, topics = spec.listener(), spec.receiver(), [route for route, _ in routes]
    store = spec.open_store(spec.policy, spaces, logging.getLogger("veilstream.gateway.store").warning)
    with closing(Core(spaces, store, serving)) as core:
        parts: dict[str, Run] = {}
        if spec.mqtt is not None:
            from veilstream.gateway.home import Home
            from veilstream.gateway.mqtt import MqttGateway

            to, home = spec.broker(store.id), None
            if spec.homeassistant:
                home = Home(spaces, spec.status_topic, spec.discovery_prefix)
            gateway = MqttGateway(core, topics, to, home, spec.shared(spaces, topics))
            parts["mqtt"] = gateway.run
        if http is not None:
            from veilstream.gateway.http import HttpGateway

            parts["http"] = HttpGateway(core, http, topics if spec.mqtt is not None else ()).run
        if forward is not None:
            from veilstream.gateway.forward import Forwarder

            onwards = Forwarder(core, forward)
            core.outlets.append(onwards)
            parts["forward"] = onwards.run
        for name in core.scheduler.own if spec.clock else ():
            parts[f"clock {name}".strip()] = Clock(core, name).run
        run(parts, core.stats)


def _work(spec: ServeSpec) -> None:
    """One worker on JetStream."""
    from veilstream.gateway.nats.worker import NatsGateway

    assert spec.policy is not None
    serving, spaces = spec.serving(), spec.spaces(spec.policies(spec.policy))
    shape = {"partitions": spec.partitions, "replicas": spec.replicas, "rebind": spec.rebind, "form": spec.out_format}
    gateway = NatsGateway(spaces, spec.worker(spec.policy, **shape), serving)
    gateway.probe()
    run({"nats": gateway.run}, gateway.stats)


class Clock:
    """At the end of every step, one release for every stream, whether a reading came or not."""

    def __init__(self, core: Core, space: str) -> None:
        self.core, self.space = core, space

    def run(self, stop: threading.Event) -> None:
        grid, scheduler = self.core.spaces[self.space].grid, self.core.scheduler
        step = scheduler.current_step(self.space)
        while not stop.wait(max(0.0, float(grid.time(step + 1)) - scheduler.now())):
            try:
                self.core.tick(self.space, step)
            except StoreError:
                log.error("tick_failed", extra={"step": step})  # this step is skipped for all streams alike
            step = max(step + 1, scheduler.current_step(self.space))


def run(parts: dict[str, Run], stats: Stats) -> None:
    """Every part in its own thread until a signal, or until one of them fails."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    log.info("started", extra={"parts": list(parts), "streams": stats.streams})
    gc.freeze()  # what is there by now stays: no search for garbage need look at it again and again
    with ThreadPoolExecutor(len(parts)) as threads:
        running = [threads.submit(part, stop) for part in parts.values()]
        for part in running:
            part.add_done_callback(lambda _: stop.set())
        while not stop.wait(LOOK_S):
            pass
        log.info("stopping")
    gc.unfreeze()
    log.info("stopped", extra={"released": stats.released, "refused": sum(stats.shown_refusals.values())})
    for name, part in zip(parts, running, strict=True):
        error = part.exception()
        if isinstance(error, InputError):
            raise error
        if error is not None:  # what it says may quote a value, so it is not shown
            log.critical("failed", extra={"failed": name, "reason": type(error).__name__, "at": place_of(error)})
            raise SystemExit(1)


class JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "part": record.name.removeprefix("veilstream."),
        }
        extra = {k: v for k, v in record.__dict__.items() if k not in _USUAL and v is not None}
        return json.dumps({**line, **extra}, default=str)


def configure(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine())
    root = logging.getLogger("veilstream")
    root.handlers, root.propagate = [handler], False
    root.setLevel(level)
    for library in ("aiohttp", "asyncio"):  # they quote malformed requests
        logging.getLogger(library).setLevel(logging.CRITICAL + 1)
