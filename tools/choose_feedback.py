"""The constants of the rule in `control/feedback.py`, chosen on what no figure of the documentation is about.

    VEIL_DATA=data python tools/choose_feedback.py

Of every household only what is earlier than the half-year that the benchmark `feedback` reports. Fitted on the first
half or the first third of that, and run on the rest; and the same backwards in time, from spring to winter: four cases
each, but those in which no rung can keep nine tenths of the limit, where there is nothing to choose. A case is run
period by period: a rung is felt, and tells, what it would if the stream had always been on it. A setting costs

    mean over cases of bits / bits of one rung known in hindsight
    + 100 x mean over cases and boundaries of ( (excess - 1/2)+ / 26 )^2,      excess: in usual periods of the limit,
                                                                               what rung 0 exceeds it by apart

and of those within 0.005 of the least, which the cases cannot tell apart, the one is taken whose second term is least.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from benchmarks.feedback import SHARE, around
from benchmarks.records import everybody
from veilstream.control.feedback import MOVE_BITS, Feedback
from veilstream.control.replay import Replay
from veilstream.data.fitting import fit_model
from veilstream.data.readings import MICROSECONDS, Account, Readings
from veilstream.data.spec import FitSpec
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.information import Array
from veilstream.model.problem import Average
from veilstream.solvers import solve
from veilstream.solvers.adaptive import first_rung

EVERY, REPORTED, HELD = "week", 0.5, (1 / 2, 2 / 3)
ABLE = 0.9  # of the limit: what rung 0 must keep
DRAWS = 40_000
SLACK, HALF_YEAR, WEIGHT, ALIKE = 0.5, 26, 100.0, 0.005
PARTS, BACKS, DEBTS, SURES = (0.2, 0.3, 0.4, 0.5, 0.75, 1.0), (4, 6, 8, 12, 16, 24), (0.5, 1, 2, 4), (0, 0.5, 1)


Setting = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Case:
    """A ladder on what came after: sums of every period, rungs x periods."""

    rule: Feedback
    counted: Array  # felt distance, as the rule counts it
    felt: Array
    bits: Array
    readings: Array  # periods
    on_record: tuple[Array, Array]  # felt distance, rungs x periods, and readings, of what was fitted

    @property
    def means(self) -> Array:
        """Of every rung, over the limit."""
        return np.asarray(self.felt.sum(1) / self.readings.sum() / self.rule.limit)

    @property
    def able(self) -> bool:
        return bool(self.means[0] <= ABLE)

    def run(self, rule: Feedback, first: int) -> tuple[float, Array]:
        """Bits per step over those in hindsight, and the excess at every boundary, in usual periods of the limit."""
        rung, s, mark, met = np.array([first]), np.zeros(1), np.zeros(1), []
        for k, n in enumerate(self.readings):
            if k:
                rung = rule.moved(rung, rule.way(s, s - mark, rung))
                s = mark = np.maximum(s, rule.lowest)
            met.append(int(rung[0]))
            s = s + self.counted[rung, k] - n * rule.limit
        at = np.arange(len(met))
        over = np.cumsum(self.felt[met, at] - self.readings * rule.limit)
        over -= np.maximum(np.cumsum(self.felt[0] - self.readings * rule.limit), 0)
        bits = self.bits[met, at].sum() + MOVE_BITS * (len(met) - 1)
        best = np.interp(1.0, self.means[around(self.means)], self.bits.sum(1)[around(self.means)])
        return float(bits / best), over / rule.allowed


def case(readings: Readings, held: float) -> Case | None:
    """Fitted on the earlier part, run on the later one."""
    model = fit_model(readings, FitSpec(hold_out=held, cycle="none"))
    if model.later is None:
        return None
    utility = Utility.of(model.chain, model.states, model.record, held_out=model.later.record)
    replay, later, every = utility.replay, utility.held_out, model.recording.steps_in(EVERY, "`feedback`")
    if replay is None or later is None:
        return None
    limit = SHARE * utility.blind
    climbed = solve(utility.problem(Average(limit=limit)), replay=replay, feedback=every).ladder
    assert climbed is not None
    rule, rungs = climbed.ladder.feedback, [p.policy for p in climbed.points]
    clipped = replace(later, distances=np.minimum(later.table, rule.most))

    def sums(on: Replay, values: Any) -> Array:
        return np.array([on.sums_in(every, values(p)) for p in rungs])

    def bits(p: Any) -> Array:
        each = later.leakage(p, model.chain, DRAWS).each
        assert each is not None
        return np.asarray(each[1])

    felt, on_record = sums(later, later.errors), (sums(replay, replay.errors), replay.sums_in(every))
    return Case(rule, sums(clipped, clipped.errors), felt, sums(later, bits), later.sums_in(every), on_record)


def earlier(readings: Readings) -> Readings:
    """What comes before the part that is reported."""
    model = fit_model(readings, FitSpec(hold_out=REPORTED, cycle="none"))
    assert model.later is not None and model.recording.period_s is not None
    until = int(model.later.record.step.min() * model.recording.period_s * MICROSECONDS)
    return replace(readings, frame=readings.frame.filter(pl.col("t") < until), account=Account())


def backwards(readings: Readings) -> Readings:
    t = readings.frame["t"]
    turned = readings.frame.with_columns((t.min() + t.max() - pl.col("t")).alias("t")).sort("stream", "t")
    return replace(readings, frame=turned, account=Account())


def cases() -> Iterator[tuple[str, Case]]:
    for name, readings in everybody():
        if readings.kind != "value":
            continue
        try:
            own = earlier(readings)
            for held, part in product(HELD, (own, backwards(own))):
                if (found := case(part, held)) is not None and found.able:
                    yield name, found
        except InputError as fault:
            print(f"{name}: {fault}", file=sys.stderr)


def score(some: list[Case], part: float, back: float, debt: float, sure: float) -> tuple[float, float]:
    """The two terms."""
    bits, late = [], []
    for c in some:
        rule = replace(c.rule, part=part, back=back, debt=debt)
        ratio, over = c.run(rule, first_rung(*c.on_record, rule.limit, sure))
        bits.append(ratio)
        late.append(np.mean((np.maximum(over - SLACK, 0) / HALF_YEAR) ** 2))
    return float(np.mean(bits)), float(WEIGHT * np.mean(late))


def main() -> None:
    some = []
    for name, found in cases():
        some.append(found)
        print(f"{name}: {len(found.readings)} periods, {len(found.means)} rungs, rung 0 at {found.means[0]:.2f}")
    print(f"\n{len(some)} cases\nbits    excess  part  back  debt  standard errors")
    for setting, terms in chosen({s: score(some, *s) for s in product(PARTS, BACKS, DEBTS, SURES)})[:10]:
        print("  ".join([*(f"{v:.4f}" for v in terms), *(f"{v:<4g}" for v in setting)]))


def chosen(scores: dict[Setting, tuple[float, float]]) -> list[tuple[Setting, tuple[float, float]]]:
    """Those that cannot be told from the best, the one to take first."""
    least = min(sum(terms) for terms in scores.values())
    return sorted(((s, t) for s, t in scores.items() if sum(t) <= least + ALIKE), key=lambda pair: pair[1][1])


if __name__ == "__main__":
    main()
