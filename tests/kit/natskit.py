"""What the tests of the gateway on NATS share: a session on any link, a worker in a thread."""

import asyncio
import json
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nats", reason="needs nats-py: pip install 'veilstream[nats]'")

from benchmarks.nats import ready
from nats_drill import connected, everything, until, worker
from patience import PATIENCE_S, wait_until
from veilstream.errors import InputError
from veilstream.gateway.nats.client import LinkSettings
from veilstream.gateway.nats.integrity import Seal
from veilstream.gateway.nats.layout import Layout, NatsSettings, binding_of
from veilstream.gateway.nats.ledger import Ledger
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.nats.session import Session
from veilstream.gateway.nats.worker import NatsGateway
from veilstream.gateway.scheduler import Scheduler, Serving
from veilstream.gateway.space import Space
from veilstream.gateway.stats import Stats

SEAL = Seal(bytes(range(32)))
NEEDS_SERVER = pytest.mark.service("nats-server")
VEIL = Names()
ANN, META = VEIL.key(DEFAULT_SPACE, "ann"), VEIL.meta


_folder = tempfile.TemporaryDirectory()


def key_file() -> str:
    """SEAL as workers read it."""
    file = Path(_folder.name) / "key"
    if not file.exists():
        file.touch(0o600)
        file.write_text(SEAL.key.hex())
    return str(file)


def session_on(
    art,
    link,
    names=Names(),  # noqa: B008
    ceiling=None,
    keep=4,
    now=time.time,
    uniforms=None,
    **serving,
) -> Session:
    """A session of the only worker, on a link that may be none of NATS."""
    space, members = Space(art, ceiling), SimpleNamespace(mine={0}, id="test", forged=0)
    ledger = Ledger(link, names, SEAL, {DEFAULT_SPACE: binding_of(space)}, keep)
    scheduler = Scheduler({DEFAULT_SPACE: space}, Serving(keep=keep, **serving), uniforms, now)
    return Session(link, Layout(names, 1, 1, SEAL), ledger, members, scheduler, Stats(0, [], scheduler.serving.clock))


def message(stream: str, body: object, reply: str = "1"):
    """A reading as the queue delivers it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return SimpleNamespace(subject=f"veil.part.0.default.{stream}", data=data, reply=reply)


async def stored(link, names: Names = VEIL) -> dict[str, bytes]:
    """What the bucket holds, but for the probe."""
    return {m["subject"]: m["data"] for m in await everything(link, names.memory) if m["subject"] != names.probe}


async def send(link, names: Names, stream: str, steps, value: float = 3.0) -> None:
    bodies = [json.dumps({"t": t, "value": value}).encode() for t in steps]
    for body in bodies:
        (answer,) = await link.ask([(names.reading(DEFAULT_SPACE, stream), body, None)])
        assert isinstance(answer, dict)


async def released(link, names: Names, stream: str) -> list[bytes]:
    return [m["data"] for m in await everything(link, names.releases) if m["subject"].endswith(f".{stream}")]


class Running:
    """A worker in a thread of its own."""

    def __init__(self, art, urls, prefix, link=None, serving=Serving(), ceiling=None, key=None, **more) -> None:  # noqa: B008
        settings = NatsSettings(key or key_file(), link or LinkSettings(tuple(urls)), Names(prefix), **more)
        self.gateway = NatsGateway({DEFAULT_SPACE: Space(art, ceiling)}, settings, serving)
        self._stop, self.error = threading.Event(), None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.gateway.run(self._stop)
        except InputError as error:
            self.error = error

    def __enter__(self) -> NatsGateway:
        self._thread.start()
        wait_until(lambda: self.gateway.stats.connected or self.error, what="start")
        assert not self.error
        return self.gateway

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)


def released_through_a_kill(path, server, prefix, messages, at):
    """What two workers publish, stream by stream, when one is killed after round `at`.

    messages: of each stream, a payload for every round.
    """
    names = Names(prefix)

    async def drive():
        link = await connected(server.urls)
        options = ("--option", f"prefix={prefix}", "--option", "partitions=4")
        workers = [worker(path, server.urls, path.with_suffix(f".{i}.log"), *options) for i in range(2)]
        try:
            await ready(link, names, 2)
            for k, payloads in enumerate(zip(*messages.values(), strict=True)):
                each = zip(messages, payloads, strict=True)
                await link.ask([(names.reading(DEFAULT_SPACE, name), json.dumps(p).encode(), None) for name, p in each])
                if k == at:
                    workers[0].kill()
                await asyncio.sleep(0.02)
            await until(link, names.readings, 0, PATIENCE_S)
        finally:
            for process in workers:
                process.terminate()
                process.wait(PATIENCE_S)
        out = await everything(link, names.releases)
        await link.close()
        return out

    released = {name: [] for name in messages}
    for m in asyncio.run(drive()):
        body = json.loads(m["data"])
        released[body["stream"]].append(body)
    return released
