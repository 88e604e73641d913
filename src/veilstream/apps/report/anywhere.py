"""The page of a policy without an end: its limits, its figures, and a stretch of what was read and released."""

from html import escape
from typing import Any

import numpy as np

from veilstream.apps.report import words
from veilstream.apps.report.page import FACTS, HIDDEN, PRIVATE, document, filled, pairs, table
from veilstream.apps.report.points import example_steps, liveliest
from veilstream.apps.specs import ReportSpec
from veilstream.audit.verdict import Assessment
from veilstream.control.frame_ladder import Framed
from veilstream.control.frame_mechanism import FrameMechanism
from veilstream.control.loop import replay
from veilstream.control.places import index_of
from veilstream.model.lattice import KM_PER_DEGREE
from veilstream.solvers.solution import RECORD, Fact, Level

SHAREABLE = (
    "Shareable: no recorded reading and no place is in this page. It does show what later data gave, in numbers."
)
LEVELS = [
    (str(Level.PROVED), "in the mean, whatever the data is: nobody learns more than it takes to write releases down"),
    *((str(k), words.LEVELS[k]) for k in (Level.HELD_OUT, Level.MODEL_ONLY)),
]
SOURCE = {"command", "versions"}  # of the provenance


def render(found: Assessment, spec: ReportSpec) -> str:
    """The report of an assessment that rests on no chain."""
    policy = found.artefact.policy
    assert isinstance(policy, Framed)
    drawn = None if spec.shareable else example(found, policy, spec.seed)
    limits = [f'<p class="headline limit {c.verdict.name.lower()}">{escape(c.words)}</p>' for c in found.limits]
    said = found.words.split("\n")[len(found.limits) :]
    told = SOURCE - HIDDEN if spec.shareable else SOURCE
    rows = [("policy sha-256", found.artefact.sha256)]
    rows += [(k, str(v)) for k, v in found.artefact.provenance.items() if k in told]
    parts = {
        "name": "What this policy reveals",
        "limits": "".join(limits),
        "sentences": "".join(f"<li>{escape(line)}</li>" for line in said if line),
        "facts": table(FACTS, [[f.label, f.text, f.note] for f in figures(found)], "stack"),
        "figure": "" if drawn is None else filled("frame-figure.html", {"caption": escape(caption(policy))}),
        "levels": pairs(LEVELS),
        "provenance": pairs(rows),
    }
    title = "Shareable report" if spec.shareable else "PRIVATE report"
    banner, kind = (SHAREABLE, "shareable") if spec.shareable else (PRIVATE, "private")
    return document("frame", title, kind, banner, filled("frame.html", parts), drawn)


def figures(found: Assessment) -> list[Fact]:
    """Errors and bits, on the record and after it."""
    unit, data = found.cost_unit, found.data
    rows: list[Fact] = []
    if data.record is not None:
        rows.append(Fact("error", data.record.error, f"{unit} on average", RECORD, data.record.error_se))
        rows.append(Fact("leakage", data.record.bits, "bits per step", RECORD, data.record.bits_se))
    if found.later is not None:
        f = found.later.figures
        rows.append(Fact("later error", f.raw_distortion, f"{unit} on average", f.level))
        rows.append(Fact("later leakage", f.leakage, "bits per step, whatever their law", f.level))
    if data.charged is not None:
        rows.append(Fact("its meter", data.charged, "bits per step on the data given", str(Level.PROVED)))
    return rows


def caption(policy: Framed) -> str:
    lattice = policy.lattice
    size = f"{lattice.spacing:g} {lattice.unit}".strip()
    text = f"Readings, and what was released for them: cells of {size}, drawn afresh for this page."
    return (
        text if policy.places is None else f"{text} Dashed: at none of the {len(policy.places)} places of her record."
    )


def example(found: Assessment, policy: Framed, seed: int) -> dict[str, Any] | None:
    """The liveliest stretch of the data and one draw of its releases, in km from its middle, or in the value's unit."""
    data, lattice = found.data.replay, policy.lattice
    if data is None or data.points is None:
        return None
    cells = np.unique(lattice.packed(lattice.nearest(data.states)), return_inverse=True)[1].ravel()
    steps = example_steps(found.artefact.period_s)
    which, at = liveliest([cells[rows] for rows in data.streams], steps)
    rows, rng = data.streams[which], np.random.default_rng(seed)
    own = {"gaps": data.gaps[rows], "first": data.step[rows.start], "uniforms": rng.random}
    y, _ = replay(FrameMechanism(policy), data.states[rows][None], **own)
    shown = slice(at, at + steps)
    read, released, column = data.points[rows][shown], lattice.decode(y[0][shown]), lattice.spacing
    if lattice.is_map:
        middle = np.median(read, axis=0)
        scale = KM_PER_DEGREE * np.array([1.0, np.cos(np.radians(middle[0]))])
        read, released = (((p - middle) * scale)[:, ::-1] for p in (read, released))  # east, north
        row = np.rint(middle[:1] / lattice.height).astype(np.int64)
        column = float(lattice.width(row)[0] * scale[1])
    return {
        "unit": lattice.unit,
        "map": lattice.is_map,
        "cell": [column, lattice.spacing],
        "read": read.round(3).tolist(),
        "released": released.round(3).tolist(),
        "new": (index_of(policy.packed, y[0][shown]) < 0).tolist() if policy.places else [False] * len(read),
    }
