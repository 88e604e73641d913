"""Recorded streams as a policy would meet them, and what its releases cost on them: starts and gaps included.

What a release costs is a row of a table or a function of reading and release, so that releases need have no end. For a
policy whose memories are numbers the mean error is exact, without a draw. With p_t(s) the law of the memory before step
t and z_t the true state then,

    error_t     = sum_s p_t(s) sum_y a_s(y|z_t) distance_t(y)
    p_{t+1}(s') = sum over (s, y) leading to s' of p_t(s) a_s(y|z_t)

For others it is the mean over draws with the same random numbers every time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.control.accountant import Accountant, BeliefFilter
from veilstream.control.controller import controller_of
from veilstream.control.loop import Loop, Seen, replay
from veilstream.control.mechanism import Mechanism
from veilstream.control.policy import Policy
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array, Index
from veilstream.model.interval import number_in

MOST_MOVES = 20_000_000  # entries in the moves of the memory, one matrix a state
DRAWS = 200_000  # of releases, over all copies
LEAST_COPIES, MOST_COPIES = 8, 200

Counted = Callable[[Index, Index], NDArray[Any]]  # of releases y at these rows


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """Means over the steps of a replay, with standard errors over copies."""

    error: float  # reading to release
    error_se: float
    bits: float  # per step: log2 a(y|z)/q(y), q the output law of the chain's filter; and the bits of public moves
    bits_se: float
    copies: int
    each: Array | None = field(default=None, repr=False)  # 2 x steps: error and bits at each, over copies
    charged: float | None = None  # per step: what the meter counted, where that is not these bits
    rungs: tuple[float, ...] = ()  # of a ladder: the share of steps on each rung
    moves: float = 0.0  # public moves that changed the rung, over all streams
    truth: float | None = None  # bits per step that the true states would reveal on the same steps

    @property
    def kept_back(self) -> float | None:
        """Share of what the truth would reveal on the same steps that is not revealed."""
        return None if not self.truth else float(np.clip(1 - self.bits / self.truth, 0.0, 1.0))

    def to_json(self) -> dict[str, Any]:
        bits = {"leakage": self.bits, "leakage_se": self.bits_se}
        error = {"raw_distortion": self.error, "raw_distortion_se": self.error_se}
        ladder = {"charged": self.charged, "rungs": list(self.rungs), "moves": self.moves} if self.rungs else {}
        more = {"copies": self.copies, "truth": self.truth}
        return {"raw_distortion": self.error, "record": {**bits, **error, **more, **ladder}}

    @classmethod
    def of(cls, said: Any) -> "ReplayResult | None":
        """What `to_json` wrote, from a file, which may say anything."""
        record = said.get("record") if isinstance(said, Mapping) else None
        if not isinstance(record, Mapping):
            return None
        names = ("raw_distortion", "raw_distortion_se", "leakage", "leakage_se", "copies")
        numbers = [v for k in names if (v := number_in(record.get(k))) is not None]
        if len(numbers) < len(names):
            return None
        error, error_se, bits, bits_se, copies = numbers
        rungs = record.get("rungs")
        shares = tuple(number_in(v) or 0.0 for v in rungs) if isinstance(rungs, list) else ()
        charged, moves, truth = (number_in(record.get(k)) for k in ("charged", "moves", "truth"))
        return cls(error, error_se, bits, bits_se, int(copies), None, charged, shares, moves or 0.0, truth)


@dataclass(frozen=True, eq=False)
class Replay:
    """Recorded streams, a row a step, in order of stream and step; what each release costs at each."""

    stream: Index  # n
    step: Index  # n: the public number
    states: Index  # n: the true states z of the policy's chain, or what its mechanism looks at instead
    distances: Array | None = None  # n x |Y|: from the reading to every release
    units: Index | None = None  # n: the trace or week of each step, numbered in order of time
    unit: str = "traces"
    points: Array | None = None  # n x ...: the readings, where there is no such table
    cost: Callable[[Array, Index], Array] | None = None  # of one release for each of some readings

    @property
    def n_steps(self) -> int:
        return len(self.step)

    @property
    def n_units(self) -> int:
        """Traces or weeks."""
        return 0 if self.units is None else len(np.unique(self.units))

    @cached_property
    def streams(self) -> list[slice]:
        """The rows of each stream."""
        cuts = [0, *(np.flatnonzero(np.diff(self.stream)) + 1).tolist(), len(self.step)]
        return [slice(a, b) for a, b in pairwise(cuts)]

    @cached_property
    def gaps(self) -> Index:
        """n: steps missed before each."""
        gaps = np.diff(self.step, prepend=0) - 1
        gaps[[rows.start for rows in self.streams]] = 0
        return gaps

    @property
    def table(self) -> Array:
        """`distances`, of releases that have an end."""
        assert self.distances is not None
        return self.distances

    def of_releases(self, rows: int | Index, y: Index) -> Array:
        """What releases y cost at these rows, broadcast together."""
        if self.cost is None or self.points is None:
            return np.asarray(self.table[rows, y])
        at, y = np.broadcast_arrays(rows, y)
        return self.cost(self.points[at.ravel()], y.ravel()).reshape(y.shape)

    def where(self, rows: NDArray[np.bool_]) -> "Replay":
        """These steps alone; what was left out before one is a gap, a stream starts at its first."""
        columns = (self.stream, self.step, self.states, self.distances, self.units, self.points)
        stream, step, z, d, units, points = (None if c is None else c[rows] for c in columns)
        return Replay(stream, step, z, d, units, self.unit, points, self.cost)  # type: ignore[arg-type]

    def halves(self, least: int = 0) -> "tuple[Replay, Replay]":
        """The earlier half of its traces or weeks, and the later one: to choose on the one and to report of the other.

        The later has that many at least, where the earlier then still has half of that.
        """
        assert self.units is not None
        numbers = np.unique(self.units)
        n = len(numbers)
        later = least if n - n // 2 < least <= n - least // 2 else n - n // 2
        middle = numbers[n - later]
        return self.where(self.units < middle), self.where(self.units >= middle)

    def under(self, distortion: Array) -> "Replay":
        """The same streams with distances that depend on the state alone, |Z| x |Y|."""
        return replace(self, distances=distortion[self.states])

    def beyond(self, limit: Array) -> "Replay":
        """The same streams, a release costing 1 where it is farther off than the limit of the true state, |Z|."""
        far = self.table > limit[self.states][:, None] * (1 + 1e-9)
        return replace(self, distances=far.astype(float))

    # --- without a policy ------------------------------------------------------------------------------------

    def least(self, allowed: NDArray[np.bool_]) -> float:
        """The least mean distance of any policy: for every state the release that is best for its readings."""
        cost = np.zeros(allowed.shape)
        np.add.at(cost, self.states, self.table)
        return float(np.where(allowed, cost, np.inf).min(1)[np.unique(self.states)].sum() / self.n_steps)

    def blind(self, chain: MarkovChain | None = None) -> float:
        """The mean distance of always releasing the one thing that is best for all; with a chain, for its phase."""
        if chain is None:
            return float(self.table.sum(0).min() / self.n_steps)
        cost = np.zeros((chain.phases, self.table.shape[1]))
        np.add.at(cost, chain.phase(self.step), self.table)
        return float(cost.min(1).sum() / self.n_steps)

    def truth(self, chain: MarkovChain) -> float | None:
        """Bits per step that the true states of these streams would reveal; None where the chain cannot say.

        -log2 P(x_0) - sum_t log2 P^(1+gap_t)(x_{t-1}, x_t), a step, and never more than log2 of the number of states,
        which is what anybody pays who believes in no chain.
        """
        if chain.order > 1:
            return None
        z, step, starts = self.states, self.step, [rows.start for rows in self.streams]
        P = np.stack([chain.at(phase).transition for phase in range(chain.phases)])
        row = P[chain.phase(step[:-1]), z[:-1]]  # the law one step after each
        likely = np.concatenate([[0], row[np.arange(len(row)), z[1:]]])
        for t in np.flatnonzero(self.gaps):
            likely[t] = chain.later(row[t - 1 : t], int(self.gaps[t]), step[t - 1 : t] + 1)[0, z[t]]
        likely[starts] = chain.initial_at(step[starts])[np.arange(len(starts)), z[starts]]
        with np.errstate(divide="ignore"):
            bits = -float(np.log2(likely).sum())
        return min(bits / self.n_steps, float(np.log2(chain.n_symbols)))

    def sums_in(self, every: int, values: Array | None = None) -> Array:
        """Sums over each period of so many steps that has any, stream by stream; of 1 by default: how many it has."""
        pairs = np.stack([self.stream, self.step // every], 1)
        period = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
        return np.bincount(period, values).astype(float)

    # --- under a policy --------------------------------------------------------------------------------------

    def error(self, policy: Policy) -> float:
        """Mean distance from reading to release."""
        return float(self.errors(policy).mean())

    def errors(self, policy: Policy) -> Array:
        """Mean distance at every step: exact where memories are numbers."""
        found = None if policy.moves_by is not None else controller_of(policy)
        if found is None:
            drawn = self.run(Mechanism(policy, meter=Accountant(), sighted=True)).each
            assert drawn is not None
            return np.asarray(drawn[0])
        parts, memory = [found.at_phase(f) for f in range(found.phases)], found.automaton
        n, Y = len(memory), found.n_outputs
        every, to = np.arange(n), memory.table.ravel()
        plain = np.array_equal(memory.table, np.tile(np.arange(Y), (n, 1)))  # the memory is the last release

        @lru_cache(max(1, MOST_MOVES // (n * Y)))
        def channels(f: int, x: int) -> Array:
            """a_s(.|x) of every memory, S x |Y|, at phase f."""
            return parts[f].rows(every, np.full(n, x))

        def moved(p: Array, f: int, x: int) -> Array:
            a = channels(f, x)
            return p @ a if plain else np.bincount(to, (p[:, None] * a).ravel(), n).astype(float)

        costs = np.empty(self.n_steps)
        for rows in self.streams:
            phase, z = found.phase_at(self.step[rows]), self.states[rows]
            laws, p = np.empty((len(z), n)), np.eye(n)[found.first]
            for t, (f, x) in enumerate(zip(phase.tolist(), z.tolist(), strict=True)):
                laws[t] = p
                p = moved(p, f, x)
            for f, x in np.unique(np.stack([phase, z], 1), axis=0).tolist():
                here = np.flatnonzero((phase == f) & (z == x))
                law = laws[here] @ channels(f, x)
                costs[rows.start + here] = (law * self.table[rows.start + here]).sum(1)
        return costs

    def leakage(
        self,
        policy: Policy,
        chain: MarkovChain,
        draws: int = DRAWS,
        beside: Array | None = None,
        least: int = LEAST_COPIES,
    ) -> ReplayResult:
        """Bits per step for these very streams, whatever their law: the adversary's model is the chain.

        beside: |Z| x |Y| distances of a third row of `each`; moves follow the errors.
        Of a ladder each move costs what it can reveal; what its meter charges, which believes the chain, is beside it.
        """
        policy = policy.made_for(chain)
        meter = BeliefFilter.of(chain, policy, charges=False)
        more = [] if beside is None else [lambda rows, y: beside[self.states[rows], y]]
        found = self.run(Mechanism(policy, meter=meter, sighted=True), draws=draws, beside=more, least=least)
        charged = None if policy.moves_by is None else self.run(Mechanism(policy), draws=draws).charged
        return replace(found, charged=charged)

    def whole(self, policy: Policy, chain: MarkovChain, draws: int = DRAWS) -> ReplayResult:
        """Error, without draws where that can be, bits, and what the truth would reveal."""
        found = replace(self.leakage(policy, chain, draws), truth=self.truth(chain))
        return found if policy.moves_by is not None else replace(found, error=self.error(policy))

    def run(
        self,
        mechanism: Loop,
        seed: int = 0,
        draws: int = DRAWS,
        beside: Sequence[Counted] = (),
        least: int = LEAST_COPIES,
    ) -> ReplayResult:
        """Every stream released several times (`least` at least), memory and belief going on over gaps.

        beside: what else is counted of releases y at rows, further rows of `each`.
        """
        copies = int(np.clip(draws // max(self.n_steps, 1), least, MOST_COPIES))
        rng, rule, charged = np.random.default_rng(seed), mechanism.policy.moves_by, 0.0
        each = np.zeros((2 + len(beside), self.n_steps))
        totals, rungs = np.zeros((len(each), copies)), np.zeros((self.n_steps, copies), np.int64)
        for rows in self.streams:
            z = np.tile(self.states[rows], (copies, 1))
            bits = np.zeros(z.shape)

            def observe(seen: Seen, z: Index = z, bits: Array = bits, start: int = rows.start) -> None:
                s = seen.before
                bits[:, seen.t] = seen.moved + mechanism.density(s, seen.view, z[:, seen.t], seen.y)
                if rule is not None:
                    rungs[start + seen.t] = mechanism.policy.rung(s.memory)  # type: ignore[attr-defined]  # a ladder

            def error(seen: Seen, start: int = rows.start) -> Array:
                return self.of_releases(start + seen.t, seen.y)

            own = {"gaps": self.gaps[rows], "first": self.step[rows.start], "error": error, "at_once": copies}
            y, total = replay(mechanism, z, observe, uniforms=rng.random, **own)
            charged += float(total.mean())
            at = np.arange(rows.start, rows.stop)[:, None]
            figures = [self.of_releases(at, y.T), bits.T, *(of(at, y.T) for of in beside)]
            for i, figure in enumerate(figures):
                each[i, rows], totals[i] = figure.mean(1), totals[i] + figure.sum(0)
        error_se, bits_se = totals[:2].std(1, ddof=1) / self.n_steps / np.sqrt(copies)
        means = float(each[0].mean()), float(error_se), float(each[1].mean()), float(bits_se)
        found = ReplayResult(*means, copies, each, charged / self.n_steps)
        if rule is None:
            return found
        shares = np.bincount(rungs.ravel(), minlength=rule.rungs) / rungs.size
        changed = sum((np.diff(rungs[rows], axis=0) != 0).sum() for rows in self.streams) / copies
        return replace(found, rungs=tuple(shares.tolist()), moves=float(changed))


@dataclass(frozen=True, eq=False)
class Total:
    """What the releases of recorded streams are to add up to.

    levels: what each release adds. errors: the streams, with release - reading where distances stand.
    """

    levels: Array  # |Y|
    errors: Replay
    mean: float  # of the readings

    def off(self, policy: Policy) -> float:
        """Mean release over mean reading, less 1: exact where the policy's memories are numbers."""
        return self.errors.error(policy) / self.mean

    def spread(self, policy: Policy) -> float:
        """Standard deviation of the total of one release of the streams, relative; by draws."""
        drawn = self.errors.run(Mechanism(policy, meter=Accountant(), sighted=True))
        return float(drawn.error_se * np.sqrt(drawn.copies) / abs(self.mean))
