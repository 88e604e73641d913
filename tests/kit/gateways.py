"""Every transport and every store of the gateway behind one small interface, for the promises they all must keep.

A `Place` is somewhere a gateway can be opened, closed and opened again. While it is open, `say` gives it one message
and returns when that is settled; `heard` is all that ever came out. A new one joins by a class and its line in PLACES.
"""

import asyncio
import contextlib
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from fakejetstream import FaultyLink
from fakejetstream import Server as FakeJetStream
from gatewaykit import NEEDS_MOSQUITTO, core_of
from httpkit import Server as HttpServer
from mosquitto import Mosquitto
from mqttkit import Client, serving
from nats_drill import connected, everything, until
from nats_server import NatsCluster
from natskit import NEEDS_SERVER, Running, message, session_on
from patience import PATIENCE_S, wait_until
from veilstream.gateway import pipe
from veilstream.gateway.nats.names import DEFAULT_SPACE, Names
from veilstream.gateway.scheduler import Serving
from veilstream.gateway.stats import Stats
from veilstream.gateway.store import MEMORY
from veilstream.gateway.wire import parse

Say = Callable[[str, object], None]


class Place:
    needs: ClassVar[list] = []
    lasting = True  # what was released is known after it was closed
    rebinds = True  # another policy may simply be started
    names_streams = False  # beside the message, as a topic does

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "s.db"
        self.heard: list[dict] = []
        self.stats = Stats(0, [])

    @contextlib.contextmanager
    def open(self, art, ceiling=None, **options) -> Iterator["Place"]:
        with self.serving(art, ceiling, options) as say:
            self._say = say
            yield self

    def serving(self, art, ceiling, options) -> contextlib.AbstractContextManager[Say]:
        raise NotImplementedError

    def say(self, stream: str, body: object) -> None:
        """A reading, several in a list, or bytes as they are."""
        if not self.names_streams and not isinstance(body, bytes):
            body = [{"stream": stream, **b} for b in body] if isinstance(body, list) else {"stream": stream, **body}
        self._say(stream, body if isinstance(body, bytes) else json.dumps(body).encode())

    def release(self, stream: str, t: int) -> dict | None:
        """What a receiver knows of this step; all copies must be the same."""
        found = [r for r in self.heard if (r.get("stream"), r.get("t")) == (stream, t)]
        assert all(r == found[0] for r in found), "two different releases of one step"
        return found[0] if found else None

    def hear(self, body: object) -> None:
        self.heard += body if isinstance(body, list) else [body]

    def kept(self) -> bytes:
        """Everything that lies on the disk."""
        return b"".join(f.read_bytes() for f in self.folder.rglob("*") if f.is_file() and f.suffix != ".veil")

    def end(self) -> None:
        """Stop what `open` left running."""


def settled(stats: Stats) -> int:
    return stats.released + stats.silent + stats.repeated + stats.waiting + sum(stats.refused.values())


def readings_in(body: bytes) -> int:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(body)
        return len(found) if isinstance(found, list) else 1
    return 1


# --- transports --------------------------------------------------------------------------------------------


class Pipe(Place):
    @contextlib.contextmanager
    def serving(self, art, ceiling, options):
        with core_of(art, self.store, ceiling, **options) as core:
            self.stats = core.stats

            def say(stream: str, body: bytes) -> None:
                out = io.BytesIO()
                pipe.run(core, io.BytesIO(body + b"\n"), out, "jsonl")
                for line in out.getvalue().splitlines():
                    self.hear(json.loads(line))

            yield say


class Http(Place):
    @contextlib.contextmanager
    def serving(self, art, ceiling, options):
        with core_of(art, self.store, ceiling, **options) as core:
            self.stats, server = core.stats, HttpServer(core)

            def say(stream: str, body: bytes) -> None:
                _, answer, _ = server.ask("/v1/release", body)
                self.hear([a for a in (answer if isinstance(answer, list) else [answer]) if "released" in a])

            try:
                yield say
            finally:
                server.end()


