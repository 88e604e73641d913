"""Figures kept in a file with the machine they come from, and what got worse since another such file.

    {"veilstream": version, "machine": {...}, "results": {group: {name: {figure: value}}}, "when": {group: date}}

A figure is better small (seconds, memory, gaps, what leaks) or large (rates, ratios of speed) by its name; others are
only shown. Times of two files are compared as they are: on a machine that other work shares, look at the ratios first.
"""

import json
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import veilstream
from veilstream.errors import InputError

SMALL = re.compile(r"seconds|_ms|_us|rss|gap|objective|bits|leakage|exponent|weights_a_limit_costs|times_a_bare")
LARGE = re.compile(r"per_s|_ratio|^ratio|times_faster")
TIMES, FIGURES = 0.10, 5e-4  # relative: what counts as worse, of measured speeds and of computed figures
COMPUTED = re.compile(r"objective|bits|leakage|gap")


def machine() -> dict[str, Any]:
    """What a time depends on; no name, no path."""
    model = ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        pass
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return {
        "processor": model or platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "load_at_start": round(busy, 2),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def kept(path: Path, results: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Written to `path`; groups that were not run now stay as they were, if the machine is the same."""
    known = read(path) if path.exists() else {}
    same = known.get("machine", {}).get("processor") == facts["processor"]
    before, when = (known.get("results", {}), known.get("when", {})) if same else ({}, {})
    now = datetime.now(UTC).date().isoformat()
    told = {
        "veilstream": veilstream.__version__,
        "machine": facts,
        "results": {**before, **results},
        "when": {**when, **dict.fromkeys(results, now)},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    return told


def read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text())
        if not isinstance(told["results"], dict):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path} holds no results of python -m benchmarks") from None
    return dict(told)


@dataclass(frozen=True)
class Change:
    """One figure in both files."""

    name: str
    before: float
    after: float

    @property
    def times(self) -> float:
        return self.after / self.before if self.before else (1.0 if self.after == self.before else np.inf)

    @property
    def worse(self) -> bool | None:
        """None: neither direction is the better one."""
        figure = self.name.rsplit(": ", 1)[1]
        least = FIGURES if COMPUTED.search(figure) else TIMES
        if LARGE.search(figure):
            return self.times < 1 - least
        return self.times > 1 + least if SMALL.search(figure) else None


def changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    """Every number that both have."""
    for group, found in after.items():
        for name, figures in found.items():
            old = before.get(group, {}).get(name, {})
            for what, value in figures.items():
                numbers = (old.get(what), value)
                if all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers):
                    yield Change(f"{group} {name}: {what}", float(old[what]), float(value))
