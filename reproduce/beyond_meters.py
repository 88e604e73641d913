"""Beyond the paper: smart meters. What a household's consumption leaks, in kWh bins, against planar Laplace."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reproduce.beyond import HEAD, SHARES, Equal, at_equal_distortion, curves, row
from reproduce.item import Desk, Finding, Item
from reproduce.meters import BINS, household, readings
from reproduce.points import solved
from veilstream.apps.report.plots import STYLES, draw_trade_off
from veilstream.errors import InputError
from veilstream.model.problem import Instantaneous, Problem

CERTIFIED = SHARES[1]  # where every household gets a certificate
POINTS = 12
LIMITS_KWH = (0.05, 0.1, 0.2, 0.5)


def make(desk: Desk) -> Finding:
    assert desk.meters is not None
    equal: dict[str, list[Equal]] = {}
    skipped = []
    names = readings(desk.meters).streams
    for i, name in enumerate(names):
        desk.tell(0.8 * i / len(names), name)
        try:
            fitted = household(desk.meters, name)
        except InputError as error:
            skipped.append(f"{name} ({error})")
            continue
        chain, d = fitted.chain, fitted.states.distances()
        equal[name] = [at_equal_distortion(desk, chain, d, share, certify=share == CERTIFIED) for share in SHARES]
    if not equal:
        raise InputError(f"{desk.meters}: no household could be fitted; {skipped[0]}")
    middle = median(equal)
    desk.tell(0.8, f"the curve of {middle}")
    fitted = household(desk.meters, middle)
    chain, d = fitted.chain, fitted.states.distances()
    problem, both, family = curves(desk, chain, d, POINTS)
    limited = [solved(desk, Problem(chain, d, Instantaneous(limit)), certify=True) for limit in LIMITS_KWH]
    told = [r for name, several in equal.items() for e in several for r in e.rows(name, "kWh")]
    told += [row(middle, s, "kWh") for line in both.values() for s in line]
    told += [
        row(middle, s, f"kWh; at most {limit:g} kWh at every step")
        for limit, s in zip(LIMITS_KWH, limited, strict=True)
    ]
    desk.table(HEAD, told)
    figure = Figure(figsize=(12.5, 5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.2, 1])
    draw_trade_off(left, both, family, "kWh per half hour", problem)
    left.set_title(f"{middle}: the household in the middle, {BINS} bins", loc="left", fontsize=11)
    draw_households(right, equal)
    desk.figure(figure)
    return judge(equal, skipped, middle, [s.leakage for s in limited])


def median(equal: dict[str, list[Equal]]) -> str:
    """The household in the middle by leakage at the certified share."""
    ranked = sorted(equal, key=lambda name: equal[name][SHARES.index(CERTIFIED)].ours.leakage)
    return ranked[(len(ranked) - 1) // 2]


def judge(equal: dict[str, list[Equal]], skipped: list[str], middle: str, limited: list[float]) -> Finding:
    at = [several[SHARES.index(CERTIFIED)] for several in equal.values()]
    ours = np.array([e.ours.leakage for e in at])
    ratio = np.array([e.ratio for e in at])
    gaps = np.array([e.ours.leakage - (e.ours.leakage_lower or 0) for e in at])
    near = np.array([e.myopic.leakage / e.ours.leakage for e in at])
    wins = sum(
        e.ours.leakage <= e.laplace.leakage + 1.96 * e.laplace.leakage_se for row_of in equal.values() for e in row_of
    )
    count = sum(map(len, equal.values()))
    missing = f" Not fitted: {'; '.join(skipped)}." if skipped else ""
    every = ", ".join(f"{v:.3f} at {k:g}" for k, v in zip(LIMITS_KWH, limited, strict=True))
    return Finding(
        f"{len(equal)} households, {BINS} bins of equal counts, at {CERTIFIED:.0%} of the distortion where nothing "
        f"need be revealed: {np.median(ours):.3f} bits in the middle ({ours.min():.3f} to {ours.max():.3f}), at most "
        f"{gaps.max():.4f} above the proved bound; planar Laplace leaks {np.median(ratio):.2f} times as much in the "
        f"middle ({ratio.min():.2f} to {ratio.max():.2f}).{missing}",
        "yes" if wins == count else "in part" if wins > count / 2 else "no",
        f"Myopic lies {100 * (np.median(near) - 1):.1f} % above the optimum in the middle. {middle} with a limit at "
        f"every step instead: {every} kWh (bits). A half hour says less about the next than a stop does about the "
        "next five minutes, so there is less to gain than on location traces.",
        ran="the exact solver, myopic and planar Laplace; nothing learned.",
    )


def draw_households(ax: Axes, equal: dict[str, list[Equal]]) -> None:
    """One row per household at the certified share, sorted."""
    k = SHARES.index(CERTIFIED)
    ranked = sorted(equal, key=lambda name: equal[name][k].ours.leakage)
    at = np.arange(len(ranked))
    for method, mark, found in (
        ("causal-ba", "o", [equal[n][k].ours for n in ranked]),
        ("myopic", "x", [equal[n][k].myopic for n in ranked]),
        ("planar-laplace", "s", [equal[n][k].laplace for n in ranked]),
    ):
        colour, _, label = STYLES[method]
        ax.plot([s.leakage for s in found], at, mark, color=colour, label=label, markersize=6)
    ax.hlines(at, [equal[n][k].ours.leakage for n in ranked], [equal[n][k].laplace.leakage for n in ranked],
              color="#cccccc", lw=1, zorder=0)  # fmt: skip
    ax.set_yticks(at, ranked, fontsize=8)
    ax.set(xlabel="leakage (bits per half hour)", xlim=(0, None))
    ax.set_title(f"Every household at {CERTIFIED:.0%} of its blind distortion", loc="left", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9, loc="lower right")


ITEM = Item(
    "beyond-meters",
    "Smart meters: privacy against utility",
    "Does the optimum leak less than planar Laplace at equal distortion for every household, in kWh?",
    make,
    needs_meters=True,
    beyond=True,
)
