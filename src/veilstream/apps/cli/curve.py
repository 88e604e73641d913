"""`veil curve`: the trade-off between utility and privacy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import print_whole, table
from veilstream.apps.specs import Meaning
from veilstream.errors import InputError, need
from veilstream.shown import Progress

if TYPE_CHECKING:
    from veilstream.control.policy import Policy
    from veilstream.data.utility import Utility
    from veilstream.solvers.solution import Point, Solution

EXAMPLES = """
Examples:

  veil curve builtin:grid4x4-q2 --plot curve.png

  veil curve me.veil --methods causal-ba,myopic,planar-laplace --plot curve.svg

  veil curve me.veil --certify --seconds 120 --json

  veil curve meter.veil --distortion squared --show states
"""


def curve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, or builtin:NAME.")],
    meaning: Annotated[Meaning, Flags("distortion", "show")],
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = "causal-ba,myopic,planar-laplace",
    points: Annotated[int, typer.Option(help="Weights on the curve.", min=2, max=200)] = 24,
    plot: Annotated[Path | None, typer.Option(help="Write a picture (.png, .svg or .pdf).")] = None,
    certify: Annotated[bool, typer.Option("--certify", help="Prove a lower bound and draw the band.")] = False,
    seconds: Annotated[float, typer.Option(help="Time for the certificates, in all.")] = 60.0,
    *,
    progress: Progress | None,
) -> Answer:
    """Leakage against distortion, with what cannot be beaten."""
    from veilstream.model.problem import Average
    from veilstream.solvers import curve as run
    from veilstream.solvers import default_weights
    from veilstream.solvers.api import utility_of
    from veilstream.solvers.baselines import SHAPES, Baseline

    asked = [m.strip() for m in methods.split(",") if m.strip()]
    if not asked:
        raise InputError("--methods is empty; name at least one, as in causal-ba,planar-laplace")
    source, _ = utility_of(model, meaning.distortion, 1.0, meaning.show)
    problem = source.problem(Average(weight=1.0))
    weights = default_weights(problem, points)
    curves = {m: run(problem, weights, m, progress=progress) for m in asked if m not in SHAPES}
    families = {m: Baseline(m).family(problem, progress) for m in asked if m in SHAPES}
    if certify and "causal-ba" in curves:
        from veilstream.solvers.bounds import certify_curve

        curves["causal-ba"] = certify_curve(curves["causal-ba"], seconds, progress)
    if plot is not None:
        need("matplotlib", "plot")
        from veilstream.apps.report.plots import save_figure, trade_off

        save_figure(trade_off(curves, families, source.unit, problem), plot)
    ours = {m: [s.to_json() | felt(source, s.policy) for s in c] for m, c in curves.items()}
    others = {
        m: [
            {k: getattr(p, k) for k in ("leakage", "leakage_se", "distortion")} | felt(source, p.policy) for p in family
        ]
        for m, family in families.items()
    }
    told = {"chain": source.chain.name, "unit": source.unit, **ours, **others}
    return Answer(told, lambda: show(source, curves, families, plot))


def show(
    source: Utility, curves: dict[str, list[Solution]], families: dict[str, list[Point]], plot: Path | None
) -> None:
    unit, rows = source.unit or "units", []
    proved = any(s.leakage_lower is not None for solutions in curves.values() for s in solutions)
    for method, solutions in curves.items():
        for s in solutions:
            low = [] if not proved else ["" if s.leakage_lower is None else f"{s.leakage_lower:.4f}"]
            far = [*felt(source, s.policy).values(), s.distortion, s.leakage]
            rows.append((f"{s.weight:.4g}", method, *(f"{v:.4f}" for v in far), *low))
    for method, family in families.items():
        for p in family:
            far = [*felt(source, p.policy).values(), p.distortion]
            rows.append(("", method, *(f"{v:.4f}" for v in far), f"{p.leakage:.4f} ± {1.96 * p.leakage_se:.2g}"))
    heads = ["lambda", "method", *([] if source.replay is None else [f"error ({unit})"])]
    heads += [f"distortion ({unit})", "bits per step", *(["at least"] if proved else [])]
    print_whole(table(rows, heads))
    about = ["distortion and bits: in the long run of the chain"]
    about += [] if source.replay is None else ["error: from readings to releases, on your recorded data"]
    about += ["at least: for any policy this accurate, proved"] if proved else ["--certify proves how low one can get"]
    print("; ".join(about + ([] if plot is not None else ["--plot curve.png draws it"])))
    if plot is not None:
        print(f"picture written to {plot}")


def felt(source: Utility, policy: Policy) -> dict[str, Any]:
    """The mean distance from reading to release, on the record where there is one; the rest is the long run's."""
    return {} if source.replay is None else {"raw_distortion": source.replay.error(policy)}
