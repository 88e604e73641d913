"""What the adversary's tables say and show: the rows for the page and the CSV, verdicts by method, the picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from reproduce.adversary import HELD_OUT, IN_SAMPLE, LOOK_BACKS, NAMES, Row
from reproduce.item import NO, NOT_RUN, PART, YES, Budget, Desk
from reproduce.learned import AS_PUBLISHED


def table(desk: Desk, rows: Sequence[Row]) -> None:
    head = ["policy", "limit_km", "distortion_km", "leakage_bits"]
    head += [f"least_possible_nats_look_back_{m}" for m in LOOK_BACKS]
    for m in LOOK_BACKS:
        for by in HELD_OUT:
            about = f"look_back_{m}_{by}s_held_out"
            head += [f"lstm_nats_{about}", f"low_{about}", f"high_{about}", f"seeds_{about}"]
    head += [f"lstm_nats_look_back_{m}_in_sample" for m in LOOK_BACKS]
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
        line += ["" if (v := r.in_sample(m)) is None else v for m in LOOK_BACKS]
        out.append([*line, *(r.paper or ("", "")), "" if r.paper_bits is None else r.paper_bits])
    desk.table(head, out)


def said(r: Row) -> str:
    """optimum, 5 km, 0.12 bits (paper 0.39): 1.17 [0.84, 1.51] / 1.20 [0.91, 1.51], in sample 1.1 / 0.9 (paper ...)."""
    text = []
    for m in LOOK_BACKS:
        got = r.lstm.get((m, "step"))
        if got is None:
            text.append("not computed" if (v := r.least[m]) is None else f"{v:.2f}")
        else:
            ce = got["cross_entropy"]
            text.append(f"{ce['value']:.2f} [{ce['low']:.2f}, {ce['high']:.2f}]")
    seen = [f"{v:.2f}" for m in LOOK_BACKS if (v := r.in_sample(m)) is not None]
    in_sample = f", in sample {' / '.join(seen)}" if seen else ""
    told = "" if r.paper is None else f" (paper {r.paper[0]:.2f} / {r.paper[1]:.2f})"
    leaks = f", {r.bits:.3f} bits" + ("" if r.paper_bits is None else f" (paper {r.paper_bits:g})")
    where = f", which it does not reach ({r.km:.1f} km)" if r.missed else ""
    return f"{r.name}{where}{leaks}: {' / '.join(text)}{in_sample}{told}"


def shown(rows: Sequence[Row]) -> list[list[str]]:
    """The table of the page: one row a policy, the paper's figures beside ours."""
    each = [f"m = {m}" for m in LOOK_BACKS]
    heads = ["policy", "mean km", "bits", "paper's bits", *(f"held out, {m}" for m in each)]
    heads += [f"in sample, {' / '.join(each)}", f"the paper's, {' / '.join(each)}", "least possible on the chain"]
    out = [heads]
    for r in rows:
        line = [r.name + (" (not reached)" if r.missed else ""), f"{r.km:.2f}", f"{r.bits:.3f}"]
        line.append("" if r.paper_bits is None else f"{r.paper_bits:.2f}")
        for m in LOOK_BACKS:
            ce = r.lstm[m, "step"]["cross_entropy"] if (m, "step") in r.lstm else None
            line.append("" if ce is None else f"{ce['value']:.2f} [{ce['low']:.2f}, {ce['high']:.2f}]")
        for pair in ([r.in_sample(m) for m in LOOK_BACKS], r.paper or (), [r.least[m] for m in LOOK_BACKS]):
            line.append(" / ".join("–" if v is None else f"{v:.2f}" for v in pair) if any(pair) else "")
        out.append(line)
    return out


def how(rows: Sequence[Row]) -> str:
    """What the figures of `shown` are."""
    if not rows[0].lstm:
        return (
            "The table below has the least cross-entropy in nats of any adversary with look-back 1 / 5, computed "
            "exactly for the chain; no LSTM was trained (pip install 'veilstream[deep]')"
        )
    return (
        "The table below has the LSTM's cross-entropy in nats with look-back 1 and 5: steps held out, 95 % over "
        "traces; in sample, one joined trace released once, scored on what it learned from"
    )


