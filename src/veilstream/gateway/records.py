"""What is kept of a stream, whatever keeps it, and what one commit changes."""

from dataclasses import dataclass, field
from operator import attrgetter

from veilstream.errors import InputError

Key = tuple[str, str]  # space, stream
FORWARD = "#"  # begins the topic of what is not for a broker: no topic that one can publish to has it


class StoreError(InputError):
    """The store cannot be read or written; nothing was released."""


@dataclass(slots=True)
class Stream:
    """One stream as the store keeps it. `memory` and `belief` are array bytes; None: as at the start."""

    space: str
    name: str
    id: int | None = None
    last_step: int | None = None
    total: float = 0.0
    memory: bytes | None = None
    belief: bytes | None = None
    state: int = -1  # private: the last true state, -1 for none
    pending_step: int | None = None  # private: a reading that waits for its tick
    pending_symbol: int = -1
    faults: int = 0  # private: readings that were no numbers
    excess: float = 0.0  # private: felt distance over the limit so far, where feedback keeps it
    mark: float = 0.0  # private: the same at the last boundary
    pending_point: bytes | None = None  # private: the waiting reading itself, where feedback needs it
    drift: bytes | None = None  # private: how its readings go with the model, as `drift.Watched` packs it

    @property
    def key(self) -> Key:
        return self.space, self.name

    def rebind(self, old: "Binding", new: "Binding") -> None:
        """Go on under another policy: steps and meter stay, memory starts afresh, beliefs too if the chain changed."""
        if old.policy != new.policy:
            self.memory, self.excess, self.mark, self.drift = None, 0.0, 0.0, None
        if old.chain != new.chain:
            self.belief, self.state, self.pending_step, self.pending_symbol = None, -1, None, -1


_KEPT = "last_step total memory belief state pending_step pending_symbol faults excess mark pending_point drift"
state_of = attrgetter(*_KEPT.split())


@dataclass
class Batch:
    """What one transaction writes."""

    streams: list[Stream] = field(default_factory=list)
    releases: list[tuple[Stream, int, float, bytes | None]] = field(default_factory=list)  # step, total, message
    outbox: list[tuple[str, bytes]] = field(default_factory=list)  # topic, payload
    counts: dict[str, int] = field(default_factory=dict)  # private: what became of readings, by reason


@dataclass(frozen=True)
class Binding:
    """The policy a space runs, and the chain its beliefs are about, by their hashes."""

    policy: str
    chain: str
