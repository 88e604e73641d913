"""What a fleet found, over all users: fleet.json for programs, index.html for people."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from veilstream.apps.verbs.flags import in_flags
from veilstream.container import write
from veilstream.control.limit_check import Verdict
from veilstream.units import counted

QUANTILES = {"least": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "most": 1.0}
SPREAD = (
    "raw_distortion", "raw_leakage", "leakage", "leakage_share", "entropy_rate", "distortion", "distortion_share",
    "gap", "states", "steps",
)  # fmt: skip


@dataclass
class Summary:
    """Rows of the users that are done, a line for each that failed, and what was not reached when interrupted."""

    rows: list[dict[str, Any]]
    failed: dict[str, str]
    notes: list[str]
    engine: str
    seed: int
    seconds: float = 0.0
    missing: list[str] = field(default_factory=list)

    @property
    def contradicted(self) -> list[str]:
        """Users whose policy leaks more in the audit than it says."""
        return sorted(r["user"] for r in self.rows if r.get("audit") and not r["audit"]["stands"])

    @property
    def whole(self) -> bool:
        return not (self.failed or self.missing or self.contradicted)

    def to_json(self) -> dict[str, Any]:
        rows = sorted((with_shares(r) for r in self.rows), key=lambda r: str(r["user"]))
        return {
            "users": len(rows),
            "kept": sum(bool(r.get("kept")) for r in rows),
            "failed": {name: in_flags(line) for name, line in sorted(self.failed.items())},
            "not_reached": self.missing,
            "audit_contradicts": self.contradicted,
            "limit_verdicts": (counts := {v: sum(r.get("limit_verdict") == v for r in rows) for v in Verdict}),
            "limit_words": limit_words(counts),
            "spread": {
                unit: spread([r for r in rows if r["unit"] == unit]) for unit in sorted({r["unit"] for r in rows})
            },
            "notes": [in_flags(note) for note in self.notes],
            "engine": self.engine,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "rows": rows,
        }


def limit_words(counts: dict[Verdict, int]) -> str:
    """How many limits later data shows kept, in a sentence; "" where none was asked for."""
    many = sum(counts.values())
    said = ", ".join(f"{verdict} for {n:,}" for verdict, n in counts.items() if n)
    return f"On later data the limit is {said} of {counted(many, 'user')}." if many else ""


def with_shares(row: dict[str, Any]) -> dict[str, Any]:
    """With leakage as a share of what the truth would reveal, distortion as one of what revealing nothing costs: both
    on the recorded data, where that is known.

    Notes are in the words of the command line.
    """
    far = row["distortion"] if row["raw_distortion"] is None else row["raw_distortion"]
    pair = (row["leakage"], row["entropy_rate"]) if not row["raw_truth"] else (row["raw_leakage"], row["raw_truth"])
    return {
        **row,
        "notes": [in_flags(note) for note in row.get("notes", ())],
        "leakage_share": min(max(pair[0] / pair[1], 0.0), 1.0) if pair[1] > 0 else 0.0,
        "distortion_share": far / row["blind_distortion"] if row["blind_distortion"] > 0 else 0.0,
    }


def spread(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Quantiles over users of each figure."""
    out: dict[str, Any] = {"users": len(rows)}
    for name in SPREAD:
        values = [r[name] for r in rows if r[name] is not None]
        if values:
            out[name] = dict(zip(QUANTILES, map(float, np.quantile(values, list(QUANTILES.values()))), strict=True))
    return out


def write_summary(folder: Path, summary: Summary) -> None:
    from veilstream.apps.fleet.page import page

    told = summary.to_json()
    write(folder / "fleet.json", (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode())
    write(folder / "index.html", page(told).encode())
