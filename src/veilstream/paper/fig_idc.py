"""(a) Leakage against the limit at every step, 1 to 4, on the 4x4 grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from veilstream.builtin import builtin_problem
from veilstream.evaluate import Evaluation, evaluate
from veilstream.paper.item import Desk, Finding, Item
from veilstream.problem import Instantaneous
from veilstream.report.plots import STYLES
from veilstream.solvers import solve
from veilstream.solvers.solution import Solution

CHAINS = {"q0": "#0072B2", "q1": "#D55E00", "q2": "#009E73"}
LIMITS = (1, 2, 3, 4)
METHODS = ("causal-ba", "myopic", "belief-greedy")
SAME = 0.005  # bits within which computed figures count as equal


def make(desk: Desk) -> Finding:
    found: dict[tuple[str, int, str], Solution] = {}
    simulated: dict[tuple[str, int], Evaluation] = {}
    jobs = [(c, limit, m) for c in CHAINS for limit in LIMITS for m in METHODS]
    for i, (chain, limit, method) in enumerate(jobs):
        desk.tell(i / len(jobs), f"{chain}, limit {limit}, {method}")
        if method == "belief-greedy" and limit != 2:
            continue  # one point per chain is enough to place it
        problem = builtin_problem(f"grid4x4-{chain}", Instantaneous(limit))
        options: dict[str, Any] = {}
        if method == "causal-ba":
            options = {"certify": True, "certify_seconds": desk.budget.certify_s}
        s = found[chain, limit, method] = solve(problem, method, seed=desk.budget.seed, **options)
        if method == "causal-ba":
            rolled = evaluate(problem, s.policy, desk.budget.steps, desk.budget.streams, seed=desk.budget.seed)
            simulated[chain, limit] = rolled
    head = ["chain", "limit", "method", "leakage_bits", "standard_error", "lower_bound_bits", "distortion", "level"]
    rows = [
        [
            c,
            limit,
            m,
            s.leakage,
            s.leakage_se,
            "" if s.leakage_lower is None else s.leakage_lower,
            s.distortion,
            s.level,
        ]
        for (c, limit, m), s in found.items()
    ]
    for (c, limit), ev in simulated.items():
        how = f"estimated, {ev.streams} roll-outs of {ev.steps}"
        rows.append([c, limit, "causal-ba", ev.leakage, ev.leakage_se, "", ev.distortion, how])
    desk.table(head, rows)
    desk.figure(draw(found))
    return judge(found)


def judge(found: dict[tuple[str, int, str], Solution]) -> Finding:
    ours = {c: [found[c, limit, "causal-ba"] for limit in LIMITS] for c in CHAINS}
    leak = {c: np.array([s.leakage for s in row]) for c, row in ours.items()}
    order = bool((leak["q2"] <= leak["q1"] + SAME).all() and (leak["q1"] <= leak["q0"] + SAME).all())
    gaps = [s.leakage - (s.leakage_lower or 0) for row in ours.values() for s in row]
    inside = all(g >= -1e-9 for g in gaps)
    over = {c: max(found[c, k, "myopic"].leakage - found[c, k, "causal-ba"].leakage for k in LIMITS) for c in CHAINS}
    text = "; ".join(f"{c.upper()}: " + " / ".join(f"{v:.3f}" for v in leak[c]) for c in CHAINS)
    return Finding(
        f"bits at limits 1 / 2 / 3 / 4: {text}. Every point is within {max(gaps):.3f} bits of its proved bound.",
        "yes" if order and inside else "no",
        f"Myopic lies at most {max(over.values()):.3f} bits above the optimum (Q0: {over['q0']:.3f}). "
        "Ours are steady-state rates, the paper's are means of 300 steps from a uniform start.",
    )


def draw(found: dict[tuple[str, int, str], Solution]) -> Figure:
    figure = Figure(figsize=(7.5, 5), layout="constrained")
    ax = figure.subplots()
    for chain, colour in CHAINS.items():
        ours = [found[chain, k, "causal-ba"] for k in LIMITS]
        high = [s.leakage for s in ours]
        ax.fill_between(LIMITS, [s.leakage_lower or 0 for s in ours], high, color=colour, alpha=0.25, lw=0)
        ax.plot(LIMITS, high, "o-", color=colour, label=f"{chain.upper()}: {STYLES['causal-ba'][2]}, certified band")
        near = [found[chain, k, "myopic"].leakage for k in LIMITS]
        ax.plot(LIMITS, near, "x--", color=colour, alpha=0.8, markersize=8, label=f"{chain.upper()}: myopic")
        greedy = found[chain, 2, "belief-greedy"]
        ax.errorbar([2.06], [greedy.leakage], [1.96 * greedy.leakage_se], fmt="^", color=colour, capsize=3,
                    label=f"{chain.upper()}: belief-greedy, 95 %")  # fmt: skip
    ax.set(xlabel="Manhattan distance allowed at every step (cells)", ylabel="leakage (bits per step)", ylim=(0, None))
    ax.set_xticks(LIMITS)
    ax.set_title("A limit at every step on the 4x4 grid", loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8.5)
    return figure


ITEM = Item(
    "fig-idc",
    "Leakage against the limit at every step (4x4 grid)",
    "The leakage grows from Q2 over Q1 to Q0 at every limit: the better the next step can be foretold, the less leaks.",
    make,
)
