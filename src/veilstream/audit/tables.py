"""An audit as tables of words and figures, for a terminal or a page alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veilstream.audit.audiences import Audiences
from veilstream.audit.judge import Judged, Judgement
from veilstream.audit.measures import NATS, Measure, Setting
from veilstream.audit.verdict import Assessment, pm
from veilstream.model.interval import Interval

WHO = {"predictor": "before release", "filter": "at release", "smoother": "whole trace"}
CASE = {"nothing": "nothing seen", "truth": "truth seen"}
SETTING = {"chain": "data drawn from the chain", "traces": "all the data given"}
LEGEND = (
    "Cross-entropy in nats and bits: more is more private. Top 1, top 3: how often the true state is the adversary's "
    "first guess, or among the first three. Found: share of a whole trace recovered afterwards. Home, work (1st, "
    "2nd): of the time at the most and second most visited state. Brackets are 95 % intervals over traces."
)


@dataclass(frozen=True)
class Sheet:
    """One table; a row is its cells and whether it is about the releases themselves."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[tuple[str, ...], bool]]


def sheets(found: Assessment) -> list[Sheet]:
    """The exact adversaries and the learners, setting by setting, then the baselines."""
    out = []
    for setting in found.policy.settings:
        out.append(_exact(setting, found.unit))
        if setting.learned:
            out.append(_learned(setting))
    return [*out, _against(found)] if found.against else out


def _exact(setting: Setting, unit: str) -> Sheet:
    title = f"Who knows chain and policy, {SETTING[setting.name]}: {setting.size}"
    most = ("home", "work") if unit == "km" else ("1st", "2nd")
    head = ("guessing", "nats", "bits", "top 1", "top 3", f"error {unit}".rstrip(), "found", *most)
    rows = []
    for who, row in setting.adversaries.items():
        for case, m in row.items():
            label = WHO[who] if case == "released" else f"  {CASE[case]}"
            rows.append(((label, *_figures(m)), case == "released"))
    return Sheet(title, head, rows)


def _figures(m: Measure) -> list[str]:
    bits, error = m.cross_entropy.value, "" if m.error is None else f"{m.error:.3g}"
    found = ["" if v is None else f"{v:.0%}" for v in (m.top1, m.top3, m.recovered, m.home, m.work)]
    return [f"{bits * NATS:.3f}", f"{bits:.3f}", *found[:2], error, *found[2:]]


def _span(v: Interval | None) -> str:
    return "" if v is None else f"{v.value:.3f} [{v.low:.2f},{v.high:.2f}]"


def _learned(setting: Setting) -> Sheet:
    rows = []
    for one in setting.learned:
        gap = None if one.gap is None else one.gap.scaled(NATS)
        cells = (
            one.name,
            "all" if one.lookback is None else str(one.lookback),
            _span(one.cross_entropy.scaled(NATS)),
            "" if one.least is None else f"{one.least * NATS:.3f}",
            _span(gap),
            f"{one.top1:.0%}",
        )
        rows.append((cells, one.name == "LSTM"))
    title = f"Who learns from examples, {SETTING[setting.name]}, held out"
    head = ("learner", "sees", "nats", "least", "model gap", "top 1")
    told = [any(cells[i] for cells, _ in rows) for i in range(len(head))]  # a column with nothing in it is left out
    return Sheet(title, _kept(head, told), [(_kept(cells, told), own) for cells, own in rows])


def _kept(cells: tuple[str, ...], told: list[bool]) -> tuple[str, ...]:
    return tuple(cell for cell, any_ in zip(cells, told, strict=True) if any_)


