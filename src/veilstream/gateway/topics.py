"""MQTT topics: from an input filter with wildcards to stream names, and from those to output topics."""

import re
from dataclasses import dataclass
from functools import cached_property

from veilstream.errors import InputError
from veilstream.gateway.outcome import OutFormat


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


def check(routes: list[Route], *more_outputs: str) -> None:
    """No output may come back as input, and no topic may have two policies."""
    outputs = [r.target for r in routes] + list(more_outputs)
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
