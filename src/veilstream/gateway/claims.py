"""What a gateway has promised of the streams of a space, so that its owner can compare: kept in the store."""

import msgspec

from veilstream.control.drift import claimed_felt
from veilstream.gateway.space import Space
from veilstream.gateway.wire import Grid
from veilstream.model.data_card import DataCard
from veilstream.model.interval import Interval
from veilstream.model.problem import Average

CLAIMS = "about"  # begins its key in the store, before the name of the space


class Claims(msgspec.Struct, frozen=True):
    """Of a space; None: the policy's file does not say."""

    grid: Grid
    unit: str  # of distances; "" where they have none
    drift_unit: str  # what intervals are over: weeks, or runs of steps
    ceiling: float | None = None  # bits
    limit: float | None = None  # on the mean distance
    rungs: int | None = None  # of a ladder
    felt_claimed: float | None = None
    loss_fitted: Interval | None = None
    farthest: float | None = None  # that a release can be off where every reading lies at a state

    @classmethod
    def of(cls, space: Space) -> "Claims":
        rule, average, card = space.rule, space.problem.average, DataCard.of(space.provenance)
        limit = rule.limit if rule is not None else average.limit if isinstance(average, Average) else None
        return cls(
            grid=space.grid,
            unit=space.unit,
            drift_unit=space.watch.unit,
            ceiling=space.ceiling,
            limit=limit,
            rungs=None if rule is None else rule.rungs,
            felt_claimed=claimed_felt(space.provenance),
            loss_fitted=None if card is None else card.loss,
            farthest=space.farthest,
        )

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str) -> "Claims | None":
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError:
            return None
