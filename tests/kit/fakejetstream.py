"""JetStream's key-value store and its de-duplication, in memory, with everything that can go wrong on the way."""

import asyncio
import json
from base64 import b64encode
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

pytest.importorskip("nats", reason="needs nats-py: pip install 'veilstream[nats]'")

from veilstream.gateway.nats.client import read

EXPECTED = "Nats-Expected-Last-Subject-Sequence"


@dataclass
class Server:
    history: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)  # key -> (revision, value), oldest first
    headers: dict[int, dict] = field(default_factory=dict)  # revision -> what the write came with
    published: dict[str, list[bytes]] = field(default_factory=dict)  # message id -> every payload ever sent with it
    last: int = 0
    compare: bool = True  # False: a store without compare-and-set, to show that the tests notice

    def answer(self, subject: str, payload: bytes, headers: dict | None, stale: bool = False) -> bytes:
        if subject.startswith("$JS.API.STREAM.MSG.GET."):
            versions = self.history.get(json.loads(payload)["last_by_subj"], [])
            if stale:
                versions = versions[:-1]
            if not versions:
                return b'{"error": {"code": 404, "err_code": 10037, "description": "no message found"}}'
            return json.dumps({"message": self.stored(*versions[-1])}).encode()
        if subject.startswith("$KV."):
            versions = self.history.setdefault(subject, [])
            if self.compare and int(headers[EXPECTED]) != (versions[-1][0] if versions else 0):
                return b'{"error": {"code": 400, "err_code": 10071, "description": "wrong last sequence"}}'
            self.last += 1
            versions.append((self.last, payload))
            self.headers[self.last] = headers
            return b'{"seq": %d}' % self.last
        seen = self.published.setdefault((headers or {}).get("Nats-Msg-Id", subject), [])
        seen.append(payload)
        return b'{"seq": 1, "duplicate": %s}' % (b"true" if len(seen) > 1 else b"false")

    def stored(self, revision: int, value: bytes) -> dict:
        """A record as JetStream gives it."""
        lines = [f"{name}: {said}\r\n" for name, said in self.headers.get(revision, {}).items()]
        hdrs = {"hdrs": b64encode("".join(["NATS/1.0\r\n", *lines, "\r\n"]).encode()).decode()} if lines else {}
        return {"seq": revision, "data": b64encode(value).decode(), **hdrs}


class FaultyLink:
    """Answers that are lost before or after the deed, deeds that happen later, stale reads, others in between."""

    def __init__(self, server: Server, rng, faults: float) -> None:
        self.server, self._rng, self._faults = server, rng, faults
        self._late: list[tuple] = []

    async def ask(self, requests, timeout_s: float = 0):
        out = []
        for request in requests:
            if self._rng.random() < 0.3:
                await asyncio.sleep(0)
            while self._late and self._rng.random() < 0.5:  # a write that was given up arrives after all
                self.server.answer(*self._late.pop(0))
            out.append(read(self._one(request)))
        return out

    def _one(self, request):
        if self._rng.random() >= self._faults:
            data = self.server.answer(*request, stale=self._rng.random() < self._faults)
            return SimpleNamespace(data=data, headers=None)
        what = self._rng.choice(["before", "after", "later"])
        if what == "after":
            self.server.answer(*request)
        elif what == "later":
            self._late.append(request)
        return None
