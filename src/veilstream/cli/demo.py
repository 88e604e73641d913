"""`veil demo`: the main job, end to end, on an invented city."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from veilstream.solvers.solution import Solution

EXAMPLES = """
Examples:

  veil demo

  veil demo -o out/demo --seconds 60
"""

LIMITS_KM = (0.25, 0.5, 1.0)
DAY_STEPS = 288


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for what it makes.")] = Path("out/demo"),
    seconds: Annotated[float, typer.Option(help="Time for the certificates, in all.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Of the invented commuter and the example day.")] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """A commuter's model, policies at three accuracies, what each leaks, and a picture."""
    from rich.console import Console
    from rich.table import Table

    import veilstream as vs
    from veilstream.artefact import provenance, save
    from veilstream.cli.common import need, print_json, progress_bar
    from veilstream.cli.solve import as_json
    from veilstream.data.synthetic import city
    from veilstream.solvers.bounds import certify_curve
    from veilstream.solvers.today import Today

    need("matplotlib", "plot")
    from veilstream.report.plots import demo_figure, save_figure

    source = city(20_000, seed)
    chain = vs.MarkovChain.fit([source.path], n_states=len(source.states.names), name="a commuter's city")
    distances, names = source.states.distances(), tuple(source.states.names)
    with progress_bar("veil demo", quiet=json_out) as progress:
        problem = vs.Problem(chain, distances, vs.Average(weight=1.0))
        curve = certify_curve(vs.curve(problem, progress=progress), seconds, progress)
        families = {name: Today(name, seed=seed).family(problem, progress) for name in ("planar-laplace", "rounding")}
        rows = []
        for limit in LIMITS_KM:
            at = vs.Problem(chain, distances, vs.Average(limit=limit))
            ours = vs.solve(at, progress=progress, seed=seed)
            laplace = vs.solve(at, method="planar-laplace", seed=seed)
            rows.append((limit, ours, vs.evaluate(at, ours.policy, seed=seed), laplace))
    out.mkdir(parents=True, exist_ok=True)
    made = provenance("veil demo", seed)
    save(out / "city.veil", chain=chain, states=source.states, period_s=source.period_s, provenance=made)
    for limit, ours, _, _ in rows:
        path = out / f"policy-{limit:g}km.veil"
        save(path, ours.policy, problem=ours.problem, states=source.states, period_s=source.period_s, provenance=made)
    day = example_day(rows[1][1], seed)
    picture = out / "demo.png"
    save_figure(demo_figure({"causal-ba": curve}, families, problem, rows, day, names, source.period_s / 3600), picture)
    if json_out:
        print_json({"picture": str(picture), "points": [as_json(ours) for _, ours, _, _ in rows]})
        return
    console = Console(highlight=False)
    console.print(
        f"[bold]A commuter with {len(names)} places, one step every 5 minutes.[/] "
        f"Sharing the truth reveals {chain.entropy_rate:.3f} bits a step."
    )
    head = "mean distance allowed", "ours leaks (bits/step)", "simulated", "planar Laplace leaks", "times more"
    table = Table(*head, box=None)
    for limit, ours, ev, laplace in rows:
        table.add_row(
            f"{limit:g} km",
            f"{ours.leakage:.4f}",
            f"{ev.leakage:.4f} ± {1.96 * ev.leakage_se:.4f}",
            f"{laplace.leakage:.4f} ± {1.96 * laplace.leakage_se:.4f}",
            f"{laplace.leakage / max(ours.leakage, 1e-9):.1f}",
        )
    console.print(table)
    console.print(
        "[dim]ours: computed exactly for the fitted chain; simulated, Laplace: estimated, 95 % intervals; "
        "the band in the picture: proved[/]"
    )
    console.print(f"\nLook at [bold]{picture}[/]")
    console.print("Then try:")
    console.print(f"  veil solve {out}/city.veil --avg 500m --certify")
    console.print("  veil fit YOUR_FILES -o me.veil --plot me.png")


def example_day(solution: "Solution", seed: int) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    """A true day drawn from the chain and what the policy shows of it."""
    import numpy as np

    from veilstream.chain import draw

    policy = solution.policy
    rng = np.random.default_rng(seed + 1)
    true = solution.problem.chain.sample(DAY_STEPS, seed=rng)[0]
    memory, shown = policy.start(), []
    for z in true:
        y = draw(policy.channel(memory)[z], np.asarray(rng.random()))
        memory = policy.update(memory, y)
        shown.append(int(y))
    return true, np.array(shown)
