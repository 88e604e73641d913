"""Topics on which the broker refuses releases: these wait in the outbox, and one of them is tried now and then.

When one goes through, the first release of every topic is tried at once, and then all that waits is sent. A broker may
hang up at a refusal (mosquitto 2.0.11 does), so there is one trial at a time as long as they fail.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

FIRST_S, LAST_S = 1.0, 20.0  # between trials
FROM_THE_BEGINNING = 0


class RefusedTopics:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.reason = ""  # the last one given
        self._first: OrderedDict[str, int] = (
            OrderedDict()
        )  # topic -> its first release that waits, whose turn is next first
        self._may: set[str] = set()  # topics of which one release may be tried
        self._tried: set[str] = set()  # and that wait for its answer
        self._worked = False
        self._now, self._delay, self._due = now, FIRST_S, 0.0

    def __len__(self) -> int:
        return len(self._first)

    def __contains__(self, topic: str) -> bool:
        return topic in self._first

    def add(self, topic: str, i: int, reason: str) -> None:
        """i: of the release, in the outbox."""
        self.reason = reason
        self._first[topic] = min(i, self._first.get(topic, i))
        if topic in self._tried:
            self._tried.discard(topic)
            self._first.move_to_end(topic)
            self._wait()
        elif len(self._first) == 1:
            self._delay, self._due = FIRST_S, self._now() + FIRST_S

    def _wait(self) -> None:
        self._due = self._now() + self._delay
        self._delay = min(2 * self._delay, LAST_S)

    def remove(self, topic: str) -> None:
        """A release of it arrived, or none waits."""
        if self._first.pop(topic, None) is not None:
            self._may.discard(topic)
            self._tried.discard(topic)
            self._worked, self._delay = True, FIRST_S

    def holds(self, topic: str) -> bool:
        """Whether a release must stay in the outbox; the first that need not is on its way with this."""
        if topic in self._may:
            self._may.discard(topic)
            self._tried.add(topic)
            return False
        return topic in self._first

    def due(self) -> tuple[int, str | None] | None:
        """What to try now: from which release in the outbox on, and of this topic only."""
        if self._may or self._tried:
            return None
        if self._worked:
            self._worked, self._may = False, set(self._first)
            return FROM_THE_BEGINNING, None
        if self._first and self._now() >= self._due:
            topic, i = next(iter(self._first.items()))
            self._may = {topic}
            return i, topic
        return None

    def looked(self) -> None:
        """The whole outbox was gone through: topics of which nothing was found have nothing that waits."""
        for topic in list(self._may):
            self.remove(topic)

    def lost(self) -> None:
        """The connection is: what was tried has no answer."""
        if self._tried:
            self._wait()
        for topic in self._tried:
            self._first.move_to_end(topic)
        self._may, self._tried = set(), set()
