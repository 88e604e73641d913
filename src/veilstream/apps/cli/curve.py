"""`veil curve`: the trade-off between utility and privacy."""

from pathlib import Path
from typing import Annotated, Any

import typer

from veilstream.apps.cli.options import Answer, Flags
from veilstream.apps.cli.output import Terminal
from veilstream.apps.specs import Meaning
from veilstream.errors import InputError, need
from veilstream.shown import Progress

EXAMPLES = """
veil curve builtin:grid4x4-q2 --plot curve.png
veil curve me.veil --methods causal-ba,myopic,planar-laplace --plot curve.svg
veil curve me.veil --certify --seconds 120 --json
veil curve meter.veil --distortion squared --show states
"""
METHODS = "causal-ba,myopic,planar-laplace"


def curve(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file, or builtin:NAME.")],
    meaning: Annotated[Meaning, Flags("distortion", "show")],
    methods: Annotated[str, typer.Option(help="Methods to draw, separated by commas.")] = METHODS,
    points: Annotated[int, typer.Option(help="Number of weights on the curve.", min=2, max=200)] = 24,
    plot: Annotated[Path | None, typer.Option(help="Write a picture (.png, .svg or .pdf).")] = None,
    certify: Annotated[bool, typer.Option("--certify", help="Prove a lower bound and draw the band.")] = False,
    seconds: Annotated[float, typer.Option(help="Time for the certificates, in all.")] = 60.0,
    *,
    progress: Progress | None,
) -> Answer:
    """Leakage against distortion, and with --certify the bound that no method can beat."""
    from veilstream.model.problem import Average
    from veilstream.solvers import curve as run
    from veilstream.solvers import default_weights
    from veilstream.solvers.api import utility_of
    from veilstream.solvers.baselines import SHAPES, Baseline

    asked = [m.strip() for m in methods.split(",") if m.strip()]
    if not asked:
        raise InputError("--methods is empty; name at least one, as in causal-ba,planar-laplace")
    source, _ = utility_of(model, meaning.distortion, 1.0, meaning.show)
    problem, replay = source.problem(Average(weight=1.0)), source.replay
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

    def felt(policy: Any) -> dict[str, float]:
        """The mean distance from reading to release, on the record where there is one; the rest is the long run's."""
        return {} if replay is None else {"raw_distortion": replay.error(policy)}

    told: dict[str, Any] = {"chain": source.chain.name, "unit": source.unit}
    told |= {m: [s.to_json() | felt(s.policy) for s in found] for m, found in curves.items()}
    for m, family in families.items():
        own = ("leakage", "leakage_se", "distortion")
        told[m] = [{k: getattr(p, k) for k in own} | felt(p.policy) for p in family]

    def show() -> None:
        proved = any(s.leakage_lower is not None for found in curves.values() for s in found)
        first = ["raw_distortion"] * (replay is not None) + ["distortion"]
        rows = []
        for m in (*curves, *families):
            for p in told[m]:
                weight, low = p.get("weight"), p.get("leakage_lower")
                bits = f"{p['leakage']:.4f}" + (f" ± {1.96 * p['leakage_se']:.2g}" if m in families else "")
                least = [] if not proved or m in families else ["" if low is None else f"{low:.4f}"]
                rows.append(
                    ("" if weight is None else f"{weight:.4g}", m, *(f"{p[k]:.4f}" for k in first), bits, *least)
                )
        unit = source.unit or "units"
        heads = ["lambda", "method", *([] if replay is None else [f"error ({unit})"])]
        Terminal().table(rows, [*heads, f"distortion ({unit})", "bits per step", *(["at least"] if proved else [])])
        about = ["distortion and bits: in the long run of the chain"]
        about += [] if replay is None else ["error: from readings to releases, on your recorded data"]
        about += [
            "at least: for any policy this accurate, proved" if proved else "--certify proves how low one can get"
        ]
        print("; ".join(about + ([] if plot is not None else ["--plot curve.png draws it"])))
        if plot is not None:
            print(f"picture written to {plot}")

    return Answer(told, show)
