"""Gateways as processes of their own, to be killed and frozen; those of `Gateways` start in a few milliseconds."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from patience import PATIENCE_S
from veilcli import VEIL


class Gateways:
    """The forker, and the gateway that it has started last."""

    def __init__(self, *arguments) -> None:
        """As `forker.py` takes them; the log is beside the store."""
        log = Path(arguments[1]).with_suffix(".log")
        self.log = log.open("ab")
        command = [sys.executable, Path(__file__).with_name("forker.py"), *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)

    def start(self, word: str = "") -> int:
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()
        self.pid = int(self.process.stdout.readline())
        return self.pid

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)

    def __enter__(self) -> "Gateways":
        return self

    def __exit__(self, *_) -> None:
        """Nothing is left running, whatever happened."""
        self.process.stdin.close()
        self.signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        self.log.close()


def answered_through_kills(path: Path, store: Path, lines: list[bytes], rng, least: int) -> tuple[list[bytes], int]:
    """What `veil release` answers to each line, and how often it was killed: each time after `least` answers or more.

    The last that were answered are said again, and answered the same.
    """
    command = [*VEIL, "release", str(path), "--store", str(store)]
    seen: dict[float, bytes] = {}
    kills = 0
    while len(seen) < len(lines):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first, last = max(0, len(seen) - 3), min(len(lines), len(seen) + int(rng.integers(least, 40)))
        for line in lines[first:last]:  # one at a time: an answer is a commit
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
            assert seen.setdefault(json.loads(answer)["t"], answer) == answer
        for line in lines[last : last + 5]:  # and some whose answer nobody hears
            process.stdin.write(line)
        process.stdin.flush()
        time.sleep(float(rng.random()) * 0.02)
        process.kill()
        process.communicate()
        kills += 1
    return [seen[t] for t in sorted(seen)], kills
