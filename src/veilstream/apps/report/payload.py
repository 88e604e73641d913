"""The data that the page's script draws, as JSON."""

import base64
from typing import Any

import numpy as np

from veilstream.apps.report.content import Content, facts, table_rows
from veilstream.apps.report.layout import crowd, east_north_km, lower_curve
from veilstream.apps.report.points import distinct
from veilstream.apps.report.words import headline, short
from veilstream.data.states import StateSpace
from veilstream.model.information import Array


def payload(content: Content) -> dict[str, Any]:
    """JSON for the figures. No coordinates on the earth, only km from the middle; no true value if shareable."""
    states = content.artefact.states
    places = east_north_km(states) if states is not None and states.is_map else None
    near = crowd(places, content.law) if places is not None else None
    points = content.artefact.points
    D, L = _found(content)
    grid = np.linspace(0, D.max() or 1.0, 200)
    return {
        "unit": content.unit,
        "hours": (content.artefact.period_s or 0) / 3600,
        "names": content.names,
        "levels_in": "" if states is None else states.unit,
        "truth": _r(content.artefact.chain.entropy_rate),
        "law": _r(content.law),
        "places": None if places is None else _r(places),
        "near": None if near is None else near.tolist(),
        "levels": None if states is None or states.is_map else _r(_levels(states)),
        "shown": None if states is None or points is None else _shown(states, points),
        "true": content.path.tolist(),
        "sampled": content.spec.shareable,
        "curve": {"d": _r(D), "l": _r(L), "x": _r(grid), "low": _r(lower_curve(content.solutions, grid))},
        "laplace": [[_r(p.distortion), _r(p.leakage)] for p in content.family],
        "own": next(i for i, s in enumerate(content.spots) if s.own),
        "spots": [
            {
                "d": _r(s.point.distortion),
                "l": _r(s.point.leakage),
                "headline": headline(content, s),
                "short": short(content, s),
                "facts": facts(s),
                "rivals": table_rows(s),
                "released": s.released.tolist(),
                "posterior": _bytes(s.posterior),
                "channel": _bytes(s.channel),
                "channel_level": s.channel_level,
                "command": s.command,
            }
            for s in content.spots
        ],
    }


def _levels(states: StateSpace) -> Array:
    """Heights of the states in the trace: levels of values; names stand one above the other."""
    return np.arange(len(states), dtype=float) if states.kind == "names" else states.coordinates[:, 0]


def _shown(states: StateSpace, points: StateSpace) -> dict[str, Any]:
    """The public points: what to call each, where it is, and the state it lies at."""
    where = _r(east_north_km(states, points)) if states.is_map else None
    names = [str(k) for k in range(len(points))] if states.is_map else points.names
    return {"names": names, "places": where, "at": states.encode(points.coordinates).tolist()}


def _found(content: Content) -> tuple[Array, Array]:
    """The curve of all policies found; the report's own is part of it where it lies below the rest."""
    D, L = np.array([(s.distortion, s.leakage) for s in distinct(content.solutions)]).T
    own = content.own.point
    if D[0] < own.distortion < D[-1] and own.leakage < np.interp(own.distortion, D, L):
        at = int(np.searchsorted(D, own.distortion))
        D, L = np.insert(D, at, own.distortion), np.insert(L, at, own.leakage)
    return D, L


def _r(value: Any) -> Any:
    """Five digits are enough for a picture; a figure that is said keeps those that decide how it is rounded."""
    if np.ndim(value) == 0:
        return float(f"{float(value):.9g}")
    return [_r(v) if np.ndim(v) else float(f"{v:.5g}") for v in np.asarray(value)]


def _bytes(probabilities: Array) -> str:
    """One byte each, row by row."""
    return base64.b64encode(np.round(255 * np.clip(probabilities, 0, 1)).astype(np.uint8).tobytes()).decode()
