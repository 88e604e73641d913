"""Messages that came and wait for their transaction: bounded, and fair between topics.

A broker holds back messages of QoS 1 that we have not acknowledged; of QoS 0 it sends as many as there are, and where
it cannot get rid of them it drops whatever is in the way, acknowledgements too. So all are read, and of QoS 0 those
that find no room are dropped here, and counted: a topic of which more wait than of others loses its own.
"""

from collections import OrderedDict, deque
from typing import NamedTuple

ROOM = 4 << 20  # bytes; for QoS 0, and half as much again for topics of which fewer wait than of others
OVERHEAD = 300  # bytes of a message beside its payload


class Heard(NamedTuple):
    """A message from the broker."""

    topic: str  # "" if it was no text: no stream has it
    payload: bytes
    mid: int  # 0: QoS 0
    retain: bool = False
    number: int = 0  # among those of QoS 1


class Inbox:
    def __init__(self, room: int = ROOM) -> None:
        self.room, self.dropped = room, 0
        self.owed = 0  # messages of QoS 1 that wait
        self.unowed = 0  # of QoS 0 that came, ever
        self._lines: OrderedDict[str, deque[Heard]] = OrderedDict()  # whose turn it is next first
        self._n = self._size = 0

    def __len__(self) -> int:
        return self._n

    def put(self, m: Heard) -> None:
        topic, payload, mid, _, _ = m
        line = self._lines.get(topic)
        self.unowed += not mid
        if not mid and self._size >= self.room:
            fewer = line is None or len(line) * len(self._lines) < self._n
            if not fewer or self._size >= 3 * self.room // 2:
                self.dropped += 1
                return
        if line is None:
            self._lines[topic] = deque((m,))
        else:
            line.append(m)
        self._size += OVERHEAD + len(payload)
        self._n += 1
        if mid:
            self.owed += 1

    def take(self, most: int) -> list[Heard]:
        """One of every topic in turn; those of one topic in the order in which they came."""
        out: list[Heard] = []
        while self._lines and len(out) < most:
            topic, line = self._lines.popitem(last=False)
            out.append(line.popleft())
            if line:
                self._lines[topic] = line
        self._n -= len(out)
        self._size -= sum(OVERHEAD + len(m.payload) for m in out)
        self.owed -= sum(m.mid > 0 for m in out)
        return out
