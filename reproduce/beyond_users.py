"""Beyond the paper: the same on the other GeoLife users there are."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from reproduce.beyond import HEAD, SHARES, Equal, at_equal_distortion, blind, curves, row
from reproduce.geolife import model_of, users
from reproduce.item import Desk, Finding, Item
from reproduce.points import solved
from veilstream.apps.report.plots import draw_trade_off
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.problem import Instantaneous, Problem
from veilstream.solvers.solution import Point, Solution

MOST = 4  # users shown
POINTS = 8
LIMITS_KM = (15.0, 5.0, 3.0)  # at every step, as for the paper's user
Panel = tuple[str, Problem, dict[str, list[Solution]], dict[str, list[Point]]]


def make(desk: Desk) -> Finding:
    assert desk.geolife is not None
    panels: list[Panel] = []
    equal: dict[str, list[Equal]] = {}
    told: list[list[object]] = []
    skipped = []
    people = users(desk.geolife)[:MOST]
    for i, user in enumerate(people):
        desk.tell(i / len(people), f"user {user.name}")
        try:
            fitted = model_of(user)
            if len(fitted.states) < 2:
                raise InputError("one stop only")
        except InputError as error:
            skipped.append(f"{user.name} ({error})")
            continue
        chain, d = fitted.chain, fitted.states.distances()
        case = f"user {user.name}, {len(d)} stops"
        problem, both, family = curves(desk, chain, d, POINTS)
        panels.append((case, problem, both, family))
        told += [row(case, s, "km") for line in both.values() for s in line]
        equal[case] = [at_equal_distortion(desk, chain, d, share, certify=True) for share in SHARES]
        told += [r for e in equal[case] for r in e.rows(case, "km")]
        told += [row(case, s, f"km; at most {km:g} km at every step") for km, s in limited(desk, chain, d)]
    desk.table(HEAD, told)
    desk.figure(draw(panels))
    return judge(equal, {case: blind(p.chain, p.distortion) for case, p, _, _ in panels}, skipped)


def limited(desk: Desk, chain: MarkovChain, d: Array) -> list[tuple[float, Solution]]:
    """The optimum under a limit at every step."""
    return [(km, solved(desk, Problem(chain, d, Instantaneous(km)), certify=True)) for km in LIMITS_KM]


def judge(equal: dict[str, list[Equal]], free: dict[str, float], skipped: list[str]) -> Finding:
    parts, wins = [], []
    for case, row_of in equal.items():
        e = row_of[1]
        wins += [x.ours.leakage <= x.laplace.leakage + 1.96 * x.laplace.leakage_se for x in row_of]
        parts.append(
            f"{case}: {e.ours.leakage:.3f} bits (proved at least {e.ours.leakage_lower or 0:.3f}), myopic "
            f"{e.myopic.leakage:.3f}, planar Laplace {e.laplace.leakage:.3f}, {e.ratio:.1f} times as much"
        )
    ratios = [x.ratio for row_of in equal.values() for x in row_of]
    missing = f" Not fitted: {'; '.join(skipped)}." if skipped else ""
    return Finding(
        f"At {SHARES[1]:.0%} of the distortion where nothing need be revealed. {'; '.join(parts)}.{missing}",
        "yes" if all(wins) and len(equal) > 1 else "no" if not all(wins) else "in part",
        f"Over all users and {', '.join(f'{s:.0%}' for s in SHARES)}, planar Laplace leaks {min(ratios):.1f} to "
        f"{max(ratios):.1f} times as much. Nothing need be revealed from "
        f"{', '.join(f'{v:.2f}' for v in free.values())} km on. Fitted the paper's way (5-minute means, 200 m, 8 "
        "points): it drops what is no stop, and some users then hardly move.",
        ran="the exact solver, myopic and planar Laplace for every user; nothing learned.",
    )


def draw(panels: list[Panel]) -> Figure:
    rows = int(np.ceil(len(panels) / 2))
    figure = Figure(figsize=(12, 4.6 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for k, (ax, (case, problem, both, family)) in enumerate(zip(axes, panels, strict=False)):
        draw_trade_off(ax, both, family, "km", problem)
        ax.set_title(case, loc="left", fontsize=11)
        if k:
            ax.get_legend().remove()
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    return figure


ITEM = Item(
    "beyond-users",
    "More GeoLife users: privacy against utility",
    "Does what holds for user 016 hold for others: less leakage than planar Laplace at equal distortion?",
    make,
    needs_geolife=True,
    beyond=True,
)
