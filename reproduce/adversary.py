"""What both adversary tables share: rows of policies on GeoLife, the paper's LSTM on each, and the exact floor.

The LSTM learns from recorded traces and what was released of them. Held out are single steps (the steps around them are
known) or whole traces (harder). In sample: one joined trace, released once, scored on what was learned from: without
privacy that gives the paper's figures, so it may be what it reports. Beside it stands the least cross-entropy that any
predictor with that look-back can have if the chain is true: computed, no network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from reproduce.geolife import model
from reproduce.item import Desk
from reproduce.learned import AS_PUBLISHED, MEAN, available
from reproduce.points import key_of, within
from veilstream.audit.learned import least_cross_entropy, window_law
from veilstream.audit.measures import NATS
from veilstream.audit.traces import Ints, release
from veilstream.control.controller import Controller, controller_of
from veilstream.control.policy import Policy
from veilstream.model.chain import MarkovChain
from veilstream.model.histories import TrueStates
from veilstream.model.information import Array
from veilstream.model.problem import Average, Instantaneous, Problem
from veilstream.solvers import solve
from veilstream.solvers.solution import Solution

LOOK_BACKS = (1, 5)
HELD_OUT = ("step", "trace")
IN_SAMPLE = "none"  # nothing held out
NOTHING = 1e-9  # bits
WHOLE_TRACES = ("truth", "causal-ba")  # rows for which whole traces are held out too; with --full all
NAMES = {
    "causal-ba": "optimum",
    "myopic": "myopic",
    "planar-laplace": "planar Laplace",
    "truth": "no privacy",
    AS_PUBLISHED: "A2C as published",
    MEAN: "A2C as published, mean",
}


@dataclass(frozen=True)
class Row:
    """One policy: where it operates, the exact floor, and the LSTM by (look-back, what is held out), all in nats."""

    method: str
    limit: float  # km; 0: no privacy
    km: float
    bits: float
    least: dict[int, float | None]
    lstm: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)  # empty without JAX
    paper: tuple[float, float] | None = None  # its LSTM, by look-back
    paper_bits: float | None = None  # its leakage

    @property
    def missed(self) -> bool:
        """Whether a learned policy is further off on average than it should be."""
        return bool(self.limit) and self.km > self.limit * 1.02

    @property
    def name(self) -> str:
        return NAMES[self.method] + (f", {self.limit:g} km" if self.limit else "")

    def nats(self, lookback: int, held_out: str = "step") -> float | None:
        """What the LSTM got, or the floor where none was trained."""
        got = self.lstm.get((lookback, held_out))
        return self.least[lookback] if got is None else got["cross_entropy"]["value"]

    def in_sample(self, lookback: int) -> float | None:
        """What the LSTM got on what it learned from."""
        got = self.lstm.get((lookback, IN_SAMPLE))
        return None if got is None else float(got["cross_entropy"]["value"])


@dataclass(frozen=True)
class Bench:
    """The data all rows are measured on."""

    desk: Desk
    chain: MarkovChain
    distances: Array
    paths: Sequence[Ints]

    @classmethod
    def of(cls, desk: Desk) -> Bench:

        assert desk.geolife is not None
        fitted = model(desk.geolife)
        long = [s for s in fitted.runs.sequences if len(s) > max(LOOK_BACKS)]
        return cls(desk, fitted.chain, fitted.states.distances(), list(map(TrueStates.of(fitted.chain).along, long)))

    def row(
        self,
        method: str,
        constraint: Instantaneous | Average,
        paper: tuple[float, float] | None = None,
        done: float = 0.0,
        paper_bits: float | None = None,
        given: tuple[Policy, Solution] | None = None,
        ways: Sequence[str] | None = None,
    ) -> Row:
        """Solve, measure, train; every part is kept in a file of its own.

        given: a policy that was trained elsewhere, and its figures. ways: what is held out, each in turn.
        """
        desk, problem = self.desk, Problem(self.chain, self.distances, constraint)

        @cache
        def solution() -> tuple[Policy, float, float]:
            if given is not None:
                return given[0], given[1].leakage, given[1].distortion
            return policy_of(problem, method, desk.budget.seed)

        def where() -> dict[str, Any]:
            policy, bits, km = solution()
            return {"bits": bits, "km": km, "least": [least(self.chain, policy, m) for m in LOOK_BACKS]}

        key = key_of(problem, method, table="adversary", look_backs=LOOK_BACKS, seed=desk.budget.seed)
        if given is not None:
            key["trained"] = [given[1].weight, given[1].leakage, given[1].distortion]
        told = desk.kept(key, where)
        trained = {}
        if told["bits"] < NOTHING:  # one release always: the same for every limit and method
            key = {k: key[k] for k in ("problem", "table", "look_backs", "seed")} | {
                "constant_km": round(told["km"], 6)
            }
        if available():
            for m in LOOK_BACKS:
                for by in self.ways(method) if ways is None else ways:
                    desk.tell(done, f"{NAMES[method]}, {constraint}: look-back {m}, held out: {by}")
                    trained[m, by] = self._lstm(key, m, by, lambda: solution()[0])
        limit = 0.0 if method == "truth" else float(constraint.limit or 0)  # type: ignore[arg-type]
        floor = dict(zip(LOOK_BACKS, told["least"], strict=True))
        return Row(method, limit, told["km"], told["bits"], floor, trained, paper, paper_bits)

    def ways(self, method: str) -> list[str]:
        every = self.desk.budget.everywhere or method in WHOLE_TRACES
        return [*(HELD_OUT if every else HELD_OUT[:1]), IN_SAMPLE]

    def _lstm(self, row: dict[str, Any], lookback: int, by: str, policy: Callable[[], Policy]) -> dict[str, Any]:
        budget = self.desk.budget
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in self.paths)).hexdigest()
        settings = [budget.lstm_seeds, budget.lstm_copies, budget.lstm_s]
        if by == IN_SAMPLE:
            settings = [budget.lstm_rounds]
        key = {**row, "lstm": [lookback, by, *settings], "traces": digest}

        def compute() -> dict[str, Any]:
            from veilstream.audit.learned import lstm
            from veilstream.audit.lstm import Lstm

            if by == IN_SAMPLE:
                data = release(policy(), [np.concatenate(self.paths)], seed=1)
                net, seeds = Lstm(max_rounds=budget.lstm_rounds, patience=budget.lstm_rounds), 1
            else:
                data = release(policy(), self.paths, budget.lstm_copies, seed=1)
                net, seeds = Lstm(max_seconds=budget.lstm_s), budget.lstm_seeds
            x, n = self.chain.symbols[data.z], self.chain.n_symbols
            got = lstm(
                data,
                x,
                data.y,
                self.distances.shape[1],
                n,
                lookback,
                max(LOOK_BACKS),
                seeds,
                net=net,
                hold_out=by,
            )
            return {
                "cross_entropy": got.cross_entropy.scaled(NATS).to_json(),
                "per_seed": [v * NATS for v in got.per_seed],
                "top1": got.top1,
                "stopped_by_the_clock": got.stopped,
            }

        return dict(self.desk.kept(key, compute))


def policy_of(problem: Problem, method: str, seed: int) -> tuple[Policy, float, float]:
    """(policy, bits per step, mean km)."""
    if method == "truth":
        chain = problem.chain
        return Controller.of_table(np.eye(chain.n_symbols)[chain.symbols]), chain.entropy_rate, 0.0
    if method == "planar-laplace" and isinstance(problem.constraint, Instantaneous):
        point = within(problem, method, seed)
        return point.policy, point.leakage, point.distortion
    solution = solve(problem, method, seed=seed)
    return solution.policy, solution.leakage, solution.distortion


def least(chain: MarkovChain, policy: Policy, lookback: int) -> float | None:
    """The floor in nats. Under a public schedule of long blocks: its parts by their share of the time."""
    found = controller_of(policy)
    if found is None or chain.phases > 1:
        return None
    floor, turns = 0.0, np.bincount(found.turn) if found.turn is not None else np.ones(1)
    for share, phase in zip(turns / turns.sum(), range(found.phases), strict=True):
        law = window_law(chain, found.at_phase(phase), lookback)
        if law is None:
            return None
        floor += share * least_cross_entropy(law) * NATS
    return floor
