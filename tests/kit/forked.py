"""Gateways as processes of their own that start in a few milliseconds, to be killed and frozen."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path


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
        self.process.wait(20)

    def __enter__(self) -> "Gateways":
        return self

    def __exit__(self, *_) -> None:
        """Nothing is left running, whatever happened."""
        self.process.stdin.close()
        self.signal(signal.SIGKILL)
        self.process.wait(20)
        self.log.close()
