"""A mosquitto broker on loopback, and a client as light as can be, so that what is measured is the gateway."""

import contextlib
import itertools
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from patience import Patience, crowd
from veilstream.errors import InputError

WINDOW = 1000  # messages sent and not yet acknowledged
_ports = itertools.count(61 * os.getpid())


def mosquitto_command() -> str | None:
    return shutil.which("mosquitto") or next((p for p in ("/usr/sbin/mosquitto",) if Path(p).exists()), None)


def free_port() -> int:
    """Below the system's own range, so that no client takes it while its server is down; processes look apart."""
    while True:
        port = 20_000 + next(_ports) % 12_000
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return port


class Mosquitto:
    """A broker that its owner starts, kills and ends."""

    def __init__(self, folder: Path, *lines: str, persistent: bool = True) -> None:
        self.port = free_port()
        self.log = folder / "mosquitto.log"
        self._conf = folder / "mosquitto.conf"
        config = [f"listener {self.port} 127.0.0.1", "max_queued_messages 0", "max_inflight_messages 1000"]
        if os.getuid() == 0:
            config.append("user root")  # its folder belongs to us
        if persistent:
            config += ["persistence true", f"persistence_location {folder}/", "autosave_interval 1"]
        if not any(line.startswith("allow_anonymous") for line in lines):
            config.append("allow_anonymous true")
        self._conf.write_text("\n".join([*config, *lines]) + "\n")
        self.start()

    def start(self) -> None:
        command = mosquitto_command()
        if command is None:
            raise InputError("mosquitto is not installed: apt-get install mosquitto")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([command, "-c", str(self._conf)], stdout=log, stderr=log)
        patience = Patience(10)
        while not self._listening():
            if patience.over or self.process.poll() is not None:
                raise InputError(f"mosquitto does not start: {self.log.read_text()[-200:]}")
            time.sleep(0.02)

    def _listening(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.5):
            return True
        return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10 * crowd())


class RawClient:
    """MQTT 3.1.1 by hand: packets are made before the clock starts, acknowledgements are only counted."""

    def __init__(self, port: int, subscribe: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 5)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(_packet(0x10, _text("MQTT") + bytes([4, 2, 0, 60]) + _text("")))
        self.sock.sendall(_packet(0x82, b"\0\1" + _text(subscribe) + b"\0"))
        self._rest = b""
        self.acknowledged = self.received = 0
        self.on_message: Callable[[bytes], None] | None = None
        ready = False
        while not ready:
            ready = 0x90 in self._take(5)

    def _take(self, timeout: float) -> list[int]:
        """Read what is there; the kinds of packets seen."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return []
        data = self._rest + self.sock.recv(1 << 18)
        at, kinds = 0, []
        while len(data) - at >= 2:
            length, shift, i = 0, 0, at + 1
            while i < len(data):
                length |= (data[i] & 0x7F) << shift
                shift, i = shift + 7, i + 1
                if data[i - 1] < 0x80:
                    break
            if i + length > len(data) or data[i - 1] >= 0x80:
                break
            kind = data[at] & 0xF0
            kinds.append(kind)
            self.acknowledged += kind == 0x40
            if kind == 0x30:
                self.received += 1
                if self.on_message is not None:
                    topic = int.from_bytes(data[i : i + 2])
                    self.on_message(data[i + 2 + topic : i + length])
            at = i + length
        self._rest = data[at:]
        return kinds

    def run(self, packets: Sequence[bytes], expect: int, timeout_s: float = 60) -> float:
        """Send everything, QoS 1, and wait for `expect` messages; seconds taken."""
        patience = Patience(timeout_s)
        start, sent, acked, heard = time.perf_counter(), 0, self.acknowledged, self.received
        while self.received - heard < expect or self.acknowledged - acked < len(packets):
            room = min(WINDOW - (sent - (self.acknowledged - acked)), len(packets) - sent)
            if room > 0:
                self.sock.sendall(b"".join(packets[sent : sent + room]))
                sent += room
            self._take(0.05)
            if patience.over:
                raise InputError(f"only {self.received - heard} of {expect} messages came back in {timeout_s} s")
        return time.perf_counter() - start

    def paced(self, packets: Sequence[bytes], per_second: float, linger_s: float = 1.0) -> None:
        """Send at a steady rate and go on reading for a while."""
        self.started = time.perf_counter()
        for i, packet in enumerate(packets):
            while (wait := self.started + i / per_second - time.perf_counter()) > 0:
                self._take(wait)
            self.sock.sendall(packet)
        until = time.perf_counter() + linger_s
        while time.perf_counter() < until:
            self._take(0.05)

    def close(self) -> None:
        self.sock.close()


def publish(topic: str, payload: bytes, mid: int) -> bytes:
    return _packet(0x32, _text(topic) + (mid % 65535 + 1).to_bytes(2) + payload)


def _text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2) + text.encode()


def _packet(kind: int, body: bytes) -> bytes:
    length, n = b"", len(body)
    while True:
        n, digit = n >> 7, n & 0x7F
        length += bytes([digit | (0x80 if n else 0)])
        if not n:
            return bytes([kind]) + length + body
