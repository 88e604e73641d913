"""Messages that came and wait for their transaction: bounded, and fair between topics.

A broker holds back messages of QoS 1 that we have not acknowledged; of QoS 0 it sends as many as there are, and where
it cannot get rid of them it drops whatever is in the way, acknowledgements too. So all are read, and of QoS 0 those
that find no room are dropped here, and counted: a topic that has more than its share waiting loses its own.
"""

from collections import OrderedDict, deque
from typing import NamedTuple

ROOM = 4 << 20  # bytes of QoS 0; half as much again for topics below their share
OVERHEAD = 300  # bytes of a message beside its payload


class Heard(NamedTuple):
    """A message from the broker."""

    topic: str  # "" if it was no text: no stream has it
    payload: bytes
    mid: int  # 0: QoS 0
    retain: bool = False
    number: int = 0  # among those of QoS 1

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.payload)


class _Line(deque[Heard]):
    """Of one topic."""

    size = 0  # bytes


class Inbox:
    def __init__(self, room: int = ROOM) -> None:
        self.room, self.dropped = room, 0
        self.owed = 0  # messages of QoS 1 that wait
        self._lines: OrderedDict[str, _Line] = OrderedDict()  # whose turn it is next first
        self._n = self._size = 0

    def __len__(self) -> int:
        return self._n

    def put(self, m: Heard) -> None:
        line = self._lines.get(m.topic)
        if not m.mid and self._size >= self.room:
            share = self.room // (len(self._lines) + (line is None))
            if self._size >= 3 * self.room // 2 or (line is not None and line.size >= share):
                self.dropped += 1
                return
        if line is None:
            line = self._lines[m.topic] = _Line()
        line.append(m)
        line.size += m.size
        self._size += m.size
        self._n += 1
        self.owed += m.mid > 0

    def take(self, most: int) -> list[Heard]:
        """One of every topic in turn; those of one topic in the order in which they came."""
        out: list[Heard] = []
        while self._lines and len(out) < most:
            topic, line = self._lines.popitem(last=False)
            m = line.popleft()
            out.append(m)
            line.size -= m.size
            self._size -= m.size
            self.owed -= m.mid > 0
            if line:
                self._lines[topic] = line
        self._n -= len(out)
        return out
