"""python -m attack [--minutes 10 | --long] [--seed TEXT] [--drill NAME [--trial N]] [--size N] [--json FILE]

Drills take turns, the one that has had the least time next, until the time is up. The seed is printed; with it, a
drill's name and a trial's number the same attack is made again. Exit code 1 if anything was found.
"""

import argparse
import json
import logging
import os
import platform
import secrets
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import veilstream
from attack.drill import Done, Drill, Finding
from attack.drills import DRILLS

LONG_MINUTES = 60
ENOUGH = 5  # findings of one drill; then it stops


def main() -> None:
    asked = _arguments()
    seed = asked.seed or secrets.token_hex(4)
    drills = [d for d in DRILLS if not asked.drill or d.name == asked.drill]
    if not drills:
        raise SystemExit(f"no drill {asked.drill!r}; there are: {', '.join(d.name for d in DRILLS)}")
    logging.lastResort = None  # what the gateways and their libraries say of all this
    skipped = [d for d in drills if not d.ready]
    print(f"seed {seed}", *(f"not installed: {d.needs}, so no {d.name!r}" for d in skipped), sep="\n", flush=True)
    if asked.trial is not None:
        found = drills[0].run(seed, asked.trial, asked.size)
        print(found.finding.where if found.finding else f"{drills[0].name}, trial {asked.trial}: held")
        sys.exit(found.finding is not None)
    start = time.monotonic()
    results = run(
        [d for d in drills if d.ready], seed, 60 * (LONG_MINUTES if asked.long else asked.minutes), asked.size
    )
    print(table(results))
    findings = [done.finding for trials in results.values() for done in trials if done.finding]
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(report(results, seed, time.monotonic() - start), indent=1) + "\n")
        print(f"written to {asked.json}")
    sys.exit(bool(findings))


def run(drills: list[Drill], seed: str, seconds: float, size: float = 1.0) -> dict[Drill, list[Done]]:
    """Every drill once at least, whatever the time."""
    until = time.monotonic() + seconds
    results: dict[Drill, list[Done]] = {d: [] for d in drills}
    spent: Counter[Drill] = Counter(dict.fromkeys(drills, 0))
    while drills:
        drill = min(drills, key=lambda d: spent[d])
        if time.monotonic() > until and results[drill]:
            break
        done = drill.run(seed, len(results[drill]), size)
        results[drill].append(done)
        spent[drill] += done.seconds
        if done.finding:
            _tell(done.finding)
            if sum(d.finding is not None for d in results[drill]) >= ENOUGH:
                drills = [d for d in drills if d is not drill]
    return results


def _tell(finding: Finding) -> None:
    print(f"FOUND by {finding.drill!r}, trial {finding.trial}: {finding.what}\n  {finding.replay}", flush=True)


def table(results: dict[Drill, list[Done]]) -> str:
    rows = [("drill", "trials", "attacks", "findings", "seconds")]
    for drill, trials in results.items():
        found = sum(d.finding is not None for d in trials)
        rows.append((drill.name, f"{len(trials):,}", f"{sum(d.attacks for d in trials):,}", str(found),
                     f"{sum(d.seconds for d in trials):.0f}"))  # fmt: skip
    total = [t for trials in results.values() for t in trials]
    rows.append(("all", f"{len(total):,}", f"{sum(d.attacks for d in total):,}",
                 str(sum(d.finding is not None for d in total)), f"{sum(d.seconds for d in total):.0f}"))  # fmt: skip
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(wide[0]), *(c.rjust(w) for c, w in zip(row[1:], wide[1:], strict=True))])
        for row in rows
    ]
    figures = [
        f"{d.name}: {name} {value:g}" for d, trials in results.items() for name, value in _largest(trials).items()
    ]
    return "\n".join(["", *lines, *figures])


def _largest(trials: list[Done]) -> dict[str, float]:
    out: dict[str, float] = {}
    for done in trials:
        for name, value in done.figures.items():
            out[name] = max(value, out.get(name, value))
    return out


def report(results: dict[Drill, list[Done]], seed: str, seconds: float) -> dict:
    return {
        "seed": seed,
        "seconds": round(seconds),
        "date": datetime.now(UTC).date().isoformat(),
        "veilstream": veilstream.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "drills": {
            drill.name: {
                "promise": drill.promise,
                "trials": len(trials),
                "attacks": sum(d.attacks for d in trials),
                "seconds": round(sum(d.seconds for d in trials), 1),
                "figures": _largest(trials),
                "findings": [
                    {"trial": d.finding.trial, "what": d.finding.what, "replay": d.finding.replay}
                    for d in trials
                    if d.finding
                ],
            }
            for drill, trials in results.items()
        },
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m attack", description="Try to break what the gateway promises.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--long", action="store_true", help=f"{LONG_MINUTES} minutes")
    parser.add_argument("--seed", help="as printed by another run")
    parser.add_argument("--drill", help="this one alone")
    parser.add_argument("--trial", type=int, help="this trial of it alone, with everything it says")
    parser.add_argument("--size", type=float, default=1.0, help="of each trial: so many times as much")
    parser.add_argument("--json", type=Path, help="where the result goes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
