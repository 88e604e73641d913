"""Forgetting a person: what a store keeps of a stream goes, and its steps stay closed.

Of the stream a row stays, under a hash of its name: the number of its last step and its bits. Without these a step
that was released would be drawn a second time, and the meter would start from nothing: both tell more, not less. A
reading of a later step, should one come, goes on from there, with a fresh memory.

Deleted rows are overwritten (secure_delete), the file is written anew (VACUUM) and its log emptied, so that no byte of
what was there is left in the files. What the disk beneath still holds is the disk's.
"""

from dataclasses import dataclass
from typing import Any

from veilstream.gateway.records import Stream, tomb
from veilstream.gateway.store import Store

REMAINS = (
    "what was released before is with whoever received it: nobody can take it back",
    "a hash of the name, its last step and its bits stay in the store, so that no step is drawn a second time and the "
    "meter is not reset; whoever has the store can try whether a name was in it",
    "a reading for a later step would go on from there: stop the device, or its stream begins again",
    "copies and backups of the store, what a broker retains, and files made of her readings (models, policies, "
    "reports) are not touched: delete them",
)


@dataclass(frozen=True)
class Forgotten:
    """What was there of one stream; counts alone."""

    space: str
    last_step: int | None
    leaked_bits: float
    releases: int  # in the log
    unsent: int  # in the outbox
    private: bool  # whether a true state or reading was kept
    before: bool  # it had been forgotten already

    @classmethod
    def of(cls, s: Stream, releases: int, unsent: int, before: bool) -> "Forgotten":
        mine = s.private
        private = mine.state != -1 or mine.pending_step is not None or mine.pending_point is not None or mine.faults > 0
        return cls(s.space, s.last_step, s.total, releases, unsent, private, before)

    def to_json(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in self.__dataclass_fields__}


def forget(store: Store, name: str) -> list[Forgotten]:
    """The stream of this name is forgotten in every space of the store, which must be open for nobody else."""
    found = [gone for space in store.spaces() if (gone := _forget(store, space, name)) is not None]
    if found and store.durable:
        store.file.rewrite()
    return found


def _forget(store: Store, space: str, name: str) -> Forgotten | None:
    s = store.named(space, name)
    if s is None:
        old = store.named(space, tomb(store.id, space, name))
        return None if old is None else Forgotten.of(old, 0, 0, True)
    return Forgotten.of(s, *store.bury(s), False)
