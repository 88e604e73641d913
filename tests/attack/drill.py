"""What a drill is, and one trial of it."""

import random
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mosquitto import mosquitto_command
from nats_server import nats_command

SERVERS = {"mosquitto": mosquitto_command, "nats-server": nats_command}


@dataclass
class Trial:
    """`rng` is all the chance a trial has (but for the draws themselves): the same seed is the same attack."""

    rng: random.Random
    folder: Path
    size: float = 1.0  # of the attack; less in the short form
    figures: dict[str, float] = field(default_factory=dict)  # worth reporting; the largest of all trials is kept

    def times(self, n: int) -> int:
        return max(1, round(n * self.size))


@dataclass(frozen=True)
class Drill:
    name: str
    promise: str
    trial: Callable[[Trial], int]  # how many attacks it made; raises if the promise did not hold
    needs: str = ""  # a server

    @property
    def ready(self) -> bool:
        return not self.needs or SERVERS[self.needs]() is not None

    def run(self, seed: str, number: int, size: float = 1.0) -> "Done":
        """One trial, in a folder of its own."""
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="attack-") as folder:
            trial = Trial(random.Random(f"{seed}/{self.name}/{number}"), Path(folder), size)
            try:
                attacks, finding = self.trial(trial), None
            except (Exception, BaseExceptionGroup) as error:  # schemathesis raises groups
                attacks, finding = 0, Finding(self.name, seed, number, *_told(error))
        return Done(attacks, time.monotonic() - start, trial.figures, finding)


@dataclass(frozen=True)
class Finding:
    drill: str
    seed: str
    trial: int
    what: str
    where: str

    @property
    def replay(self) -> str:
        return f"make attack SEED={self.seed} DRILL='{self.drill}' TRIAL={self.trial}"


@dataclass(frozen=True)
class Done:
    attacks: int
    seconds: float
    figures: dict[str, float]
    finding: Finding | None


def _told(error: BaseException) -> tuple[str, str]:
    lines = [line for line in (str(error) or repr(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' / '.join(lines[:3])[:300]}", "".join(traceback.format_exception(error))[-4000:]
