"""`veil curve`: the trade-off between utility and privacy."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilstream.apps.cli.common import grouped, print_whole
from veilstream.apps.cli.meaning import Meaning
from veilstream.errors import InputError

if TYPE_CHECKING:
    from veilstream.control.policy import Policy
    from veilstream.data.utility import Utility

EXAMPLES = """
Examples:

  veil curve builtin:grid4x4-q2 --plot curve.png

  veil curve me.veil --methods causal-ba,myopic,planar-laplace --plot curve.svg

  veil curve me.veil --certify --seconds 120 --json

  veil curve meter.veil --distortion squared --show states
"""


@grouped
def curve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, or builtin:NAME.")],
    meaning: Meaning,
    methods: Annotated[str, typer.Option(help="Separated by commas.")] = "causal-ba,myopic,planar-laplace",
    points: Annotated[int, typer.Option(help="Weights on the curve.", min=2, max=200)] = 24,
    plot: Annotated[Path | None, typer.Option(help="Write a picture (.png, .svg or .pdf).")] = None,
    certify: Annotated[bool, typer.Option("--certify", help="Prove a lower bound and draw the band.")] = False,
    seconds: Annotated[float, typer.Option(help="Time for the certificates, in all.")] = 60.0,
    seed: Annotated[int, typer.Option(help="For random starts and estimates.", min=0)] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Leakage against distortion, with what cannot be beaten."""
    from veilstream.apps.cli.common import need, print_json, progress_bar
    from veilstream.model.problem import Average
    from veilstream.solvers import curve as run
    from veilstream.solvers import default_weights
    from veilstream.solvers.baselines import SHAPES, Baseline

    asked = [m.strip() for m in methods.split(",") if m.strip()]
    if not asked:
        raise InputError("--methods names none; give some, as in causal-ba,planar-laplace")
    source, _ = meaning.read(model)
    problem = source.problem(Average(weight=1.0))
    weights = default_weights(problem, points)
    curves, families = {}, {}
    with progress_bar("curve", quiet=json_out) as progress:
        for method in asked:
            if method in SHAPES:
                families[method] = Baseline(method, seed=seed).family(problem, progress)
            else:
                curves[method] = run(problem, weights, method, seed=seed, progress=progress)
        if certify and "causal-ba" in curves:
            from veilstream.solvers.bounds import certify_curve

            curves["causal-ba"] = certify_curve(curves["causal-ba"], seconds, progress)
    if plot is not None:
        need("matplotlib", "plot")
        from veilstream.apps.report.plots import save_figure, trade_off

        save_figure(trade_off(curves, families, source.unit, problem), plot)
    if json_out:
        others = {
            name: [
                {"leakage": p.leakage, "leakage_se": p.leakage_se, "distortion": p.distortion} | felt(source, p.policy)
                for p in family
            ]
            for name, family in families.items()
        }
        ours = {m: [s.to_json() | felt(source, s.policy) for s in c] for m, c in curves.items()}
        print_json({"chain": source.chain.name, "unit": source.unit, **ours, **others})
        return
    from rich.table import Table

    unit = source.unit or "units"
    heads = ["lambda", "method", f"distortion ({unit})", "bits per step", "at least"]
    proved = any(s.leakage_lower is not None for solutions in curves.values() for s in solutions)
    heads = heads if proved else heads[:-1]
    table = Table(*heads[:2], *([] if source.course is None else [f"error ({unit})"]), *heads[2:], box=None)
    for method, solutions in curves.items():
        for s in solutions:
            low = "" if s.leakage_lower is None else f"{s.leakage_lower:.4f}"
            far = [f"{v:.4f}" for v in felt(source, s.policy).values()]
            least = [low] if proved else []
            table.add_row(f"{s.weight:.4g}", method, *far, f"{s.distortion:.4f}", f"{s.leakage:.4f}", *least)
    for method, family in families.items():
        for p in family:
            far = [f"{v:.4f}" for v in felt(source, p.policy).values()]
            told = f"{p.leakage:.4f} ± {1.96 * p.leakage_se:.2g}"
            table.add_row("", method, *far, f"{p.distortion:.4f}", told)
    print_whole(table)
    about = ["distortion and bits: in the long run of the chain"]
    about += [] if source.course is None else ["error: from readings to releases, on your recorded data"]
    about += ["at least: for any policy this accurate, proved"] if proved else ["--certify proves how low one can get"]
    print("; ".join(about + ([] if plot is not None else ["--plot curve.png draws it"])))
    if plot is not None:
        print(f"picture written to {plot}")


def felt(source: "Utility", policy: "Policy") -> dict[str, Any]:
    """The mean distance from reading to release, on the record where there is one; the rest is the long run's."""
    return {} if source.course is None else {"raw_distortion": source.course.felt(policy)}
