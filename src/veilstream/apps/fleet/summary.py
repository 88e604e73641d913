"""What a fleet found, over all users: fleet.json for programs, and a table for the page and the terminal alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from veilstream.apps.report.content import number
from veilstream.apps.verbs.flags import in_flags
from veilstream.control.drift import span
from veilstream.control.feedback import PERIODS
from veilstream.control.limit_check import TOLERANCE, Verdict
from veilstream.model.interval import Interval
from veilstream.solvers.solution import Level
from veilstream.units import counted

Cell = tuple[str, Any]  # what is shown, and what a click on the head sorts by
EMPTY: Cell = ("", None)
MEANINGS = {
    "limit": "what was asked for, and whether her later data shows it kept (kept: its 95 % interval ends at most "
    f"{100 * TOLERANCE:.0f} % above; broken: it lies above).",
    "later: error": "on her own latest traces or weeks, which nothing was fitted to (95 % interval); bits are an upper "
    "bound whatever the law of that data, <em>at most</em> what no data can exceed (proved).",
    "error": "from reading to release; <em>bits</em>: per step; both on her recorded data, starts and gaps included.",
    "of the truth": "bits as a share of what the truth would reveal on the same data.",
    "long run: error": "the same, and bits, in the long run of her chain.",
    "at least": "no policy this accurate in the long run reveals less (proved).",
    "clock": "her chain knows the hour, as everybody does.",
    "helped by": "how many others, and the transitions per state they count for.",
    "identified": "in how many steps of her recorded data an adversary who knows chain and policy identifies her "
    "state, without the releases → with them (estimated).",
    "moves": "public ones between the rungs of a limit kept by feedback, and the rungs in use, on her recorded data; "
    "the limit on the mean, and what is promised of it whatever she does (proved, but for readings whose error exceeds "
    "the limit even on rung 0).",
    "audit": "whether what is claimed of the fitted chain is what was measured on it; it says nothing about limits.",
}
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


# --- every user in one table -------------------------------------------------------------------------------


def table_of(rows: Sequence[dict[str, Any]], only: Sequence[str] = ()) -> dict[str, list[Cell]]:
    """Column by column; one that is empty for everyone is left out."""
    every = [figures(r) for r in rows]
    columns = {head: [one[head] for one in every] for head in (every[0] if every else ()) if not only or head in only}
    return {head: column for head, column in columns.items() if any(text for text, _ in column)}


def figures(r: dict[str, Any]) -> dict[str, Cell]:
    """Every cell of one user's row, by column."""
    seen, pool, clock, verdict = named(r), r.get("pool"), r.get("cycle"), r.get("limit_verdict")
    asked = "; ".join(f"{c['verdict']}: {c['asked']}" for c in r.get("limits") or ())
    audit = r.get("audit")
    return {
        "limit": (asked, None if verdict is None else list(Verdict).index(Verdict(verdict))),
        "later: error": _later(r, "raw_distortion", f" {r['unit']}") or (str(Level.MODEL_ONLY), None),
        "later: bits": _later(r, "leakage") or EMPTY,
        "at most": _figure(r.get("worst_leakage")),
        "error": EMPTY if r["raw_distortion"] is None else (felt(r), r["raw_distortion"]),
        "bits": _figure(None if r["raw_leakage"] is None else max(r["raw_leakage"], 0.0)),
        "of the truth": _figure(r["leakage_share"], "{:.1%}"),
        "long run: error": (f"{r['distortion']:.3g} {r['unit']}", r["distortion"]),
        "long run: bits": _figure(r["leakage"]),
        "at least": _figure(r["leakage_lower"]),
        "gap": _figure(r.get("gap"), "{:.2%}"),
        "entropy rate": _figure(r["entropy_rate"]),
        "states": _figure(r.get("states"), "{}"),
        "steps": _figure(r["steps"], "{:,}"),
        "clock": EMPTY if not clock else (f"{clock['kind']}, {clock['phases']} phases", clock["phases"]),
        "helped by": EMPTY if not pool else (f"{pool['helpers']:.0f} x {pool['strength']:g}", pool["strength"]),
        "identified": EMPTY if not seen else (f"{seen['nothing']:.0%} → {seen['released']:.0%}", seen["released"]),
        "moves": moves(r),
        "level": (str(r["level"]), None),
        "audit": EMPTY if not audit else ("as claimed" if audit["stands"] else "CONTRADICTED", None),
    }


def felt(row: dict[str, Any]) -> str:
    """How far off a release is, on the recorded data where that is known."""
    far = row["distortion"] if row["raw_distortion"] is None else row["raw_distortion"]
    return f"{far:.3g} {row['unit']}".strip()


def named(row: dict[str, Any]) -> dict[str, float]:
    """How often an adversary identifies her state, on her own traces where there are some: released, nothing."""
    seen = (row.get("audit") or {}).get("named", {})
    found: dict[str, float] = seen.get("traces") or seen.get("chain") or {}
    return found


def moves(row: dict[str, Any]) -> Cell:
    """Moves of an adaptive controller on the user's record, and the promise about its limit."""
    climbed, unit = row.get("feedback"), row["unit"]
    if not climbed or not climbed["rungs"]:
        return EMPTY
    used = [i for i, share in enumerate(climbed["rungs"]) if share > 0]
    most = climbed["limit"] + climbed["overshoot"] / (PERIODS * climbed["every"])
    said = f"at most {most:.3g} {unit} over {PERIODS} periods" if climbed["promised"] else "not promised"
    moved = f"{climbed['moves']:.0f} on rungs {used[0]} to {used[-1]}"
    return f"{moved}; limit {climbed['limit']:.3g} {unit}, {said}", climbed["moves"]


def _figure(value: Any, form: str = "") -> Cell:
    return EMPTY if value is None else (form.format(value) if form else number(value), value)


def _later(row: dict[str, Any], name: str, unit: str = "") -> Cell | None:
    """On her held-out data, with its interval; None where that says too little about her."""
    held = row.get("held_out")
    seen = None if not held or held["level"] == Level.MODEL_ONLY else Interval.read(held[name])
    return None if seen is None else (span(seen) + unit, seen.value)
