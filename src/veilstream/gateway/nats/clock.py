"""Under a clock: at the end of every step one release of every stream, by whoever owns its partition.

The release is committed to the stream's key before it is published, as for readings. A worker that takes a partition
over does the ticks of the last seconds for it again: streams that have one get the same release published once more
under the same message id, the others get it now. Steps that pass while no worker runs are skipped for all alike.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Sequence

from veilstream.gateway.nats.client import Link, Rejected, Unavailable
from veilstream.gateway.nats.layout import DUPLICATES_S
from veilstream.gateway.nats.membership import GONE_S
from veilstream.gateway.nats.names import Names, partition_of, text
from veilstream.gateway.nats.session import Mail, Session
from veilstream.gateway.records import Key, Outcome, Status
from veilstream.gateway.wire import decode

log = logging.getLogger("veilstream.nats")
AT_ONCE = 512
TAKE_OVER_S = GONE_S + 2
TRY_S, AGAIN_S = 15.0, 0.1  # at least: an election must not cost a step; before the next try
LOOK_S = 0.5  # between looks at which partitions are ours
LIST_S = 10.0  # for a page of a bucket's keys


class Clock:
    def __init__(self, session: Session, space: str) -> None:
        self._session, self._space = session, space
        self._grid = session.scheduler.spaces[space].grid
        assert self._grid.period_s is not None
        self._back = math.ceil(TAKE_OVER_S / self._grid.period_s)  # steps that may pass until a death is noticed

    async def run(self) -> None:
        scheduler = self._session.scheduler
        step, served = scheduler.current_step(self._space), frozenset[int]()
        while True:
            mine = self._session.members.mine
            for missed in range(step - self._back, step) if mine - served else ():
                await self.tick(missed, mine - served)
            served = mine
            wait = self._ends(step) - scheduler.now()
            if wait > 0:
                await asyncio.sleep(min(wait, LOOK_S))
                continue
            await self.tick(step, mine)
            step = max(step + 1, scheduler.current_step(self._space) - self._back)

    def _ends(self, step: int) -> float:
        return float(self._grid.time(step + 1))

    async def tick(self, step: int, partitions: Collection[int]) -> None:
        """The release of `step` for every stream of these partitions.

        Tried until the next one is due; but what is committed is published, however long that takes.
        """
        now = self._session.scheduler.now
        if now() - self._ends(step) > DUPLICATES_S / 2:
            return  # long ago: nobody could tell a repeat any more
        until = max(self._ends(step + 1), now() + TRY_S)
        undone: list[Key] | None = None
        unsent: list[Key] = []
        while undone is None or undone or unsent:
            try:
                undone = await self._keys(partitions) if undone is None else undone
                keys = [*undone, *unsent]
                parts = [keys[i : i + AT_ONCE] for i in range(0, len(keys), AT_ONCE)]
                done = [await self._tick(step, part) for part in parts]
                undone, unsent = [k for d in done for k in d[0]], [k for d in done for k in d[1]]
            except (Unavailable, Rejected) as error:
                log.warning("tick_delayed", extra={"step": step, "reason": str(error)})
            if now() > until and (undone is None or undone):
                log.error("tick_failed", extra={"step": step, "streams": None if undone is None else len(undone)})
                undone = []
            if undone is None or undone or unsent:
                await asyncio.sleep(AGAIN_S)

    async def _keys(self, partitions: Collection[int]) -> list[Key]:
        layout = self._session.layout
        keys = await keys_of(self._session.link, layout.names, self._space)
        return [key for key in keys if partition_of(*key, layout.partitions) in partitions]

    async def _tick(self, step: int, keys: Sequence[Key]) -> tuple[list[Key], list[Key]]:
        """The streams that could not be committed, and those that were and may not be published."""
        session = self._session
        loan = await session.ledger.lend(keys)
        streams = [loan.stream(key) for key in loan.records]
        due = [s for s in streams if (s.last_step is None or s.last_step < step) and not loan.forgotten(s)]
        outcomes, batch = session.scheduler.tick(self._space, step, due)
        failed = await session.ledger.commit(loan, batch)
        done = {s.key: o for s, o in zip(due, outcomes, strict=True) if s.key not in failed}
        session.stats.count(list(done.values()))
        for s in streams:
            if s.key not in done and s.key not in failed:  # ticked by another, who may not have published it
                (message,) = loan.find(s, step) or (None,)
                if message is not None:
                    done[s.key] = Outcome(Status.repeated, decode(message), message)
        unsent = await session.send({key: Mail(key, step, o) for key, o in done.items()})
        unread = [k for k in keys if k not in loan.records and k not in loan.refused]
        return [*unread, *failed], list(unsent)


async def keys_of(link: Link, names: Names, space: str) -> list[Key]:
    """Every stream of the space that the bucket has."""
    keys, call, subjects = list[Key](), f"STREAM.INFO.{names.memory}", names.key(space, "") + "*"
    while True:
        info = await link.api(call, LIST_S, subjects_filter=subjects, offset=len(keys))
        found = [text(s.rpartition(".")[2]) for s in info["state"].get("subjects") or {}]
        keys += [(space, name) for name in found if name is not None]
        if not found or len(keys) >= info.get("total", 0):
            return keys
