"""Markov chains: what the adversary knows about how a person's data moves.

    P(z, z') = P(Z_{t+1} = z' | Z_t = z),   rows sum to 1

A chain of order m is an order-1 chain on histories z = (x_t, ..., x_{t-m+1}), newest first; `symbols` says
which x_t each z stands for. Everything downstream sees only this rectangular form.

How data moves may depend on the hour, which everybody knows: with a public clock there is one matrix for each phase,

    P_phi(z, z') = P(Z_{t+1} = z' | Z_t = z, phase of step t is phi)

The phase is public, so it costs no bits; a plain chain has one phase. `transition` is then the mean chain, of somebody
who does not look at the clock: with pi_l the law at step l of one round (of L steps),

    P(z, z') = sum_l pi_l(z) P_phi(l)(z, z') / sum_l pi_l(z),       whose stationary law is the mean of the pi_l
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from veilstream.errors import InputError
from veilstream.model.clock import Clock
from veilstream.model.counts import check_histories, fitted
from veilstream.model.information import Array, Index, entropy, normalised, rows_times
from veilstream.model.structure import Powers, absorption, checked_stochastic, closed_classes, period, stationary_law

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SMOOTHING = 1e-3  # pseudo-counts per transition; keeps every entry positive, hardly moves the entropy rate
LARGE, SPARSE = 256, 0.05  # states from which, and share of non-zeros below which, a chain is treated as sparse
ALWAYS = Clock("steps", 1)  # of a chain that does not look at the time
BLOCK = 1 << 17  # steps of a gap that are looked at together
LONGEST = 1 << 22  # steps of a gap beyond which the first of them are forgotten
MOST_CELLS = 1 << 20  # entries of transition matrices gathered for streams at different phases
KEPT = 64  # rounds of different phases whose products are kept


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """A chain on |Z| states; `initial` defaults to its stationary law.

    With a clock `transition` is given as one matrix for each phase, phases x |Z| x |Z|; these are kept as `cycle`.

    >>> import veilstream as vs
    >>> chain = vs.MarkovChain([[0.9, 0.1], [0.2, 0.8]])
    >>> [round(float(p), 3) for p in chain.stationary], round(chain.entropy_rate, 3)
    ([0.667, 0.333], 0.553)
    >>> vs.MarkovChain.fit([[0, 0, 1, 1, 1, 0, 0]], smoothing=1.0).transition.round(2).tolist()
    [[0.6, 0.4], [0.4, 0.6]]
    """

    transition: Array  # |Z| x |Z|
    initial: Array = None  # type: ignore[assignment]  # |Z|
    histories: tuple[tuple[int, ...], ...] | None = None  # of a lifted chain: newest symbol first
    name: str = "chain"
    counts: Array | None = field(default=None, repr=False)  # observed transitions behind a fitted chain
    clock: Clock = ALWAYS
    cycle: Array = field(init=False, repr=False)  # phases x |Z| x |Z|

    def __post_init__(self) -> None:
        P = checked_stochastic(self.transition, "transition")
        if P.ndim not in (2, 3) or P.shape[-2] != P.shape[-1]:
            raise InputError(f"transition must be a square matrix, found shape {P.shape}")
        object.__setattr__(self, "cycle", P if P.ndim == 3 else P[None])
        if len(self.cycle) != self.phases:
            raise InputError(f"a clock of {self.phases} phases needs as many matrices, found {len(self.cycle)}")
        P = self.cycle[0] if self.phases == 1 else self._mean()
        object.__setattr__(self, "transition", P)
        if self.phases > 1 and (self.initial is not None or len(self.closed_classes) > 1):
            raise InputError(
                "a chain with a clock starts from its law at each phase (leave initial out) and must not fall apart "
                "into several classes of states"
            )
        if self.initial is None:
            object.__setattr__(self, "initial", self.stationary)
        else:
            p = checked_stochastic(self.initial, "initial")
            if p.shape != P.shape[:1]:
                raise InputError(f"initial must have one entry per state ({len(P)}), found shape {p.shape}")
            object.__setattr__(self, "initial", p)
        if self.histories is not None and len(self.histories) != len(P):
            raise InputError(f"{len(self.histories)} histories given for {len(P)} states")
        if self.histories is not None:
            check_histories(self.histories)

    def __len__(self) -> int:
        return len(self.transition)

    @property
    def order(self) -> int:
        return 1 if self.histories is None else max(map(len, self.histories))

    @cached_property
    def symbols(self) -> NDArray[np.int64]:
        """The newest symbol x_t of each state z."""
        if self.histories is None:
            return np.arange(len(self))
        return np.array([h[0] for h in self.histories])

    @property
    def n_symbols(self) -> int:
        return int(self.symbols.max()) + 1

    @cached_property
    def is_sparse(self) -> bool:
        """Large, and nearly all transitions impossible: worth products over the non-zeros alone."""
        return len(self) >= LARGE and int(np.count_nonzero(self.transition)) < SPARSE * self.transition.size

    @cached_property
    def sparse(self) -> "csr_array":
        """The transition as a scipy csr array."""
        from scipy.sparse import csr_array

        return csr_array(self.transition)

    # --- structure -----------------------------------------------------------------------------------

    @cached_property
    def closed_classes(self) -> list[Index]:
        """The communicating classes that are never left: one for every law the chain can settle in."""
        return closed_classes(self.transition)

    @cached_property
    def absorption(self) -> Array:
        """A(z, k) = P(the chain ends in closed class k | it starts in z),  |Z| x classes."""
        return absorption(self.transition, self.closed_classes)

    @cached_property
    def period(self) -> int:
        """The greatest period among the closed classes (1: aperiodic)."""
        return period(self.transition, self.closed_classes)

    @cached_property
    def stationary(self) -> Array:
        """The long-run law, pi P = pi: what the time average from `initial` (uniform if none) converges to."""
        pi = np.zeros(len(self))
        start = np.full(len(self), 1 / len(self)) if self.initial is None else self.initial
        for k, states in enumerate(self.closed_classes):
            whole = len(states) == len(self)
            law = self._sparse_law if whole and self.is_sparse else self._dense_law(states)
            pi[states] = (start @ self.absorption[:, k]) * law
        return normalised(pi)

    def _dense_law(self, states: NDArray[np.int64]) -> Array:
        return stationary_law(self.transition[np.ix_(states, states)])

    @property
    def _sparse_law(self) -> Array:
        """pi P = pi with pi(0) = 1: one sparse system, then a few steps of the chain."""
        from scipy.sparse import eye_array
        from scipy.sparse.linalg import spsolve

        flow = self.sparse.T.tocsc()
        pi = np.ones(len(self))
        pi[1:] = np.maximum(spsolve((eye_array(len(self)) - flow).tocsc()[1:, 1:], flow[1:, [0]].toarray()[:, 0]), 0)
        for _ in range(3):
            pi = flow @ (pi / pi.sum())
        return pi

    @property
    def warnings(self) -> list[str]:
        """Where a rate alone would mislead."""
        found = []
        if len(self.closed_classes) > 1:
            found.append(
                f"the chain is reducible ({len(self.closed_classes)} closed classes): rates are averages over the "
                "classes, weighted by how often the initial law ends in each; a class revealed once costs start-up "
                "bits, not rate"
            )
        n_transient = len(self) - sum(map(len, self.closed_classes))
        if n_transient:
            found.append(
                f"{n_transient} of {len(self)} states are transient: they cost start-up bits but no rate; "
                "the stationary law is zero there"
            )
        if self.period > 1:
            found.append(
                f"the chain is periodic (period {self.period}): its phase can be learned once and for all; "
                "see the start-up bits"
            )
        return found

    # --- steps in public time ------------------------------------------------------------------------
    # `step` is the public number of a step, one for each row of b

    @property
    def phases(self) -> int:
        return self.clock.phases

    @property
    def around(self) -> Index:
        """The phases of one whole round of the clock, step by step."""
        return self.clock.around

    def phase(self, step: ArrayLike) -> Index:
        """The public phase of each step."""
        return self.clock.phase(step)

    @cached_property
    def laws(self) -> Array:
        """The law at each step of one round that leaves the law at its start alone, L x |Z|."""
        if self.phases == 1:
            return self.stationary[None]
        pi, law = np.empty((len(self.around), self.cycle.shape[1])), MarkovChain(self._product(self.around)).stationary
        for i, phase in enumerate(self.around):
            pi[i] = law
            law = law @ self.cycle[phase]
        return pi

    @cached_property
    def law_by_phase(self) -> Array:
        """The law of the state at the start of a stream, given the phase: phases x |Z|."""
        if self.phases == 1:
            return self.initial[None]
        return normalised(self._mass)

    @property
    def _mass(self) -> Array:
        """The laws of a round, added up by phase: phases x |Z|."""
        mass = np.zeros(self.cycle.shape[:2])
        np.add.at(mass, self.around, self.laws)
        return mass

    def _mean(self) -> Array:
        mass = self._mass
        flow, seen = np.einsum("pz,pzk->zk", mass, self.cycle), mass.sum(0)[:, None]
        mean = np.where(seen > 0, flow / np.where(seen > 0, seen, 1), self.cycle.mean(0))
        return checked_stochastic(mean, "transition")

    @cached_property
    def _by_phase(self) -> "list[MarkovChain]":
        if self.phases == 1:
            return [self]
        parts, name = zip(self.cycle, self.law_by_phase, strict=True), f"{self.name} at one phase"
        return [MarkovChain(P, law, self.histories, name) for P, law in parts]

    def at(self, phase: int) -> "MarkovChain":
        """The chain as it is at one phase."""
        return self._by_phase[phase]

    @property
    def rarest(self) -> Array:
        """The least probability of every transition, over the phases."""
        return np.asarray(self.cycle.min(0))

    def initial_at(self, step: Index) -> Array:
        """The law of the first state of streams that begin at these steps, n x |Z|."""
        return np.asarray(self.law_by_phase[self.phase(step)])

    def moved(self, b: Array, step: Index) -> Array:
        """b P: from the law at these steps to that at the next."""
        if self.phases == 1:
            return rows_times(b, self.transition)
        phase = np.broadcast_to(self.phase(step), b.shape[:1])
        if len(phase) and (phase == phase[0]).all():
            return rows_times(b, self.cycle[phase[0]])
        if b.size * b.shape[-1] <= MOST_CELLS:
            return np.asarray((b[:, None] @ self.cycle[phase])[:, 0])
        after = np.empty_like(b)
        for i in np.unique(phase):
            after[phase == i] = b[phase == i] @ self.cycle[i]
        return after

    def later(self, b: Array, k: int = 1, step: ArrayLike = 0) -> Array:
        """b P^k along the last axis, a law again for any k: from the law at these steps to that k steps later.

        The clock may be put forward or back between them.
        """
        if k < 1:
            return b
        if self.phases == 1:
            return self._round(self.around).law(b, k)
        first = np.broadcast_to(np.asarray(step, np.int64), b.shape[:-1])
        after = np.empty_like(b)
        for start in np.unique(first):
            after[first == start] = self._along(b[first == start], int(start), k)
        return after

    def _along(self, b: Array, start: int, k: int) -> Array:
        if k > LONGEST:
            start, k = start + k - LONGEST, LONGEST
        for at in range(start, start + k, BLOCK):
            phases = self.phase(np.arange(at, min(at + BLOCK, start + k)))
            n, whole = len(self.around), len(phases) // len(self.around)
            rounds = phases[: whole * n].reshape(whole, n)
            new = np.ones(whole, bool)  # rounds that are not as the one before
            new[1:] = (rounds[1:] != rounds[:-1]).any(1)
            starts = np.flatnonzero(new)
            for i, times in zip(starts, np.diff(np.append(starts, whole)), strict=True):
                b = self._round(rounds[i]).law(b, int(times))
            for phase in phases[whole * n :]:
                b = b @ self.cycle[phase]
        return normalised(b)

    def _round(self, phases: Index) -> Powers:
        """Powers of the product of these phases in turn."""
        key = phases.tobytes()
        if key not in self._rounds:
            if len(self._rounds) >= KEPT:
                self._rounds.clear()
            self._rounds[key] = Powers(self._product(phases))
        return self._rounds[key]

    @cached_property
    def _rounds(self) -> dict[bytes, Powers]:
        return {}

    def _product(self, phases: Index) -> Array:
        """P of the first phase, times that of the second, ...: rows stay laws."""
        P: Array = normalised(self.cycle[phases[0]])
        for phase in phases[1:]:
            P = normalised(P @ self.cycle[phase])
        return P

    @cached_property
    def entropy_rate(self) -> float:
        """Mean over a round of sum_z pi_l(z) H(P_l(z, .)), bits per step: what publishing the truth would leak."""
        return float((self.laws * entropy(self.cycle)[self.around]).sum(1).mean())

    # --- derived chains and data -----------------------------------------------------------------------

    def lift(self, order: int) -> "MarkovChain":
        """The same process on histories of `order` symbols, kept to those that can occur."""
        if order < 1:
            raise InputError(f"order must be at least 1, found {order}")
        if self.histories is not None or self.phases > 1:
            raise InputError("only an order-1 chain without a clock can be lifted")
        if order == 1:
            return self
        P, n = self.transition, len(self)
        tuples: list[tuple[int, ...]] = [(x,) for x in range(n)]
        for _ in range(order - 1):
            tuples = [(x, *h) for h in tuples for x in range(n) if P[h[0], x] > 0]
        index = {h: i for i, h in enumerate(tuples)}
        lifted = np.zeros((len(tuples), len(tuples)))
        initial = np.empty(len(tuples))
        for h, i in index.items():
            initial[i] = self.initial[h[-1]] * np.prod([P[h[k + 1], h[k]] for k in range(order - 1)])
            for x in np.flatnonzero(P[h[0]]):
                lifted[i, index[(int(x), *h[:-1])]] = P[h[0], x]
        return MarkovChain(lifted, initial, tuple(tuples), f"{self.name} (order {order})")

    @classmethod
    def fit(
        cls,
        sequences: Iterable[Sequence[int] | NDArray[np.integer]],
        n_states: int | None = None,
        order: int = 1,
        smoothing: float | Array = SMOOTHING,
        name: str = "fitted",
    ) -> "MarkovChain":
        """Relative frequencies with `smoothing` pseudo-counts per next symbol, so that every symbol can follow.

            P(x' | c) = (N(c, x') + s(x, x')) / (N(c) + sum_x'' s(x, x'')),    x the newest symbol of c

        s is `smoothing`: one number for all, or a matrix n x n.

        For order m a state is a context c: every single symbol, and each longer history that was seen. After x'
        the new context is the longest known beginning of (x', c): a history never seen falls back by itself.
        """
        P, counts, contexts = fitted(sequences, n_states, order, smoothing)
        return cls(P, histories=tuple(contexts) if order > 1 else None, name=name, counts=counts)

    def sample(
        self, steps: int, streams: int = 1, seed: "int | np.random.Generator" = 0, first: ArrayLike = 0
    ) -> NDArray[np.int64]:
        """`streams` sequences of `steps` states z, from the law at their first steps,  streams x steps.

        first: public number of the first step, one for all or one each.
        """
        rng = np.random.default_rng(seed)
        z = np.empty((streams, steps), dtype=np.int64)
        step = np.broadcast_to(np.asarray(first, np.int64), streams)
        law = self.initial_at(step)
        for t in range(steps):
            z[:, t] = draw(law, rng.random(streams))
            law = self.cycle[self.phase(step + t), z[:, t]]
        return z


def draw(law: Array, u: Array) -> NDArray[np.int64]:
    """The symbol at which the cumulative law passes u in [0, 1); one draw per leading index, never one of law 0."""
    cumulative = np.cumsum(law, -1)
    total = cumulative[..., -1]
    passed = np.minimum(u * total, np.nextafter(total, 0))  # below the total even when u rounds up to 1
    y: Index = (cumulative <= passed[..., None]).sum(-1)
    return y