def also(rows: Sequence[Row]) -> str:
    """Whole traces held out, and trainings that the clock ended."""
    if not rows[0].lstm:
        return ""
    traces = [(r, got["cross_entropy"]["value"]) for r in rows for (_, by), got in r.lstm.items() if by == "trace"]
    unseen, which = [v for _, v in traces], dict.fromkeys(NAMES[r.method] for r, _ in traces)
    cut = sum(got["stopped_by_the_clock"] for r in rows for got in r.lstm.values())
    seeds = len(next(iter(rows[0].lstm.values()))["per_seed"])
    clock = f"{cut} trainings were ended by the clock. " if cut else ""
    return (
        f"On whole traces never seen it gets {min(unseen):.2f} to {max(unseen):.2f} nats ({', '.join(which)}). "
        f"{seeds} seeds, each holding out another part; in sample one. {clock}The floor in the picture is for the "
        "chain; recorded traces may be easier or harder. "
    )


def off_in_sample(rows: Sequence[Row]) -> str:
    """How far the in-sample figures are from the paper's, on average and at most."""
    off = [abs(v - t) for r in rows if r.paper for m, t in zip(LOOK_BACKS, r.paper, strict=True)
           if (v := r.in_sample(m)) is not None]  # fmt: skip
    return f"{np.mean(off):.2f} on average, {max(off):.2f} at most" if off else "not computed"


def ran(rows: Sequence[Row], budget: Budget) -> str:
    """What was run for a table."""
    there = {m: [r for r in rows if r.method == m] for m in NAMES}
    parts = [f"{NAMES[m]} at {len(row)} limits" for m, row in there.items() if row and m != "truth"]
    text = f"Policies: {', '.join(parts)}. "
    if there[AS_PUBLISHED]:
        text += (
            f"A2C as published: Algorithm 1, {budget.paper_steps:,} updates, width {budget.paper_width}, ReLU, "
            "roll-outs of 600, one seed; sampled actions and their mean are of the same training. "
        )
    else:
        text += "A2C was not run (it needs the extra deep). "
    count = sum(by == IN_SAMPLE for r in rows for _, by in r.lstm)
    return text + (
        f"Adversary: LSTM 200, dropout 0.5, dense 200; {sum(len(r.lstm) for r in rows)} figures, {count} of them in "
        f"sample ({budget.lstm_rounds} rounds of 25 batches of 64)."
        if rows[0].lstm
        else "No LSTM."
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


def idc_verdict(rows: Sequence[Row], truth: Row) -> str:
    """Of one method: the more it leaks, the less it surprises, always above no privacy, and at the paper's level."""
    if not rows:
        return NOT_RUN
    inside, of = covered([truth, *rows])
    if not falling(rows) or not all(above(r, truth) for r in rows):
        return NO
    return YES if inside == of > 0 else PART


def adc_verdict(rows: Sequence[Row], myopic: Sequence[Row]) -> str:
    """Of one method: order as above, less leakage than myopic at the same limits and more surprise, the paper's level.

    Limits that it does not keep are not compared.
    """
    kept = [r for r in rows if not r.missed]
    if not kept:
        return NOT_RUN
    by = {r.limit: r for r in myopic}
    pairs = [(r, by[r.limit]) for r in kept if r.limit in by]
    inside, of = covered([r for r in kept if r.paper])
    if not falling(kept) or not all(a.bits <= b.bits + 1e-6 for a, b in pairs):
        return NO
    return YES if len(kept) == len(rows) and all(above(*p) for p in pairs) and inside == of > 0 else PART


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
        seen = np.array([r.in_sample(m) for r in rows], float)
        ax.plot(seen, y, "x", color=colour, ms=6, label=f"LSTM scored on what it learned from, look-back {m}")
        told = np.array([np.nan if r.paper is None else r.paper[k] for r in rows])
        ax.plot(told, y, mark, color=colour, fillstyle="none", label=f"the paper's LSTM, look-back {m}")
    ax.set_yticks(
        at,
        [f"{r.name}{f', not reached: {r.km:.1f} km' if r.missed else ''} ({r.bits:.3f} bits)" for r in rows],
        fontsize=9,
    )
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
