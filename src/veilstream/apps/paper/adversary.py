"""What both adversary tables share: rows of policies on GeoLife, the paper's LSTM on each, and the exact floor.

The LSTM learns from recorded traces and what was released of them. Held out are single steps (the steps around them are
known; the paper's 0.36 without privacy says that it did so) or whole traces (harder). Beside it stands the least
cross-entropy any predictor with that look-back can have if the chain is true: computed, no network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from veilstream.apps.paper.geolife import model
from veilstream.apps.paper.item import Desk
from veilstream.apps.paper.learned import available
from veilstream.apps.paper.points import SETTINGS, key_of
from veilstream.audit.lookback import least_cross_entropy, window_law
from veilstream.audit.measures import NATS
from veilstream.audit.traces import Ints, release
from veilstream.core.chain import MarkovChain
from veilstream.core.histories import TrueStates
from veilstream.core.information import Array
from veilstream.core.policy import Policy
from veilstream.core.problem import Average, Instantaneous, Problem
from veilstream.core.window import WindowPolicy
from veilstream.solvers import solve
from veilstream.solvers.baselines import Baseline

LOOK_BACKS = (1, 5)
HELD_OUT = ("step", "trace")
NAMES = {"causal-ba": "optimum", "myopic": "myopic", "planar-laplace": "planar Laplace", "truth": "no privacy"}


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
    def name(self) -> str:
        return NAMES[self.method] + (f", {self.limit:g} km" if self.limit else "")

    def nats(self, lookback: int, held_out: str = "step") -> float | None:
        """What the LSTM got, or the floor where none was trained."""
        got = self.lstm.get((lookback, held_out))
        return self.least[lookback] if got is None else got["cross_entropy"]["value"]


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
    ) -> Row:
        """Solve, measure, train; every part is kept in a file of its own."""
        desk, problem = self.desk, Problem(self.chain, self.distances, constraint)

        @cache
        def solution() -> tuple[Policy, float, float]:
            return policy_of(problem, method, desk.budget.seed)

        def where() -> dict[str, Any]:
            policy, bits, km = solution()
            return {"bits": bits, "km": km, "least": [least(self.chain, policy, m) for m in LOOK_BACKS]}

        key = key_of(problem, method, table="adversary", look_backs=LOOK_BACKS, seed=desk.budget.seed)
        told = desk.kept(key, where)
        trained = {}
        if available():
            for m in LOOK_BACKS:
                for by in HELD_OUT:
                    desk.tell(done, f"{NAMES[method]}, {constraint}: look-back {m}, {by}s held out")
                    trained[m, by] = self._lstm(key, m, by, lambda: solution()[0])
        limit = 0.0 if method == "truth" else float(constraint.limit or 0)  # type: ignore[arg-type]
        floor = dict(zip(LOOK_BACKS, told["least"], strict=True))
        return Row(method, limit, told["km"], told["bits"], floor, trained, paper, paper_bits)

    def _lstm(self, row: dict[str, Any], lookback: int, by: str, policy: Callable[[], Policy]) -> dict[str, Any]:
        budget = self.desk.budget
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in self.paths)).hexdigest()
        key = {**row, "lstm": [lookback, by, budget.lstm_seeds, budget.lstm_copies, budget.lstm_s], "traces": digest}

        def compute() -> dict[str, Any]:
            from veilstream.audit.learned import lstm
            from veilstream.audit.lstm import Lstm

            data = release(policy(), self.paths, budget.lstm_copies, seed=1)
            x, n = self.chain.symbols[data.z], self.chain.n_symbols
            net = Lstm(max_seconds=budget.lstm_s)
            got = lstm(
                data,
                x,
                data.y,
                self.distances.shape[1],
                n,
                lookback,
                max(LOOK_BACKS),
                budget.lstm_seeds,
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
        return WindowPolicy.of_table(np.eye(chain.n_symbols)[chain.symbols]), chain.entropy_rate, 0.0
    if method == "planar-laplace" and isinstance(problem.constraint, Instantaneous):
        point = Baseline(method, settings=SETTINGS, seed=seed).within(problem)
        return point.policy, point.leakage, point.distortion
    solution = solve(problem, method, seed=seed)
    return solution.policy, solution.leakage, solution.distortion


def least(chain: MarkovChain, policy: Policy, lookback: int) -> float | None:
    """The floor in nats. Under a public schedule of long blocks: its parts by their share of the time."""
    floor = 0.0
    for share, part in policy.shares():
        law = window_law(chain, part, lookback)
        if law is None:
            return None
        floor += share * least_cross_entropy(law) * NATS
    return floor


def table(desk: Desk, rows: Sequence[Row]) -> None:
    head = ["policy", "limit_km", "distortion_km", "leakage_bits"]
    head += [f"least_possible_nats_look_back_{m}" for m in LOOK_BACKS]
    for m in LOOK_BACKS:
        for by in HELD_OUT:
            about = f"look_back_{m}_{by}s_held_out"
            head += [f"lstm_nats_{about}", f"low_{about}", f"high_{about}", f"seeds_{about}"]
    head += [*(f"paper_lstm_nats_look_back_{m}" for m in LOOK_BACKS), "paper_leakage_bits"]
    out = []
    for r in rows:
        line: list[Any] = [NAMES[r.method], r.limit, r.km, r.bits]
        line += ["" if (v := r.least[m]) is None else v for m in LOOK_BACKS]
        for m in LOOK_BACKS:
            for by in HELD_OUT:
                got = r.lstm.get((m, by))
                ce = {} if got is None else got["cross_entropy"]
                line += [ce.get(k, "") for k in ("value", "low", "high")]
                line.append("" if got is None else " ".join(f"{v:.3f}" for v in got["per_seed"]))
        out.append([*line, *(r.paper or ("", "")), "" if r.paper_bits is None else r.paper_bits])
    desk.table(head, out)


def said(r: Row) -> str:
    """optimum, 5 km, 0.12 bits (paper 0.39): 1.17 [0.84, 1.51] / 1.20 [0.91, 1.51] (paper 0.66 / 0.40)."""
    text = []
    for m in LOOK_BACKS:
        got = r.lstm.get((m, "step"))
        if got is None:
            text.append("not computed" if (v := r.least[m]) is None else f"{v:.2f}")
        else:
            ce = got["cross_entropy"]
            text.append(f"{ce['value']:.2f} [{ce['low']:.2f}, {ce['high']:.2f}]")
    told = "" if r.paper is None else f" (paper {r.paper[0]:.2f} / {r.paper[1]:.2f})"
    leaks = f", {r.bits:.3f} bits" + ("" if r.paper_bits is None else f" (paper {r.paper_bits:g})")
    return f"{r.name}{leaks}: {' / '.join(text)}{told}"


def how(rows: Sequence[Row]) -> str:
    """What the figures of `said` are."""
    if not rows[0].lstm:
        return (
            "Least cross-entropy in nats of any adversary with look-back 1 / 5, computed exactly for the chain; no "
            "LSTM was trained (pip install 'veilstream[deep]')"
        )
    return "LSTM's cross-entropy in nats with look-back 1 / 5, steps held out, 95 % over traces"


def also(rows: Sequence[Row]) -> str:
    """Whole traces held out, and trainings that the clock ended."""
    if not rows[0].lstm:
        return ""
    unseen = [v for r in rows for m in LOOK_BACKS if (v := r.nats(m, "trace")) is not None]
    cut = sum(got["stopped_by_the_clock"] for r in rows for got in r.lstm.values())
    seeds = len(next(iter(rows[0].lstm.values()))["per_seed"])
    clock = f"{cut} trainings were ended by the clock. " if cut else ""
    return (
        f"On whole traces never seen it gets {min(unseen):.2f} to {max(unseen):.2f} nats, whatever the policy. "
        f"{seeds} seeds, each holding out another part. {clock}The floor in the picture is for the chain; recorded "
        "traces may be easier or harder. "
    )


def falling(rows: Sequence[Row]) -> bool | None:
    """The more a policy leaks, the less the adversary is surprised, for both look-backs; None where not computed."""
    order = sorted(rows, key=lambda r: r.bits)
    values = [[v for r in order if (v := r.nats(m)) is not None] for m in LOOK_BACKS]
    if any(len(row) < len(order) for row in values):
        return None
    return all(row == sorted(row, reverse=True) for row in values)


def above(a: Row, b: Row) -> bool:
    """Whether the adversary is left worse off by a, with both look-backs; no where one was not computed."""
    pairs = [(a.nats(m), b.nats(m)) for m in LOOK_BACKS]
    return all(x is not None and y is not None and x > y for x, y in pairs)


def verdict(claim: bool | None) -> str:
    return {True: "holds", False: "does not hold", None: "not computed"}[claim]


def covered(rows: Sequence[Row]) -> tuple[int, int]:
    """How many of the paper's figures lie in our intervals, of how many that can be compared."""
    inside = []
    for r in rows:
        for m, told in zip(LOOK_BACKS, r.paper or (), strict=False):
            if (got := r.lstm.get((m, "step"))) is not None:
                inside.append(got["cross_entropy"]["low"] <= told <= got["cross_entropy"]["high"])
    return sum(inside), len(inside)


