"""(f) GeoLife user 016: privacy against utility, for a limit at every step and on average."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veilstream.evaluate import Evaluation, evaluate
from veilstream.paper.geolife import WHY, model
from veilstream.paper.item import Desk, Finding, Item
from veilstream.paper.learned import a2c
from veilstream.problem import Average, Instantaneous, Problem
from veilstream.report.plots import STYLES, draw_trade_off
from veilstream.solvers import curve, default_weights, solve
from veilstream.solvers.bounds import certify_curve
from veilstream.solvers.solution import Point, Solution
from veilstream.solvers.today import Today

LIMITS_KM = (1.0, 2.0, 3.0, 5.0, 8.0, 15.0)
LEARNED_KM = 5.0  # where a2c is run
SAME_LEVEL = 0.2  # relative
PAPER_IDC = {15.0: 0.18, 5.0: 0.39, 3.0: 0.53}  # km at every step: bits
PAPER_ADC = {9.0: 0.11, 5.7: 0.20, 1.7: 0.35}  # km on average: bits
PAPER_MYOPIC = {9.0: 0.27, 5.7: 0.33, 1.7: 0.50}
STEPS, ROLL_OUTS = 600, 1000
Limits = dict[float, tuple[Solution, Evaluation | None]]


def make(desk: Desk) -> Finding:
    assert desk.geolife is not None
    desk.tell(0.0, "fitting")
    fitted = model(desk.geolife)
    chain, d, seed = fitted.chain, fitted.states.distances(), desk.budget.seed
    limits: Limits = {}
    for i, km in enumerate(LIMITS_KM):
        desk.tell(0.1 + 0.5 * i / len(LIMITS_KM), f"{km:g} km at every step")
        problem = Problem(chain, d, Instantaneous(km))
        s = solve(problem, certify=True, certify_seconds=desk.budget.certify_s, seed=seed)
        # the paper's own measure, at its own limits
        rolled = evaluate(problem, s.policy, STEPS, ROLL_OUTS, seed=seed) if km in PAPER_IDC else None
        limits[km] = s, rolled
    desk.tell(0.55, "a2c")
    learned = a2c(Problem(chain, d, Instantaneous(LEARNED_KM)), desk.budget)
    desk.tell(0.6, "on average")
    problem = Problem(chain, d, Average(weight=1.0))
    weights = default_weights(problem, 16)
    ours = certify_curve(curve(problem, weights, seed=seed), desk.budget.certify_s * len(weights))
    curves = {"causal-ba": ours, "myopic": curve(problem, weights, "myopic", seed=seed)}
    family = Today("planar-laplace", settings=14, seed=seed).family(problem)
    desk.table(
        [
            "constraint",
            "method",
            "limit_km",
            "distortion_km",
            "leakage_bits",
            "standard_error",
            "lower_bound_bits",
            "level",
        ],
        rows(limits, learned, curves, family),
    )
    desk.figure(draw(problem, limits, learned, curves, family))
    return judge(problem, limits, learned)


def rows(
    limits: Limits, learned: Solution | None, curves: dict[str, list[Solution]], family: list[Point]
) -> list[list[object]]:
    out: list[list[object]] = []
    for km, (s, ev) in limits.items():
        low = "" if s.leakage_lower is None else s.leakage_lower
        out.append(["IDC", "causal-ba", km, s.distortion, s.leakage, s.leakage_se, low, str(s.level)])
        if ev is not None:
            how = f"estimated, {ev.streams} roll-outs of {ev.steps}"
            out.append(["IDC", "causal-ba", km, ev.distortion, ev.leakage, ev.leakage_se, low, how])
    if learned is not None:
        s = learned
        out.append(["IDC", "a2c", LEARNED_KM, s.distortion, s.leakage, s.leakage_se, "", str(s.level)])
    for method, solutions in curves.items():
        for s in solutions:
            low = "" if s.leakage_lower is None else s.leakage_lower
            out.append(["ADC", method, "", s.distortion, s.leakage, s.leakage_se, low, str(s.level)])
    out += [["ADC", "planar-laplace", "", p.distortion, p.leakage, p.leakage_se, "", str(p.level)] for p in family]
    for name, told in (("IDC", PAPER_IDC), ("ADC", PAPER_ADC), ("ADC myopic", PAPER_MYOPIC)):
        out += [
            [name, "the paper's table", km, km if name != "IDC" else "", bits, "", "", "stated"]
            for km, bits in told.items()
        ]
    return out


def judge(problem: Problem, limits: Limits, learned: Solution | None) -> Finding:
    blind = float((problem.chain.stationary @ problem.distortion).min())
    parts = []
    for km, told in PAPER_IDC.items():
        s, ev = limits[km]
        assert ev is not None
        parts.append(
            f"{km:g} km: {ev.leakage:.3f} ± {1.96 * ev.leakage_se:.3f} "
            f"(proved at least {s.leakage_lower or 0:.3f}; paper {told})"
        )
    also = ""
    if learned is not None:
        points = "; a part of the difference must lie in the data" if learned.leakage < PAPER_IDC[LEARNED_KM] else ""
        also = (
            f"A2C, trained briefly on our chain, leaks {learned.leakage:.3f} ± {1.96 * learned.leakage_se:.3f} at "
            f"{LEARNED_KM:g} km (optimum {limits[LEARNED_KM][0].leakage:.3f}, paper {PAPER_IDC[LEARNED_KM]}){points}. "
        )
    leaks = [limits[km][0].leakage for km in sorted(PAPER_IDC)]
    order = leaks == sorted(leaks, reverse=True)
    level = all(abs(limits[km][0].leakage / told - 1) < SAME_LEVEL for km, told in PAPER_IDC.items())
    return Finding(
        f"Limit at every step, bits per step over {STEPS} steps and {ROLL_OUTS} roll-outs: {'; '.join(parts)}. "
        f"On average: above {blind:.2f} km nothing need be revealed (always the commonest stop).",
        "yes" if order and level else "in part" if order else "no",
        f"The order is {'' if order else 'not '}the paper's (a wider limit leaks less); the level is "
        f"{'the same' if level else 'another, though both columns speak of the same limits'}. "
        f"{also}{WHY}",
    )


def draw(
    problem: Problem,
    limits: Limits,
    learned: Solution | None,
    curves: dict[str, list[Solution]],
    family: list[Point],
) -> Figure:
    figure = Figure(figsize=(13, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_limits(left, limits, learned)
    draw_trade_off(right, curves, {"planar-laplace": family}, "km", problem)
    right.plot([1.7], [PAPER_ADC[1.7]], "v", color="#000000", label="the paper's proposed (1.7 km)")
    right.plot([1.7], [PAPER_MYOPIC[1.7]], "v", color="#000000", fillstyle="none", label="the paper's myopic (1.7 km)")
    right.legend(frameon=False, fontsize=8.5, loc="upper right", bbox_to_anchor=(1, 0.84))
    right.set_title("A limit on average", loc="left", fontsize=11)
    figure.suptitle(f"GeoLife user 016: {problem.n_outputs} stops, steps of 5 minutes", fontsize=12)
    return figure


def draw_limits(ax: Axes, limits: Limits, learned: Solution | None) -> None:
    colour, _, label = STYLES["causal-ba"]
    ours = [s for s, _ in limits.values()]
    ax.fill_between(
        LIMITS_KM, [s.leakage_lower or 0 for s in ours], [s.leakage for s in ours], color=colour, alpha=0.2, lw=0
    )
    ax.plot(LIMITS_KM, [s.leakage for s in ours], "o-", color=colour, label=f"{label}, certified band")
    if learned is not None:
        ax.plot(
            [LEARNED_KM], [learned.leakage], "*", color=STYLES["a2c"][0], markersize=13, label="A2C, trained briefly"
        )
    ax.plot(list(PAPER_IDC), list(PAPER_IDC.values()), "v", color="#000000", label="the paper's table")
    ax.set(
        xlabel="distance allowed at every step (km)", ylabel="leakage (bits per step)", ylim=(0, 0.6), xlim=(0, 15.5)
    )
    ax.set_title("A limit at every step", loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9)


ITEM = Item(
    "fig-geolife",
    "GeoLife user 016: privacy against utility",
    "With 16 stops: 0.18 / 0.39 / 0.53 bits at 15 / 5 / 3 km at every step; 0.11 / 0.20 / 0.35 at 9 / 5.7 / 1.7 km on "
    "average, where the myopic policy leaks 0.27 / 0.33 / 0.50.",
    make,
    needs_geolife=True,
)
