"""Reports made once for all tests of the report."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from veilstream.apps.report.content import collect
from veilstream.apps.specs import ReportSpec
from veilstream.artefact import load, provenance, save
from veilstream.audit.source import Recorded
from veilstream.data.fitting import fit_model
from veilstream.data.readings import from_arrays
from veilstream.data.spec import FitSpec
from veilstream.data.synthetic import city, household
from veilstream.model.problem import Average, Both, Instantaneous, Problem
from veilstream.solvers import solve

FOLDER = Path(tempfile.mkdtemp(prefix="veil-report-"))


def policy_file(name, source, constraint, **more):
    """A policy in a file: its artefact and its solution."""
    problem = Problem(source.chain, source.states.distances(), constraint)
    solution = solve(problem, window=1)
    path = FOLDER / name
    save(path, solution.policy, problem=problem, states=source.states, period_s=source.period_s, **more)
    return load(path), solution


@cache
def town():
    """A commuter: source, artefact, solution, content."""
    source = city(3000, seed=2)
    told = provenance("veil fit /home/alice/secret", 0, "f00d")
    artefact, solution = policy_file("city.veil", source, Average(limit=0.5), provenance=told)
    return (
        source,
        artefact,
        solution,
        collect(artefact, Recorded.symbols(artefact, [source.path]), ReportSpec(points=5, seconds=1.0)),
    )


@cache
def home():
    """A household's meter, with a limit at every step: content."""
    source = household(500)
    artefact, _ = policy_file("home.veil", source, Both(Average(weight=2.0), Instantaneous(0.6)))
    return collect(artefact, Recorded.symbols(artefact, [source.path]), ReportSpec(points=3, seconds=0.1, audit="none"))


@cache
def fine_meter():
    """A meter of a few Wh in thirty bins, that looks at the clock: content."""
    rng, t = np.random.default_rng(0), 1.6e9 // 3600 * 3600 + 3600.0 * np.arange(24 * 40)
    values = 0.004 * (1.2 + np.sin(t / 86_400 * 2 * np.pi)) * rng.gamma(2.0, 0.5, len(t))
    model = fit_model(from_arrays(t, values[:, None], "kWh"), FitSpec(n_states=30, cycle="day", hold_out=0.0))
    problem = Problem(model.chain, model.states.distances(), Average(weight=400.0))
    path = FOLDER / "fine.veil"
    save(path, solve(problem, window=1).policy, problem=problem, states=model.states, period_s=3600.0)
    artefact = load(path)
    return collect(
        artefact, Recorded.symbols(artefact, model.runs.sequences), ReportSpec(points=3, seconds=0.0, audit="none")
    )
