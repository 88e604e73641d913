"""Recorded streams as a policy would meet them, and what its releases cost on them: starts and gaps included.

For a policy whose memories are numbers the mean is exact, without a draw. With p_t(s) the law of the memory before
step t and z_t the true state then,

    cost_t      = sum_s p_t(s) sum_y a_s(y|z_t) distance_t(y)
    p_{t+1}(s') = sum over (s, y) leading to s' of p_t(s) a_s(y|z_t)

For others it is the mean over draws with the same random numbers every time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.control.accountant import Accountant, BeliefFilter, Channels
from veilstream.control.controller import Controller, controller_of
from veilstream.control.feedback import Excess
from veilstream.control.mechanism import Mechanism
from veilstream.control.policy import Policy
from veilstream.control.universal_bound import density, density_at
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index
from veilstream.model.interval import number_in

MOST_MOVES = 20_000_000  # entries in the moves of the memory, one matrix a state
DRAWS = 200_000  # of releases, over all copies
LEAST_COPIES, MOST_COPIES = 8, 200


@dataclass(frozen=True, eq=False)
class OnCourse:
    """Means over the steps of a course, with standard errors over copies."""

    felt: float  # reading to release
    felt_se: float
    bits: float  # per step: log2 a(y|z)/q(y), q the output law of the chain's filter; and the bits of public moves
    bits_se: float
    copies: int
    each: Array | None = field(default=None, repr=False)  # 2 x steps: felt and bits at each, over copies
    charged: float | None = None  # of a ladder, per step: what its meter says
    rungs: tuple[float, ...] = ()  # of a ladder: the share of steps on each rung
    moves: float = 0.0  # public moves that changed the rung, over all streams
    truth: float | None = None  # bits per step that the true states would reveal on the same steps

    @property
    def kept_back(self) -> float | None:
        """Share of what the truth would reveal on the same steps that is not revealed."""
        return None if not self.truth else float(np.clip(1 - self.bits / self.truth, 0.0, 1.0))

    def to_json(self) -> dict[str, Any]:
        bits = {"leakage": self.bits, "leakage_se": self.bits_se}
        felt = {"raw_distortion": self.felt, "raw_distortion_se": self.felt_se}
        ladder = {"charged": self.charged, "rungs": list(self.rungs), "moves": self.moves} if self.rungs else {}
        more = {"copies": self.copies, "truth": self.truth}
        return {"raw_distortion": self.felt, "record": {**bits, **felt, **more, **ladder}}

    @classmethod
    def of(cls, said: Any) -> "OnCourse | None":
        """What `to_json` wrote, from a file, which may say anything."""
        told = said.get("record") if isinstance(said, Mapping) else None
        if not isinstance(told, Mapping):
            return None
        names = ("raw_distortion", "raw_distortion_se", "leakage", "leakage_se", "copies")
        numbers = [v for k in names if (v := number_in(told.get(k))) is not None]
        if len(numbers) < len(names):
            return None
        felt, felt_se, bits, bits_se, copies = numbers
        rungs = told.get("rungs")
        shares = tuple(number_in(v) or 0.0 for v in rungs) if isinstance(rungs, list) else ()
        charged, moves, truth = (number_in(told.get(k)) for k in ("charged", "moves", "truth"))
        return cls(felt, felt_se, bits, bits_se, int(copies), None, charged, shares, moves or 0.0, truth)


@dataclass(frozen=True, eq=False)
class Course:
    """One stream each: true states z of the policy's chain, steps missed before each, distances to every release."""

    states: Sequence[Index]
    gaps: Sequence[Index]
    distances: Sequence[Array]  # steps x |Y|
    first: Sequence[int] = ()  # the public number of each stream's first step; 0 unless told
    units: Sequence[Index] | None = None  # the trace or week of each step, numbered in order of time
    unit: str = "traces"

    def __post_init__(self) -> None:
        if not len(self.first):
            object.__setattr__(self, "first", [0] * len(self.states))

    @cached_property
    def steps(self) -> int:
        return sum(map(len, self.states))

    def least(self, allowed: NDArray[np.bool_]) -> float:
        """The least mean distance of any policy: for every state the release that is best for its readings."""
        z, d = np.concatenate(self.states), np.concatenate(self.distances)
        cost = np.zeros(allowed.shape)
        np.add.at(cost, z, d)
        return float(np.where(allowed, cost, np.inf).min(1)[np.unique(z)].sum() / self.steps)

    def blind(self, chain: MarkovChain | None = None) -> float:
        """The mean distance of always releasing the one thing that is best for all; with a chain, for its phase."""
        if chain is None:
            return float(np.concatenate(self.distances).sum(0).min() / self.steps)
        cost = np.zeros((chain.phases, self.distances[0].shape[1]))
        for gaps, distance, first in zip(self.gaps, self.distances, self.first, strict=True):
            np.add.at(cost, chain.phase(first + np.arange(len(gaps)) + np.cumsum(gaps)), distance)
        return float(cost.min(1).sum() / self.steps)

    def halves(self, least: int = 0) -> "tuple[Course, Course]":
        """The earlier half of its traces or weeks, and the later one: to choose on the one and to tell of the other.

        The later has that many at least, where the earlier then still has half of that.
        """
        assert self.units is not None
        numbers = np.unique(np.concatenate(self.units))
        n = len(numbers)
        later = least if n - n // 2 < least <= n - least // 2 else n - n // 2
        middle = numbers[n - later]
        return self._where([u < middle for u in self.units]), self._where([u >= middle for u in self.units])

    def _where(self, kept: Sequence[NDArray[np.bool_]]) -> "Course":
        """These steps alone; what was left out before one is a gap, a stream starts at its first."""
        assert self.units is not None
        parts = []
        streams = zip(kept, self.states, self.gaps, self.distances, self.first, self.units, strict=True)
        for keep, z, gaps, distance, first, unit in streams:
            if keep.any():
                at = np.cumsum(gaps + 1)[keep]
                new = np.concatenate([[0], np.diff(at) - 1])
                parts.append((z[keep], new, distance[keep], first + int(at[0]) - 1, unit[keep]))
        z_, gaps_, distances, first_, units = (list(p) for p in zip(*parts, strict=True))
        return Course(z_, gaps_, distances, first_, units, self.unit)

    def felt(self, policy: Policy) -> float:
        """Mean distance from reading to release."""
        return float(np.concatenate(self.costs(policy)).mean())

    def under(self, distortion: Array) -> "Course":
        """The same streams with distances that depend on the state alone, |Z| x |Y|."""
        return replace(self, distances=[distortion[z] for z in self.states])

    def beyond(self, limit: Array) -> "Course":
        """The same streams, a release costing 1 where it is farther off than the limit of the true state, |Z|."""
        far = zip(self.distances, self.states, strict=True)
        return replace(self, distances=[(d > limit[z][:, None] * (1 + 1e-9)).astype(float) for d, z in far])

    def costs(self, policy: Policy) -> list[Array]:
        """Mean distance at every step, stream by stream."""
        found = None if policy.moves_by is not None else controller_of(policy)
        if found is None:
            drawn = self.run(policy, Accountant()).each
            assert drawn is not None
            return np.split(drawn[0], np.cumsum([len(z) for z in self.states])[:-1])
        parts, memory = [found.at_phase(f) for f in range(found.phases)], found.automaton
        n, Y = len(memory), found.n_outputs
        every, to = np.arange(n), memory.table.ravel()
        plain = np.array_equal(memory.table, np.tile(np.arange(Y), (n, 1)))  # the memory is the last release

        @lru_cache(max(1, MOST_MOVES // (n * Y)))
        def rows(f: int, x: int) -> Array:
            """a_s(.|x) of every memory, S x |Y|, at phase f."""
            return parts[f].rows(every, np.full(n, x))

        def moved(p: Array, f: int, x: int) -> Array:
            a = rows(f, x)
            return p @ a if plain else np.bincount(to, (p[:, None] * a).ravel(), n).astype(float)

        costs = []
        for z, gaps, distance, first in zip(self.states, self.gaps, self.distances, self.first, strict=True):
            which = found.phase_at(first + np.arange(len(z)) + np.cumsum(gaps))
            laws, p = np.empty((len(z), n)), np.eye(n)[found.first]
            for t, (f, x) in enumerate(zip(which.tolist(), z.tolist(), strict=True)):
                laws[t] = p
                p = moved(p, f, x)
            cost = np.empty(len(z))
            for f, x in np.unique(np.stack([which, z], 1), axis=0).tolist():
                here = (which == f) & (z == x)
                cost[here] = ((laws[here] @ rows(f, x)) * distance[here]).sum(1)
            costs.append(cost)
        return costs

    def sums_in(self, every: int, values: Sequence[Array] | None = None) -> Array:
        """Sums over each period of so many steps that has any, stream by stream; of 1 unless told: how many it has."""
        sums = []
        for i, (gaps, first) in enumerate(zip(self.gaps, self.first, strict=True)):
            period = np.unique((first + np.arange(len(gaps)) + np.cumsum(gaps)) // every, return_inverse=True)[1]
            sums.append(np.bincount(period, None if values is None else values[i]).astype(float))
        return np.concatenate(sums)

    @property
    def n_units(self) -> int:
        """Traces or weeks."""
        return 0 if self.units is None else len(np.unique(np.concatenate(self.units)))

    def leakage(
        self,
        policy: Policy,
        chain: MarkovChain,
        draws: int = DRAWS,
        beside: Array | None = None,
        least: int = LEAST_COPIES,
    ) -> OnCourse:
        """Bits per step for these very streams, whatever their law: the adversary's model is the chain.

        beside: |Z| x |Y| distances to be told too, in a third row of `each`; moves follow what is felt.
        Of a ladder each move costs what it can tell; what its meter charges, which believes the chain, is beside it.
        """
        policy = policy.made_for(chain)
        table, parts = policy.table(), policy if isinstance(policy, Controller) else None
        meter = BeliefFilter.of(chain, parts if table is None else Channels(table), charges=False)
        found = self.run(policy, meter, draws=draws, beside=beside, least=least)
        if policy.moves_by is None:
            return found
        return replace(found, charged=self.run(policy, Mechanism(policy).meter, draws=draws).charged)

    def whole(self, policy: Policy, chain: MarkovChain, draws: int = DRAWS) -> OnCourse:
        """Error, without draws where that can be, bits, and what the truth would reveal."""
        found = replace(self.leakage(policy, chain, draws), truth=self.truth(chain))
        return found if policy.moves_by is not None else replace(found, felt=self.felt(policy))

    def truth(self, chain: MarkovChain) -> float | None:
        """Bits per step that the true states of these streams would reveal; None where the chain cannot say.

        -log2 P(x_0) - sum_t log2 P^(1+gap_t)(x_{t-1}, x_t), a step, and never more than log2 of the number of states,
        which is what anybody pays who believes in no chain.
        """
        if chain.order > 1:
            return None
        total, P = 0.0, np.stack([chain.at(phase).transition for phase in range(chain.phases)])
        for z, gaps, first in zip(self.states, self.gaps, self.first, strict=True):
            step = first + np.arange(len(z)) + np.cumsum(gaps)
            row = P[chain.phase(step[:-1]), z[:-1]]  # the law one step after each
            likely = np.concatenate([chain.initial_at(step[:1])[0, z[:1]], row[np.arange(len(row)), z[1:]]])
            for t in np.flatnonzero(gaps[1:]) + 1:
                likely[t] = chain.later(row[t - 1 : t], int(gaps[t]), step[t - 1 : t] + 1)[0, z[t]]
            with np.errstate(divide="ignore"):
                total -= float(np.log2(likely).sum())
        return min(total / self.steps, float(np.log2(chain.n_symbols)))

    def run(
        self,
        policy: Policy,
        meter: Accountant,
        seed: int = 0,
        draws: int = DRAWS,
        beside: Array | None = None,
        least: int = LEAST_COPIES,
    ) -> OnCourse:
        """Every stream released several times (`least` at least), memory and belief going on over gaps."""
        copies = int(np.clip(draws // max(self.steps, 1), least, MOST_COPIES))
        mechanism = Mechanism(policy, meter=meter, sighted=True)
        lookup, rng, rule = mechanism.lookup, np.random.default_rng(seed), policy.moves_by
        totals, charged, each = np.zeros((2 if beside is None else 3, copies)), 0.0, list[Array]()
        rungs, moves = np.zeros(1 if rule is None else rule.rungs), 0
        for z, gaps, distance, first in zip(self.states, self.gaps, self.distances, self.first, strict=True):
            s = mechanism.start(copies, first)
            account = None if rule is None else Excess.new(rule, s.step)
            uniforms, told = rng.random((len(z), copies)), np.zeros((len(z), copies))
            shown = np.empty((len(z), copies), dtype=np.int64)
            for t, x in enumerate(z.tolist()):
                if gaps[t]:
                    s = mechanism.skip(s, int(gaps[t]))
                if account is not None:
                    before, s = s, mechanism.move(s, account)
                    told[t] += s.total - before.total
                    moves += int((s.memory != before.memory).sum())
                now, z_t = mechanism.look(s), np.full(copies, x)
                y = shown[t] = mechanism.draw(s, now, z_t, uniforms[t])
                if lookup is not None and isinstance(meter, BeliefFilter):
                    told[t] += density_at(s.belief, lookup.columns(s.memory, y), z_t)
                elif now.law is not None and now.channel is not None:
                    told[t] += density(now, z_t, y)
                if account is not None:
                    account.count(distance[t, y], s.step)
                    np.add.at(rungs, policy.rung(s.memory), 1)  # type: ignore[attr-defined]  # a ladder
                s = mechanism.after(s, now, y)
            charged += float(s.total.mean())
            far = np.take_along_axis(distance, shown, 1)
            figures = np.stack([far, told, *([] if beside is None else [beside[z[:, None], shown]])])
            totals += figures.sum(1)
            each.append(figures.mean(2))
        means = np.concatenate(each, 1)
        far_se, bits_se = totals[:2].std(1, ddof=1) / self.steps / np.sqrt(copies)
        found = OnCourse(float(means[0].mean()), float(far_se), float(means[1].mean()), float(bits_se), copies, means)
        if rule is None:
            return found
        shares = tuple((rungs / rungs.sum()).tolist())
        return replace(found, charged=charged / self.steps, rungs=shares, moves=moves / copies)


@dataclass(frozen=True, eq=False)
class Total:
    """What the releases of recorded streams are to add up to.

    levels: what each release adds. errors: the streams, with release - reading where distances stand.
    """

    levels: Array  # |Y|
    errors: Course
    mean: float  # of the readings

    def off(self, policy: Policy) -> float:
        """Mean release over mean reading, less 1: exact where the policy's memories are numbers."""
        return self.errors.felt(policy) / self.mean

    def spread(self, policy: Policy) -> float:
        """Standard deviation of the total of one release of the streams, relative; by draws."""
        drawn = self.errors.run(policy, Accountant())
        return float(drawn.felt_se * np.sqrt(drawn.copies) / abs(self.mean))