def covering(inside: int, of: int) -> str:
    return f" In our interval: {inside} of {of} of the paper's figures." if of else ""


def draw(rows: Sequence[Row], title: str) -> Figure:
    figure = Figure(figsize=(10.5, 0.55 * len(rows) + 1.8), layout="constrained")
    ax = figure.subplots()
    at = np.arange(len(rows))
    for k, (m, colour, mark) in enumerate(zip(LOOK_BACKS, ("#0072B2", "#D55E00"), ("o", "s"), strict=True)):
        y = at + 0.16 * (2 * k - 1)
        if rows[0].lstm:
            got = [r.lstm[m, "step"]["cross_entropy"] for r in rows]
            v, low, high = (np.array([g[name] for g in got], float) for name in ("value", "low", "high"))
            ax.errorbar(v, y, xerr=[v - low, high - v], fmt=mark, color=colour, capsize=2, lw=1,
                        label=f"LSTM, look-back {m}, 95 %")  # fmt: skip
        floor = np.array([r.least[m] for r in rows], float)  # None becomes nan
        ax.plot(floor, y, "|", color=colour, markersize=11, mew=2, label=f"least possible on the chain, look-back {m}")
        told = np.array([np.nan if r.paper is None else r.paper[k] for r in rows])
        ax.plot(told, y, mark, color=colour, fillstyle="none", label=f"the paper's LSTM, look-back {m}")
    ax.set_yticks(at, [f"{r.name} ({r.bits:.3f} bits)" for r in rows], fontsize=9)
    ax.invert_yaxis()
    ax.set(xlabel="cross-entropy of the adversary's guess (nats); more is more private", xlim=(0, None))
    ax.set_title(title, loc="left", fontsize=11)
    ax.grid(axis="y", color="#e5e9ed")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    labelled = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    names = sorted(labelled)  # ours, the floor, the paper's
    ax.legend([labelled[n] for n in names], names, frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
