"""What a limit on epsilon costs in bits at an error, on the paper's grid and in the invented city."""

import veilstream as vs
from veilstream.data.synthetic import city_chain
from veilstream.data.utility import Utility
from veilstream.errors import InputError

WHO = "source, mean error at most"
EPSILONS = (8.0, 4.0, 2.0, 1.0, 0.5)
TABLE = {"without": "{free:.4f}"} | {f"epsilon {e:g}": f"{{e{i}}}" for i, e in enumerate(EPSILONS)}
LIMITS = {"grid": (1.2, 1.5, 1.7), "city": (0.3, 0.5, 1.0, 1.5, 2.0)}
Row = dict[str, float | str]


def run() -> dict[str, Row]:
    """Bits per step, where a policy of that error was found; and whether error and epsilon are kept in all."""
    city, rows, kept = Utility.of(*city_chain()), dict[str, Row](), True
    for source, limits in LIMITS.items():
        for limit in limits:
            asked = vs.Average(limit=limit)
            problem = city.problem(asked) if source == "city" else vs.builtin_problem("grid4x4-q2", asked)
            free = vs.solve(problem).leakage
            row: Row = {"free": free}
            for i, epsilon in enumerate(EPSILONS):
                try:
                    found = vs.solve(problem, epsilon=epsilon)
                except InputError:
                    row[f"e{i}"] = "none found"
                    continue
                assert found.epsilon is not None
                kept &= found.epsilon.step <= epsilon + 1e-9 and found.distortion <= limit * (1 + 1e-6)
                row[f"e{i}"] = f"{found.leakage:.4f} ({found.leakage / free - 1:+.1%})"
            rows[f"{source} {limit:g} {'km' if source == 'city' else 'units'}"] = row
    rows["all"] = {"verdict": "ok" if kept else "FAILED"}
    return rows