class Mqtt(Place):
    needs: ClassVar[list] = [NEEDS_MOSQUITTO]
    names_streams = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "broker").mkdir()
        self.broker = Mosquitto(folder / "broker")
        self.client = Client(self.broker.port, "out/#")

    @contextlib.contextmanager
    def serving(self, art, ceiling, options):
        with core_of(art, self.store, ceiling, **options) as core, serving(core, self.broker.port, republish=0):
            self.stats = core.stats

            def say(stream: str, body: bytes) -> None:
                before, known = settled(core.stats), core.stats.released + core.stats.repeated
                at = len(self.client.heard)
                self.client.say(f"in/{stream}", body)
                wait_until(lambda: settled(core.stats) == before + readings_in(body))
                if core.stats.released + core.stats.repeated > known:
                    wait_until(lambda: len(self.client.heard) > at)
                for _, payload, _ in self.client.heard[at:]:
                    self.hear(json.loads(payload))

            yield say

    def end(self) -> None:
        self.client.end()
        self.broker.stop()

    def kept(self) -> bytes:
        """The broker's own files are not ours: it is trusted with readings."""
        return b"".join(f.read_bytes() for f in self.folder.glob("s.db*"))


class Nats(Place):
    needs: ClassVar[list] = [NEEDS_SERVER]
    rebinds = False  # all workers must agree: test_nats_settings.py
    names_streams = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cluster = NatsCluster(folder, 1)

    @contextlib.contextmanager
    def serving(self, art, ceiling, options):
        names, urls = Names("veil"), self.cluster.urls
        with Running(art, urls, "veil", serving=Serving(**options), ceiling=ceiling, partitions=1) as gateway:
            self.stats = gateway.stats

            async def give(stream: str, body: bytes) -> list[dict]:
                link = await connected(urls)
                await link.request((names.reading(DEFAULT_SPACE, stream), body, None))
                assert await until(link, names.readings, 0, PATIENCE_S) == 0
                out = await everything(link, names.releases)
                self.memory = await everything(link, names.memory)
                await link.close()
                return [json.loads(m["data"]) for m in out]

            def say(stream: str, body: bytes) -> None:
                self.heard = asyncio.run(give(stream, body))

            yield say

    def kept(self) -> bytes:
        """Readings are with the server until they are acknowledged; what stays is the memory."""
        return b"".join(m["data"] for m in self.memory)

    def end(self) -> None:
        self.cluster.stop()


# --- stores ------------------------------------------------------------------------------------------------


class File(Place):
    """The core over SQLite, without a transport."""

    @contextlib.contextmanager
    def serving(self, art, ceiling, options):
        with core_of(art, self.store, ceiling, **options) as core:
            self.stats = core.stats

            def say(stream: str, body: bytes) -> None:
                found = parse(body, core.spaces[""].grid)
                outcomes = core.process(found if isinstance(found, list) else [found]).outcomes
                self.hear([json.loads(o.message) for o in outcomes if o.message is not None])

            yield say


class Memory(File):
    lasting = rebinds = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = MEMORY


class Ledger(Place):
    """The ledger over a key-value store in memory, without a server."""

    names_streams = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = FakeJetStream()

    @contextlib.contextmanager
    def serving(self, art, ceiling, options):
        session = session_on(art, FaultyLink(self.server, random.Random(0), 0), ceiling=ceiling, keep=None, **options)
        session.stats.streams = len(self.server.history)
        self.stats = session.stats

        def say(stream: str, body: bytes) -> None:
            assert asyncio.run(session.handle([message(stream, body)]))
            self.heard = [json.loads(sent) for copies in self.server.published.values() for sent in copies]

        yield say

    def kept(self) -> bytes:
        return b"".join(value for versions in self.server.history.values() for _, value in versions)


TRANSPORTS = [Pipe, Http, Mqtt, Nats]
STORES = [File, Memory, Ledger]
PLACES = [pytest.param(place, id=place.__name__.lower(), marks=place.needs) for place in [*TRANSPORTS, *STORES]]
