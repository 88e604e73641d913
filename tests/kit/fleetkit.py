"""Invented users for the tests of fleets, and tasks that kill their worker."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from veilstream.apps.fleet.spec import FleetSpec
from veilstream.data.spec import FitSpec
from veilstream.data.synthetic import household_chain
from veilstream.model.chain import MarkovChain

QUICK = FleetSpec(weight=5.0, window=1, points=2, certify=0.0, audit="none", fit=FitSpec(n_states=3, cycle="none"))
PLT = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"


def perturbed(rng, strength):
    """A household of its own: every row drawn around the synthetic one."""
    P = household_chain()[0].transition
    return MarkovChain(np.array([rng.dirichlet(strength * row) for row in P]) * 0.999 + 0.001 / len(P))


def meter_table(path, lengths, seed=0, columns=None):
    """A wide CSV of half-hourly kWh, one invented household per column; `columns` replaces some by the text given."""
    rng = np.random.default_rng(seed)
    low = np.array((0.0, 0.05, 0.12, 0.25, 0.5, 1.0))
    steps = max(lengths.values())
    texts = {}
    for name, n in lengths.items():
        z = perturbed(rng, 30).sample(n, seed=rng)[0]
        values = low[z] + rng.uniform(0.001, 0.04, n)
        texts[name] = [f"{v:.4f}" for v in values] + [""] * (steps - n)
    texts |= columns or {}
    t = np.datetime_as_string(np.datetime64("2024-01-01T00:00:00") + 1800 * np.arange(steps).astype("m8[s]"))
    rows = [",".join(["time", *texts])]
    rows += [",".join([t[i], *(c[i] if i < len(c) else "" for c in texts.values())]) for i in range(steps)]
    Path(path).write_text("\n".join(rows) + "\n")
    return str(path)


def plt_user(root, name, files=1, text=None, seed=0):
    """A GeoLife user who goes between two places in the empty South Pacific."""
    rng = np.random.default_rng(seed)
    folder = root / name / "Trajectory"
    folder.mkdir(parents=True)
    for day in range(1, files + 1):
        lines = []
        for i in range(120):
            lat = -47 + 0.05 * ((i // 20) % 2) + rng.normal(scale=1e-4)
            clock = f"{i // 12:02}:{5 * (i % 12):02}:00"
            lines.append(f"{lat:.6f},-125.0,0,0,39744.1,2008-10-{day:02},{clock}")
        (folder / f"{day}.plt").write_text(PLT + "\n".join(lines) + "\n" if text is None else text)


def square(task):
    """number, flag file, and whether to kill the worker: not ("no"), the first time ("once") or always."""
    number, flag, kill = task
    time.sleep(0.05)
    if kill == "always" or (kill == "once" and not Path(flag).exists()):
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if number < 0:
        raise ValueError(f"the true value is {number}")
    return number * number


LIMIT = {
    "verdict": "broken", "asked": "an error of at most 1 on average", "limit": 1.0, "unit": "", "traces": 12,
    "later": {"value": 1.5, "low": 1.2, "high": 1.8}, "words": "Limit broken.",
}  # fmt: skip


def row(i, unit):
    """Of the summary: one user of a page."""
    return {
        "user": f"user {i}", "unit": unit, "states": 8, "steps": 900 + 100 * i, "entropy_rate": 2.0,
        "blind_distortion": 4.0, "raw_distortion": 1.1 if i % 3 else None, "raw_leakage": 0.2 * i if i % 3 else None,
        "raw_truth": 2.5 if i % 3 else None, "limits": [LIMIT], "limit_verdict": LIMIT["verdict"],
        "leakage": 0.1 * i, "leakage_lower": 0.09 * i, "gap": 0.01, "distortion": 1.0, "level": "computed exactly",
        "may_hide_all": True, "curve": [[1.0, 0.1 * i, None, None], [3.0, 0.01 * i, None, 3.1]],
        "pool": None, "notes": [],
        "audit": {"stands": True, "contradictions": [], "named": {"chain": {"released": 0.6, "nothing": 0.3}}},
    }  # fmt: skip
