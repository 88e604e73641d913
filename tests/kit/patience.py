"""How long to wait for what should happen at once, on a machine that may be busy with other things."""

import os
import time
from collections.abc import Callable

PATIENCE_S = 60  # until what should happen at once counts as not happening


def crowd() -> float:
    """How many want each core, at least one; what should take a second may take so many."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Patience:
    """So many seconds of a machine of one's own: where others want it too, they pass more slowly, and they pass."""

    def __init__(self, seconds: float = PATIENCE_S) -> None:
        self.left, self._last = seconds, time.monotonic()

    @property
    def over(self) -> bool:
        now = time.monotonic()
        self.left -= (now - self._last) / crowd()
        self._last = now
        return self.left <= 0


def wait_until(done: Callable[[], object], seconds: float = PATIENCE_S, what: str = "it") -> None:
    patience = Patience(seconds)
    while not done():
        assert not patience.over, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)
