"""What `veil audit` prints: one table per setting, the learners, the baselines, and the verdict."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from veilstream.audit.measures import NATS, Interval, Measure

if TYPE_CHECKING:
    from veilstream.audit import Audit, Check
    from veilstream.audit.settings import Setting

WHO = {"predictor": "before release", "filter": "at release", "smoother": "whole trace"}
CASE = {"nothing": "  nothing seen", "truth": "  truth seen"}
SETTING = {"chain": "data drawn from the chain", "traces": "recorded traces"}


def show(found: "Audit", result: "Check", words: str) -> None:
    console = Console(highlight=False)
    for setting in found.policy.settings:
        console.print(_exact(setting, found.unit))
        if setting.learned:
            console.print(_learned(setting))
    if found.against:
        console.print(_against(found))
    console.print()
    console.print(escape(words), style="" if result.stands else "bold red")
    console.print(f"[dim]{found.seconds:.0f} s; cross-entropies in nats, brackets are 95 % intervals over traces[/]")


def _exact(setting: "Setting", unit: str) -> Table:
    title = f"Who knows chain and policy, {SETTING[setting.name]}: {setting.traces} traces, {setting.steps:,} steps"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("guessing")
    for name in ("nats", "bits", "top 1", "top 3", f"error {unit}".rstrip(), "found", "home", "work"):
        table.add_column(name, justify="right")
    for who, row in setting.adversaries.items():
        for case, m in row.items():
            label = f"{WHO[who]}" if case == "released" else CASE[case]
            table.add_row(label, *_figures(m), style="bold" if case == "released" else "dim")
    return table


def _figures(m: Measure) -> list[str]:
    bits = m.cross_entropy.value
    shares = [m.top1, m.top3]
    return [
        f"{bits * NATS:.3f}",
        f"{bits:.3f}",
        *(f"{v:.0%}" for v in shares),
        "" if m.error is None else f"{m.error:.3g}",
        *("" if v is None else f"{v:.0%}" for v in (m.recovered, m.home, m.work)),
    ]


def _span(v: Interval | None) -> str:
    return "" if v is None else f"{v.value:.3f} [{v.low:.2f},{v.high:.2f}]"


def _learned(setting: "Setting") -> Table:
    table = Table(title=f"Who learns from examples, {SETTING[setting.name]}, held out", title_justify="left", box=None)
    for name in ("learner", "sees", "nats", "least", "model gap", "top 1"):
        table.add_column(name, justify="left" if name == "learner" else "right", no_wrap=True)
    for one in setting.learned:
        gap = None if one.gap is None else one.gap.scaled(NATS)
        table.add_row(
            one.name,
            "all" if one.lookback is None else str(one.lookback),
            _span(one.cross_entropy.scaled(NATS)),
            "" if one.least is None else f"{one.least * NATS:.3f}",
            _span(gap),
            f"{one.top1:.0%}",
        )
    return table


def _against(found: "Audit") -> Table:
    table = Table(title="At equal mean distortion", title_justify="left", box=None)
    table.add_column("policy")
    for name in ("bits", f"mean {found.unit}", "data", "at release, nats", "top 1", f"error {found.unit}", "learned"):
        table.add_column(name.strip(), justify="right", no_wrap=True)
    for one in (found.policy, *found.against):
        for setting in one.settings:
            m = setting.adversaries["filter"]["released"]
            best = min(setting.on_releases, key=lambda v: v.cross_entropy.value, default=None)
            table.add_row(
                one.name,
                f"{setting.leakage.value:.4f}",
                f"{setting.distortion.value:.2f}",
                setting.name,
                _span(m.cross_entropy.scaled(NATS)),
                f"{m.top1:.0%}",
                "" if m.error is None else f"{m.error:.3g}",
                f"{best.cross_entropy.value * NATS:.3f}" if best else "",
            )
    return table
