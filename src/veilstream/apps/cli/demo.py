"""`veil demo`: the main job, end to end, on an invented city."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilstream.apps.cli.options import Answer
from veilstream.apps.cli.output import Terminal
from veilstream.shown import Progress

if TYPE_CHECKING:
    from veilstream.audit.measures import Guess
    from veilstream.model.chain import MarkovChain
    from veilstream.solvers.solution import Solution

EXAMPLES = """
veil demo
veil demo -o out/demo --seconds 60
"""

LIMITS_KM = (0.25, 0.5, 1.0)
SHOWN_KM = 0.5
DAY_STEPS, WEEK_STEPS = 288, 2016
WEEK = "released-week.csv"
SEED = 0  # of the invented commuter, and of the example day: a seed is for the demo only


@dataclass(frozen=True)
class Row:
    """One accuracy: ours, bits by simulation and their error, planar Laplace, the adversary."""

    limit: float
    ours: Solution
    simulated: tuple[float, float]
    laplace: Solution
    guess: Guess

    @property
    def file(self) -> str:
        return f"policy-{self.limit:g}km.veil"

    @property
    def cells(self) -> list[str]:
        ours, laplace, (bits, bits_se) = self.ours, self.laplace, self.simulated
        return [
            f"{self.limit:g} km",
            f"{ours.leakage:.4f}",
            f"{bits:.4f} ± {1.96 * bits_se:.2g}",
            f"{laplace.leakage:.4f} ± {1.96 * laplace.leakage_se:.2g}",
            f"{laplace.leakage / max(ours.leakage, 1e-9):.1f}",
            f"{100 * self.guess.right:.0f} ± {196 * self.guess.right_se:.0f} %",
        ]


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for what it makes.")] = Path("out/demo"),
    seconds: Annotated[float, typer.Option(help="Time for the certificates, in all.")] = 14.0,
    *,
    progress: Progress | None,
) -> Answer:
    """An invented commuter: model, policies at three accuracies, a week released, an audit, a report to open."""
    from veilstream.apps.report.content import collect
    from veilstream.apps.report.page import render
    from veilstream.apps.specs import ReportSpec
    from veilstream.artefact import provenance, save
    from veilstream.audit.measures import Guess
    from veilstream.audit.source import Recorded
    from veilstream.container import check_writable, write
    from veilstream.control.evaluate import evaluate
    from veilstream.control.release import release_many
    from veilstream.data.synthetic import city
    from veilstream.model.chain import MarkovChain
    from veilstream.model.problem import Average, Problem
    from veilstream.solvers import solve

    report = out / "report.html"
    picture = out / "demo.png" if find_spec("matplotlib") else None  # the page draws for itself
    check_writable(report)
    source, made = city(20_000, SEED), provenance("veil demo", SEED)
    states, parts = source.states, dict[str, Any](states=source.states, period_s=source.period_s)
    chain = MarkovChain.fit([source.path], n_states=len(states), name="a commuter's city")
    save(out / "city.veil", chain=chain, **parts, provenance=made)
    rows, files = [], {}
    for limit in LIMITS_KM:
        problem = Problem(chain, states.distances(), Average(limit=limit))
        ours, laplace = solve(problem, progress=progress, seed=SEED), solve(problem, "planar-laplace", seed=SEED)
        seen, guess = evaluate(problem, ours.policy, seed=SEED), Guess.of(chain, ours.policy, SEED)
        rows.append(row := Row(limit, ours, (seen.leakage, seen.leakage_se), laplace, guess))
        said = made | {"solution": ours.to_json()}
        files[limit] = save(out / row.file, ours.policy, problem=problem, **parts, provenance=said)
    artefact, week = files[SHOWN_KM], source.path[:WEEK_STEPS]
    policy, problem = artefact.answer()
    shown = release_many(policy, week[None], problem, seed=SEED).y[0]  # as the gateway would
    at = zip(source.t_s // source.period_s, shown, states.decode(shown), strict=False)
    lines = [f"{int(t)},{states.names[y]},{lat:.5f},{lon:.5f}" for t, y, (lat, lon) in at]
    (out / WEEK).write_text("\n".join(["step,released,lat,lon", *lines]) + "\n", encoding="utf-8")
    content = collect(artefact, Recorded.symbols(artefact, [week]), ReportSpec(seconds=seconds, seed=SEED), progress)
    write(report, render(content).encode())
    if picture:
        from veilstream.apps.report.plots import demo_figure, save_figure

        points = [(row.limit, row.ours, row.laplace) for row in rows]
        day = week[:DAY_STEPS], shown[:DAY_STEPS]
        save_figure(demo_figure(content, points, day, source.period_s / 3600), picture)
    found = [{**row.ours.to_json(), "guessed": row.guess.right, "guessed_se": row.guess.right_se} for row in rows]
    told = {"picture": picture and str(picture), "report": str(report), "points": found}
    return Answer(told, lambda: show(chain, rows, out, report, picture))


def show(chain: MarkovChain, rows: list[Row], out: Path, report: Path, picture: Path | None) -> None:
    to, first = Terminal(), rows[0]
    to.say(
        f"[bold]An invented commuter with {chain.n_symbols} places, one step every 5 minutes.[/] "
        f"Sharing the truth reveals {chain.entropy_rate:.3f} bits a step."
    )
    head = ("error", "ours leaks", "simulated", "planar Laplace", "times more", "identified")
    to.table([row.cells for row in rows], head)
    to.say(
        "[dim]error: at most this many km on average; bits per step, ours computed exactly for the fitted chain; "
        "identified: how often an adversary who knows chain and policy identifies the place (without any release in "
        f"{100 * first.guess.blind:.0f} %); estimates have 95 % intervals[/]"
    )
    drawn = f"the picture is {picture}" if picture else "no picture: pip install 'veilstream[plot]'"
    to.say(f"\nOpen [bold]{{}}[/] in a browser; {{}}; a released week {{}}/{WEEK}", report, drawn, out)
    to.say("Then try:")
    for line in (
        f"solve {out / 'city.veil'} --avg 500m --certify",
        f"report {out / first.file} --shareable -o shareable.html",
        "fit YOUR_FILES -o me.veil --plot me.png",
    ):
        to.say("  {} {}", typed(), line, whole=True)


def typed() -> str:
    """The command as it can be typed here: after `make demo` it is not on the path."""
    return "veil" if which("veil") else sys.argv[0]
