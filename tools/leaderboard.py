"""The leaderboard in docs/learning.md, made from benchmarks/leaderboard/*.json: one file, one row.

    python tools/leaderboard.py            writes the table
    python tools/leaderboard.py --check    says whether it is out of date (exit code 1)

A file holds method, how (the command), steps, cpu_s and objective: bits + cells of what is deployed on grid4x4-q2 at
lambda 1, by `vs.evaluate`.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE, ROWS = ROOT / "docs" / "learning.md", ROOT / "benchmarks" / "leaderboard"
HEAD, END = "<!-- tools/leaderboard.py -->\n\n", "\n\n<!-- end -->"
PROVED = 1.5994  # no policy is below: veil solve builtin:grid4x4-q2 --lambda 1 --certify


def table() -> str:
    rows = sorted(
        (json.loads(p.read_text(encoding="utf-8")) for p in ROWS.glob("*.json")), key=lambda r: r["objective"]
    )
    lines = ["| method | steps | CPU s | bits + cells | above proved | how |", "|---|---|---|---|---|---|"]
    for r in rows:
        above = 100 * (r["objective"] / PROVED - 1)
        steps = f"{r['steps']:,}" if r["steps"] else ""
        lines.append(
            f"| {r['method']} | {steps} | {r['cpu_s']:g} | {r['objective']:.4f} | {above:.1f} % | `{r['how']}` |"
        )
    return "\n".join(lines)


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(HEAD)
    now = before + HEAD + table() + END + rest.partition(END)[2]
    if "--check" in sys.argv:
        return int(now != text)
    PAGE.write_text(now, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
