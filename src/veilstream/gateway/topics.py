"""MQTT topics: from an input filter with wildcards to stream names, and from those to output topics and messages.

Releases on topics on which the broker refuses them wait in the outbox, and one of them is tried now and then. When one
goes through, the first release of every topic is tried at once, and then all that waits is sent. A broker may hang up
at a refusal (mosquitto 2.0.11 does), so there is one trial at a time as long as they fail.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import msgspec

from veilstream.errors import InputError
from veilstream.gateway.records import OutFormat

FIRST_S, LAST_S = 1.0, 20.0  # between trials of a topic that is refused
MOST_TRIED = 1000  # at once
_bodies = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True)
class Route:
    """Readings on `source` (a filter, e.g. in/+) are released by the policy of `space` to `target` (e.g. out/+)."""

    source: str
    target: str
    space: str = ""
    form: OutFormat = "auto"

    def __post_init__(self) -> None:
        for topic in (self.source, self.target):
            levels = topic.split("/")
            mixed = any(v not in ("+", "#") and ("+" in v or "#" in v) for v in levels)
            if not topic or mixed or "#" in levels[:-1]:
                raise InputError(f"{topic!r} is no MQTT topic filter: + stands for a whole level, # for the last ones")
        wild_in, wild_out = _wild(self.source), _wild(self.target)
        if not wild_in or wild_in != wild_out:
            raise InputError(
                f"{self.source!r} and {self.target!r} must have the same wildcards in the same order, at least one: "
                "they carry the stream's name"
            )

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(re.escape(self.source).replace(r"\+", "([^/]*)").replace(r"\#", "(.*)"), re.DOTALL)

    def stream(self, topic: str) -> str | None:
        """The stream a topic names: what the wildcards stand for; None if the topic is not of this route."""
        found = self._pattern.fullmatch(topic)
        return None if found is None else "/".join(found.groups())

    def carries(self, stream: str) -> bool:
        """Whether a topic can name this stream, and no other one: names may come by other ways than by topic."""
        parts, wild = stream.split("/"), _wild(self.target)
        fits = len(parts) >= len(wild) if wild[-1] == "#" else len(parts) == len(wild)
        return fits and not ("+" in stream or "#" in stream) and not self.output(stream).startswith("$")

    def output(self, stream: str) -> str:
        """Where the stream's releases go."""
        wild = _wild(self.target)
        parts = iter(stream.split("/", len(wild) - 1 if wild[-1] == "#" else -1))
        return re.sub("[+#]", lambda _: next(parts), self.target)


def check(routes: list[Route], *more_outputs: str, audiences: Sequence[Route] = ()) -> None:
    """No output may come back as input, no topic may have two policies, and no audience may get another's releases."""
    for i, route in enumerate(audiences):
        for other in (*routes, *audiences[:i]):
            if overlap(route.target, other.target):
                raise InputError(f"{route.target!r} of the audience {route.space!r} overlaps with {other.target!r}")
    outputs = [r.target for r in (*routes, *audiences)] + list(more_outputs)
    for route in routes:
        for target in outputs:
            if overlap(route.source, target):
                raise InputError(f"releases on {target!r} would come back as readings on {route.source!r}")
        for other in routes:
            if other is not route and overlap(route.source, other.source):
                raise InputError(f"{route.source!r} and {other.source!r} overlap: one topic, one policy")


def renames(old: str, new: str) -> bool:
    """Whether some topic matches both filters and names one stream by the one and another by the other."""
    x, y = old.split("/"), new.split("/")
    longest = min((len(f) for f in (x, y) if f[-1] != "#"), default=max(len(x), len(y)))
    wild = [[f[min(i, len(f) - 1)] in ("+", "#") for i in range(longest)] for f in (x, y)]
    return overlap(old, new) and wild[0] != wild[1]


def overlap(a: str, b: str) -> bool:
    """Whether some topic matches both filters."""
    x, y = a.split("/"), b.split("/")
    for i in range(max(len(x), len(y))):
        if (i < len(x) and x[i] == "#") or (i < len(y) and y[i] == "#"):
            return True
        if i >= len(x) or i >= len(y):
            return False
        if x[i] != y[i] and "+" not in (x[i], y[i]):
            return False
    return True


def _wild(topic: str) -> list[str]:
    return [level for level in topic.split("/") if level in ("+", "#")]


# --- messages ----------------------------------------------------------------------------------------------


def joined(bodies: Sequence[bytes], limit: int) -> Iterator[bytes]:
    """Releases as messages of at most `limit` bytes: alone, or as arrays."""
    if len(bodies) < 2:
        yield from bodies
        return
    part: list[bytes] = []
    size = 2
    for body in bodies:
        if part and size + len(body) > limit:
            yield _payload(part)
            part, size = [], 2
        part.append(body)
        size += len(body) + 1
    if part:
        yield _payload(part)


def _payload(bodies: Sequence[bytes]) -> bytes:
    return bodies[0] if len(bodies) == 1 else b"[" + b",".join(bodies) + b"]"


def parted(payload: bytes, limit: int) -> list[bytes]:
    """A message as several of at most `limit` bytes, where it is one of several releases."""
    if len(payload) <= limit or not payload.startswith(b"["):
        return [payload]
    return list(joined([bytes(body) for body in _bodies.decode(payload)], limit))


# --- refused -----------------------------------------------------------------------------------------------


class RefusedTopics:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.reason = ""  # the last one given
        self._first = OrderedDict[str, int]()  # topic -> its first release that waits; whose turn is next first
        self._tried: set[str] = set()  # that wait for the answer to a trial
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
            self._tried.discard(topic)
            self._worked, self._delay = True, FIRST_S

    def due(self) -> tuple[list[tuple[str, int]], bool]:
        """Topics to be tried now, each with its first release; whether what waited of others may go on."""
        if self._tried:
            return [], False
        worked, self._worked = self._worked, False
        trials = list(islice(self._first.items(), MOST_TRIED if worked else int(self._now() >= self._due)))
        self._tried = {topic for topic, _ in trials}
        return trials, worked

    def lost(self) -> None:
        """The connection is: what was tried has no answer."""
        if self._tried:
            self._wait()
        for topic in self._tried:
            self._first.move_to_end(topic)
        self._tried = set()
