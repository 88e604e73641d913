"""A finer policy with a coarser one behind it, as files, without a solver."""

import contextlib
import time

import numpy as np

from gatewaykit import artefact, places
from veilstream.artefact import load, save
from veilstream.control.cascade import Finer
from veilstream.control.controller import Controller
from veilstream.gateway.audience import AudienceSpec, with_audiences
from veilstream.gateway.core import Core
from veilstream.gateway.scheduler import Serving
from veilstream.gateway.space import Space
from veilstream.gateway.store import MEMORY, Store
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Average, Problem

HIDDEN = 3  # releases of the coarser policy: the first, middle and last place


def behind(path, finer, seed=0, n=HIDDEN, sharpness=0.3, points=None, **more):
    """A policy file for an audience that may be told a few places alone; points: other ones of that number."""
    seen = Finer.through(finer.chain if finer.finer is None else finer.finer.chain, finer.policies)
    d = np.abs(np.arange(seen.n_shown)[:, None] - np.linspace(0, seen.n_shown - 1, n))
    P = 0.999 * seen.transition + 0.001 / seen.n_shown
    problem = Problem(MarkovChain(P), d, Average(weight=1.0))
    favour = np.random.default_rng(seed).dirichlet(np.ones(n), n)
    table = favour[:, None, :] * np.exp(-sharpness * d)[None]
    policy = Controller.of_table(table / table.sum(-1, keepdims=True), 1)
    states = finer.shown
    if states is not None and points is None:
        points = type(states)(states.kind, states.coordinates[np.linspace(0, len(states) - 1, n).astype(int)],
                              tuple(f"area {k}" for k in range(n)), states.unit)  # fmt: skip
    truth = np.abs(np.arange(len(finer.chain))[:, None] - np.linspace(0, len(finer.chain) - 1, n))
    own = {"states": states, "points": points, "recording": finer.recording, "finer": finer, "truth": truth} | more
    return save(path, policy, problem=problem, **own)


def two(folder, period_s=None, map=True):
    """Files of a family's policy and of the public's behind it."""
    states = places(16) if map else None
    family = artefact(folder / "family.veil", states=states, period_s=period_s)
    return family, behind(folder / "public.veil", family)


@contextlib.contextmanager
def core_of(
    folder,
    audiences=("public",),
    store=MEMORY,
    ceiling=None,
    own=None,
    uniforms=None,
    now=time.time,
    delay=None,
    **serving,
):
    """A core over the files of `two`; own: the ceiling of the audiences; delay: of the first of them."""
    asked = [
        AudienceSpec(name, str(folder / f"{name}.veil"), ceiling=own, delay=None if k else delay)
        for k, name in enumerate(audiences)
    ]
    spaces = with_audiences({"": Space(load(folder / "family.veil"), ceiling)}, asked)
    opened = Store(store, {name: space.binding for name, space in spaces.items()})
    core = Core(spaces, opened, Serving(**serving), uniforms=uniforms, now=now)
    try:
        yield core
    finally:
        core.close()