def _against(found: Assessment) -> Sheet:
    unit = found.unit
    far = f"release error {found.cost_unit}".strip()
    head = ["policy", "bits", far, "data", "at release, nats", "top 1", f"error {unit}"]
    if any(s.on_releases for s in found.policy.settings):
        head.append("learned")
    rows = []
    for one in (found.policy, *found.against):
        for setting in one.settings:
            m = setting.adversaries["filter"]["released"]
            best = min(setting.on_releases, key=lambda v: v.cross_entropy.value, default=None)
            cells = (
                one.name,
                "" if one.leakage is None else f"{one.leakage:.4f}",
                f"{one.distortion:.3g}",
                setting.name,
                _span(m.cross_entropy.scaled(NATS)),
                f"{m.top1:.0%}",
                "" if m.error is None else f"{m.error:.3g}",
                f"{best.cross_entropy.value * NATS:.3f}" if best else "",
            )
            rows.append((cells[: len(head)], one is found.policy))
    return Sheet(
        "At equal error: bits and error in the long run, then what the adversary gets",
        tuple(h.strip() for h in head),
        rows,
    )


# --- several audiences ---------------------------------------------------------------------------------------

WHO_SEES = (
    "Bits: per step, in the long run of the fitted chain and as measured on the data of the table, with 95 % intervals "
    "over traces; audience 1 sees the finest releases, each next one those made behind them; for a coarser one the "
    "long run's is what its releases say of the finer ones, an upper bound. "
    "Identified: the exact adversary's first guess at release is right; off: its best guess, from the true state."
)


def audiences(found: Audiences) -> list[Sheet]:
    """Every onlooker, on each body of data."""
    unit = found.unit
    head = ("who sees", "error", "bits", "measured", "identified", f"off {unit}".rstrip(), "level")
    out = []
    for name, size in found.sizes.items():
        rows = []
        for row in found.rows:
            seen = row.learnt[name]
            cells = (
                row.name,
                "" if row.error is None else f"{row.error:.3g} {row.unit}".rstrip(),
                "" if row.leakage is None else f"{row.leakage:.4f}",
                pm(seen.bits),
                f"{seen.guess.top1:.0%}",
                "" if seen.guess.error is None else f"{seen.guess.error:.3g}",
                row.level,
            )
            rows.append((cells, row.error is not None))
        out.append(Sheet(f"Who learns what, {SETTING[name]}: {size}", head, rows))
    late = [row for row in found.rows if row.now]
    each = [((name, *(pm(row.now[k]) for row in late)), True) for k, name in enumerate(found.delays)]
    title = "Bits about now, by how late releases come (data drawn from the chain)"
    return [*out, Sheet(title, ("late by", *(row.name for row in late)), each)]


# --- mechanisms of others ----------------------------------------------------------------------------------

JUDGED = (
    "Bits: per step, of the whole trace. Ours: the policy of veil solve at the same mean error, which may show the "
    "same points. Floor: no mechanism of that error can reveal less (proved). Identified: the first guess is right. "
    "Guess off: expected estimation error, by the releases so far. Epsilon: of one release, and of one state under "
    "the chain, in nats."
)


def judged(found: Judgement) -> Sheet:
    """Mechanisms side by side."""
    unit = found.unit
    head = (
        "mechanism",
        f"error {unit}".rstrip(),
        "bits",
        "ours",
        "floor",
        "identified",
        "ours",
        "guess off",
        "ours",
        "epsilon",
    )
    return Sheet(
        f"{found.name}: {found.truth:.3g} bits per step if nothing were hidden",
        head,
        [(_judged(row), True) for row in found.rows],
    )


def _judged(row: Judged) -> tuple[str, ...]:
    f, best = row.figures, row.ours
    epsilon = "" if row.epsilon is None else f"{row.epsilon.step:.3g}, {row.epsilon.event:.3g}"
    return (
        row.label,
        f"{row.error.value:.3g}",
        f"{row.leakage.value:.4f}",
        "" if best is None else f"{best.leakage.value:.4f}",
        "" if row.floor is None else f"{row.floor:.4f}",
        f"{f.vulnerability.value:.0%}",
        "" if best is None else f"{best.figures.vulnerability.value:.0%}",
        _far(row),
        "" if best is None else _far(best),
        epsilon.replace("inf", "∞"),
    )


def _far(row: Judged) -> str:
    return "" if row.figures.estimation_error is None else f"{row.figures.estimation_error.value:.3g}"
