"""Mechanisms of others on two invented sources whose law is known: nothing is fitted, so anybody gets these figures.

A mechanism joins by its file in `audit/mechanisms/`. What is judged is fixed by the hash of chain and places. In full
(`make benchmark-public`) everybody in $VEIL_DATA too: people and households by the names of their folders and columns,
each fitted on the earlier part of the record, fixed by the hash of what was read.
"""

import hashlib
import math
from collections.abc import Iterator
from itertools import chain as chain_of

from veilstream.audit.judge import Judged, judge_model
from veilstream.audit.spec import JudgeSpec
from veilstream.data.synthetic import city_chain, household_chain
from veilstream.data.utility import Utility

WHO = "mechanism"
TABLE = {
    "error": "{error:.3f} {unit}",
    "bits per step": "{bits:.4f}",
    "ours at that error": "{ours:.4f}",
    "floor": "{floor:.4f}",
    "identified: it / ours": "{identified:.0%} / {ours identified:.0%}",
    "guess off: it / ours": "{off:.3f} / {ours off:.3f}",
}
SOURCES = {"city": city_chain, "household": household_chain}
QUIET = JudgeSpec()
SLACK = 0.01  # of the truth, by which an estimate may lie below a bound
Row = dict[str, float | str]


def figures(row: Judged, unit: str) -> Row:
    """One mechanism; nothing where it shows the truth."""
    best, f = row.ours, row.figures
    if best is None or row.floor is None or f.estimation_error is None or best.figures.estimation_error is None:
        return {}
    return {
        "unit": unit,
        "error": row.error.value,
        "bits": row.leakage.value,
        "ours": best.leakage.value,
        "floor": row.floor,
        "identified": f.vulnerability.value,
        "ours identified": best.figures.vulnerability.value,
        "off": f.estimation_error.value,
        "ours off": best.figures.estimation_error.value,
    }


def invented() -> Iterator[tuple[str, Utility, bytes]]:
    for name, made in SOURCES.items():
        chain, states = made()
        yield name, Utility.of(chain, states), chain.transition.tobytes() + states.coordinates.tobytes()


def recorded() -> Iterator[tuple[str, Utility, bytes]]:
    from benchmarks.records import everybody
    from veilstream.data.fitting import fit_model
    from veilstream.data.spec import FitSpec
    from veilstream.solvers.api import utility_of

    for name, readings in everybody():
        yield name, utility_of(fit_model(readings, FitSpec()))[0], f"{readings.sha256} {name}".encode()


def run(full: bool = False, spec: JudgeSpec = QUIET) -> dict[str, Row]:
    """A row for every mechanism, and whether floor <= ours <= it in all of them."""
    rows: dict[str, Row] = {}
    kept, times = True, list[float]()
    for name, utility, content in chain_of(invented(), recorded() if full else ()):
        chain = utility.chain
        for row in judge_model(utility, spec)[0]:
            if found := figures(row, utility.unit):
                rows[f"{name}: {row.label}"] = found
                slack = SLACK * chain.entropy_rate
                assert row.ours is not None and row.floor is not None
                kept &= (
                    row.floor <= row.ours.leakage.value + 1e-9 and row.ours.leakage.value <= row.leakage.value + slack
                )
                times += [row.leakage.value / row.ours.leakage.value]
        rows[f"{name}: sha-256 of what is judged"] = {"sha256": hashlib.sha256(content).hexdigest()[:16]}
    middle = math.exp(sum(map(math.log, times)) / len(times))
    rows["all"] = {
        "mechanisms": len(times),
        "bits / ours, geometric mean": middle,
        "verdict": "ok" if kept else "FAILED",
    }
    return rows
