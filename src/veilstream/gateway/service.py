"""Gateways run together over one core: threads, the clock, signals, a graceful end."""

import gc
import logging
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from veilstream.errors import InputError
from veilstream.gateway.core import Compose, Core
from veilstream.gateway.intake import place_of
from veilstream.gateway.records import StoreError
from veilstream.gateway.stats import Stats

log = logging.getLogger("veilstream.service")
LOOK_S = 0.5  # so that signals are seen
Run = Callable[[threading.Event], None]


class Clock:
    """At the end of every step, one release for every stream, whether a reading came or not."""

    def __init__(
        self, core: Core, space: str, compose: Compose | None = None, done: Callable[[], None] = lambda: None
    ) -> None:
        self.core, self.space, self.compose, self.done = core, space, compose, done

    def run(self, stop: threading.Event) -> None:
        grid, scheduler = self.core.spaces[self.space].grid, self.core.scheduler
        step = scheduler.current_step(self.space)
        while not stop.wait(max(0.0, float(grid.time(step + 1)) - scheduler.now())):
            try:
                self.core.tick(self.space, step, self.compose)
            except StoreError:
                log.error("tick_failed", extra={"step": step})  # this step is skipped for all streams alike
            self.done()
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
