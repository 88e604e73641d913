"""(a) Leakage against the limit at every step, 1 to 4, on the 4x4 grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from reproduce.item import NO, YES, Budget, Desk, Finding, Item, too_few
from reproduce.learned import AS_PUBLISHED, called, said, seeds, told_of, trained
from reproduce.learned import METHODS as LEARNED
from reproduce.one_axis import MARKS, draw_method, draw_optimum, legends, panels
from reproduce.points import rolled, solved, today
from veilstream.apps.report.plots import STYLES
from veilstream.control.evaluate import Evaluation
from veilstream.model.builtin import builtin_problem
from veilstream.model.information import Array
from veilstream.model.problem import Instantaneous
from veilstream.solvers.solution import Point, Solution

CHAINS = ("q0", "q1", "q2")
LIMITS = (1, 2, 3, 4)
METHODS = ("causal-ba", "myopic", "belief-greedy")
TODAY = ("planar-laplace", "rounding")  # cut to the limit, in their least leaking setting
BESIDE = {"myopic": -0.09, "belief-greedy": 0.09, "a2c": 0.05, AS_PUBLISHED: 0.05}  # so that all can be seen
PUBLISHED_AT = "q2", 2  # where a2c as published is run without --full
ZERO = 1e-4  # bits
SAME = 0.005  # bits within which computed figures count as equal
Found = dict[tuple[str, int, str], Solution]


def make(desk: Desk) -> Finding:
    found: Found = {}
    used: dict[tuple[str, int, str], Point] = {}
    simulated: dict[tuple[str, int], Evaluation] = {}
    every: dict[tuple[str, int, int], Solution] = {}  # each seed of a2c
    jobs = [(c, limit) for c in CHAINS for limit in LIMITS]
    for i, (chain, limit) in enumerate(jobs):
        problem = builtin_problem(f"grid4x4-{chain}", Instantaneous(limit))
        for method in METHODS:
            desk.tell(i / len(jobs), f"{chain}, limit {limit}, {method}")
            found[chain, limit, method] = solved(desk, problem, method, certify=method == "causal-ba")
        simulated[chain, limit] = rolled(desk, problem, desk.budget.steps, desk.budget.streams)
        for shape in TODAY:
            used[chain, limit, shape] = today(desk, problem, shape)[0]
        desk.tell((i + 0.5) / len(jobs), f"{chain}, limit {limit}, a2c")
        for run, s in enumerate(runs := seeds(desk, problem)):
            every[chain, limit, run] = s
        if runs:
            found[chain, limit, "a2c"] = min(runs, key=lambda s: s.leakage)
        if desk.budget.everywhere or (chain, limit) == PUBLISHED_AT:
            desk.tell((i + 0.7) / len(jobs), f"{chain}, limit {limit}, as published")
            if (published := trained(desk, problem, AS_PUBLISHED)) is not None:
                found[chain, limit, AS_PUBLISHED] = published
    head = ["chain", "limit", "method", "leakage_bits", "standard_error", "lower_bound_bits", "distortion", "level"]
    rows: list[list[object]] = [
        [*at, s.leakage, s.leakage_se, "" if s.leakage_lower is None else s.leakage_lower, s.distortion, s.level]
        for at, s in found.items()
    ]
    for (c, limit), ev in simulated.items():
        how = f"estimated, {ev.streams} roll-outs of {ev.steps}"
        rows.append([c, limit, "causal-ba", ev.leakage, ev.leakage_se, "", ev.distortion, how])
    rows += [[*at, p.leakage, p.leakage_se, "", p.distortion, p.level] for at, p in used.items()]
    rows += [[c, k, f"a2c, seed {run}", *figures_of(s)] for (c, k, run), s in every.items()]
    desk.table(head, rows)
    desk.figure(draw(found, used))
    return replace(judge(found), ran=ran(found, desk.budget), table=shown(found, every))


def figures_of(s: Solution) -> list[object]:
    return [s.leakage, s.leakage_se, "", s.distortion, str(s.level)]


def shown(found: Found, every: dict[tuple[str, int, int], Solution]) -> list[list[str]]:
    """A2C at every point: each seed above the exact solver, and what its drawn rows leak."""
    out = [["chain", "limit", "optimum, bits", "A2C, best seed", "seeds above the optimum", "rows drawn at every step"]]
    for c, k in dict.fromkeys((c, k) for c, k, _ in every):
        best, runs = found[c, k, "causal-ba"].leakage, [s for (d, j, _), s in every.items() if (d, j) == (c, k)]
        off = [f"{100 * (s.leakage / best - 1):.2f} %" if best > ZERO else f"{s.leakage:.4f} bits" for s in runs]
        drawn = min(s.history[-1]["sample_objective"] for s in runs)
        out.append([c.upper(), str(k), f"{best:.4f}", said(found[c, k, "a2c"]), " / ".join(off), f"{drawn:.4f}"])
    return out


def ran(found: Found, budget: Budget) -> str:
    """What was run, at how many of the points."""
    of = len(CHAINS) * len(LIMITS)
    count = {m: sum(at[2] == m for at in found) for m in (*METHODS, *LEARNED, AS_PUBLISHED)}
    exact = f"the exact solver with {budget.certify_s:g} s of certificate a point"
    names = {"causal-ba": exact, **{m: told_of(m, budget) for m in (*LEARNED, AS_PUBLISHED)}}
    return "; ".join(f"{names.get(m, STYLES[m][2])}: {n} of {of} points" for m, n in count.items()) + "."


def judge(found: Found) -> Finding:
    ours = {c: [found[c, limit, "causal-ba"] for limit in LIMITS] for c in CHAINS}
    leak = {c: np.array([s.leakage for s in row]) for c, row in ours.items()}
    order = ordered(leak)
    above = [s.leakage - (s.leakage_lower or 0) for row in ours.values() for s in row]
    inside = not (below := under_the_bound(found))
    over = {c: max(found[c, k, "myopic"].leakage - found[c, k, "causal-ba"].leakage for k in LIMITS) for c in CHAINS}
    equal = abs(over["q0"]) <= SAME
    text = "; ".join(f"{c.upper()}: " + " / ".join(f"{v:.3f}" for v in leak[c]) for c in CHAINS)
    learned = "".join(
        f" {called(m)} at {c.upper()}, limit {k}: {said(s)} (optimum {found[c, k, 'causal-ba'].leakage:.3f})."
        for (c, k, m), s in found.items()
        if m == AS_PUBLISHED and (c, k) == PUBLISHED_AT
    )
    fast = [s.leakage - found[c, k, "causal-ba"].leakage for (c, k, m), s in found.items() if m == "a2c"]
    if fast:
        learned += f" Over its {len(fast)} points A2C leaks {min(fast):.4f} to {max(fast):.4f} bits more."
    if wrong := out_of_order(found):
        learned += f" The least of the better learners is out of order at {', '.join(wrong)}."
    return Finding.judged(
        f"bits at limits 1 / 2 / 3 / 4: {text}. Order Q2 < Q1 < Q0: {'holds' if order else 'does not hold'}. "
        f"Every exact point is within {max(above):.3f} bits of its proved bound; "
        + ("no method is below it." if inside else f"below it: {', '.join(below)}."),
        f"Myopic lies at most {max(over.values()):.3f} bits above the optimum (Q0: {over['q0']:.3f}, "
        f"{'equal' if equal else 'not equal'}).{learned} "
        "Ours are steady-state rates, the paper's are means of 300 steps from a uniform start.",
        published=by_itself(found, (AS_PUBLISHED,), inside),
        better=by_itself(found, LEARNED, inside),
        optimum=YES if order and inside and equal else NO,
    )


def ordered(leak: dict[str, Array]) -> bool:
    """Q2 <= Q1 <= Q0 at every limit."""
    return bool((leak["q2"] <= leak["q1"] + SAME).all() and (leak["q1"] <= leak["q0"] + SAME).all())


def by_itself(found: Found, methods: tuple[str, ...], inside: bool) -> str:
    """The same of learned methods, the best of them at each point; they must have been run at every one."""
    least = least_of(found, methods)
    if len(least) < len(CHAINS) * len(LIMITS):
        return too_few(len(least), len(CHAINS) * len(LIMITS))
    return YES if inside and ordered({c: np.array([least[c, k] for k in LIMITS]) for c in CHAINS}) else NO


def least_of(found: Found, methods: tuple[str, ...]) -> dict[tuple[str, int], float]:
    """The least leakage at each point where one of the methods was run."""
    out: dict[tuple[str, int], float] = {}
    for (c, k, m), s in found.items():
        if m in methods:
            out[c, k] = min(s.leakage, out.get((c, k), s.leakage))
    return out


def out_of_order(found: Found) -> list[str]:
    """Limits at which the better learners leak more for a chain that is easier to foretell, and their bits."""
    least = least_of(found, LEARNED)
    rows = {k: [least[c, k] for c in CHAINS] for k in LIMITS if all((c, k) in least for c in CHAINS)}
    return [
        f"limit {k} ({', '.join(f'{c.upper()} {v:.3f}' for c, v in zip(CHAINS, row, strict=True))})"
        for k, row in rows.items()
        if not ordered({c: np.array([v]) for c, v in zip(CHAINS, row, strict=True)})
    ]


def under_the_bound(found: Found) -> list[str]:
    """Points below what was proved for that chain and limit, beyond their intervals: there must be none."""
    return [
        f"{c.upper()} {k} {m}"
        for (c, k, m), s in found.items()
        if s.leakage + 3 * s.leakage_se < (found[c, k, "causal-ba"].leakage_lower or 0) - 1e-9
    ]


def draw(found: Found, used: dict[tuple[str, int, str], Point]) -> Figure:
    figure, top, bottom = panels(
        "4x4 grid, a limit at every step; rows for x_t (singles), bits (log2)",
        "Manhattan distance allowed at every step",
    )
    drawn = dict.fromkeys(m for _, _, m in (*found, *used) if m in MARKS)
    for shift, chain in zip((-0.02, 0.0, 0.02), CHAINS, strict=True):
        ours = [found[chain, k, "causal-ba"] for k in LIMITS]
        low = {k: s.leakage_lower or 0 for k, s in zip(LIMITS, ours, strict=True)}
        draw_optimum(top, bottom, chain, LIMITS, np.array([s.leakage for s in ours]), np.array(list(low.values())))
        for method in drawn:
            points = {k: s for (c, k, m), s in (found | used).items() if (c, m) == (chain, method)}
            at = [k + shift + BESIDE.get(method, 0.0) for k in points]
            draw_method(top, bottom, chain, method, at, [s.leakage for s in points.values()], [low[k] for k in points])
    top.set_xticks(LIMITS)
    top.set(ylim=(-0.05, None), xlim=(0.8, 4.2))
    within = {m: f"{STYLES[m][2]}, within the limit" for m in TODAY}
    legends(top, "PDRP-IDC", list(drawn), within)
    return figure


ITEM = Item(
    "fig-idc",
    "Leakage against the limit at every step (4x4 grid)",
    "The leakage grows from Q2 over Q1 to Q0 at every limit: the better the next step can be foretold, the less leaks.",
    make,
)
