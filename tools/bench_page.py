"""The page of measured figures, made from what `python -m benchmarks` has kept.

python tools/bench_page.py           writes docs/bench.md from benchmarks/results.json
python tools/bench_page.py --check   says whether it is up to date (exit code 1 if not)
"""

import json
import sys
from pathlib import Path
from typing import Any

from pages import keep

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PAGE = ROOT / "benchmarks" / "results.json", ROOT / "docs" / "bench.md"
HEAD = """# Measured

Written by `tools/bench_page.py` from `benchmarks/results.json`, which `make bench` keeps; `--compare` with that
file says what got worse since. Ratios are of one run and travel; seconds are of this machine:

{machine}
"""


def cell(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Rows with the same figures as one table, figures across; a row of its own kind downwards."""
    lines: list[str] = []
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, figures in rows.items():
        kinds.setdefault(tuple(figures), []).append(name)
    for columns, names in kinds.items():
        if len(names) > 1:
            lines += [
                "",
                "| | " + " | ".join(c.replace("_", " ") for c in columns) + " |",
                "|---" * (len(columns) + 1) + "|",
            ]
            lines += [f"| {n} | " + " | ".join(cell(rows[n][c]) for c in columns) + " |" for n in names]
        else:
            lines += ["", f"| {names[0]} | |", "|---|---|"]
            lines += [f"| {c.replace('_', ' ')} | {cell(rows[names[0]][c])} |" for c in columns]
    return lines


def page(told: dict[str, Any]) -> str:
    machine = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in told["machine"].items())
    lines = [HEAD.format(machine=machine)]
    for group, rows in sorted(told["results"].items()):
        lines += [f"## {group}", f"`python -m benchmarks {group}`, {told['when'][group]}.", *table(rows), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(keep(PAGE, page(json.loads(FIGURES.read_text()))))
