"""The loop around a jitted learner: measure, write a checkpoint, resume.

A learner is a pytree `State` and a function `segment(state) -> (state, figures)`, deterministic given the state: on one
machine a run that was cut and resumed gives the same curve as one that was not. A checkpoint is one safetensors file
(arrays, and JSON in its header), never a pickle; it is written beside its place and moved there, so a cut leaves the
last one whole.
"""

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from veilstream import container
from veilstream.control.evaluate import ENOUGH, evaluate
from veilstream.control.policy import Policy
from veilstream.errors import InputError
from veilstream.model.problem import Problem, fingerprint
from veilstream.solvers.causal_ba import CausalBA
from veilstream.solvers.solution import Point, Progress, Status

SMALL = 4096  # |Z| |Y|, up to which an estimate takes seconds
MOST_STATES = 150  # up to which one with a stream for every state and more takes half a minute

State = Any  # a pytree of arrays
Figures = dict[str, float]
Curve = list[Figures]
Report = Callable[[Figures], None] | None


class TrainedPolicy(NamedTuple):
    """What a training gives."""

    policy: Policy
    curve: Curve
    networks: Any  # to go on from, at another weight


@dataclass(frozen=True)
class Run:
    """What a checkpoint must agree on before it may be continued."""

    method: str
    chain: str
    problem: str  # fingerprint
    seed: int
    options: dict[str, Any]

    @classmethod
    def of(cls, method: str, problem: Problem, weight: float, seed: int, options: Any) -> "Run":
        computed = {k: v for k, v in asdict(options).items() if k not in RUNNING}
        return cls(method, problem.chain.name, fingerprint(problem, weight), seed, computed)


# --- options ---------------------------------------------------------------------------------------------

RUNNING = ("seed", "runs", "checkpoint", "resume", "deploy")  # how a run is carried out, not what it computes


def check(method: str, options: Any, **least: float) -> None:
    """Every number among the options is finite, whole where its default is, and at least `least`."""
    for f in fields(options):
        value, whole = getattr(options, f.name), f.type in (int, "int")
        if f.type not in (int, float, "int", "float"):
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer) if whole else (int, float, np.number)):
            raise InputError(f"{method}: {f.name} must be a {'whole ' if whole else ''}number, found {value!r}")
        low = least.get(f.name, 0)
        if not math.isfinite(value) or value < low:
            raise InputError(f"{method}: {f.name} must be a number of at least {low:g}, found {value:g}")


def check_choice(method: str, options: Any, **known: tuple[str, ...]) -> None:
    """Every option that is a word is one of those it may be."""
    for name, words in known.items():
        if getattr(options, name) not in words:
            raise InputError(f"{method}: {name} must be one of {', '.join(words)}, found {getattr(options, name)!r}")


# --- checkpoints -----------------------------------------------------------------------------------------


def numbered(path: str | None, *parts: int | None) -> str | None:
    """One file for each weight and seed of a sweep: run.safetensors -> run-2-0.safetensors."""
    if path is None:
        return None
    whole = Path(path)
    return str(whole.with_name("-".join([whole.stem, *(str(p) for p in parts if p is not None)]) + whole.suffix))


def write_checkpoint(path: Path, run: Run, state: State, history: Curve) -> None:
    leaves = {f"{i:05d}": np.asarray(v) for i, v in enumerate(jax.tree.leaves(state))}
    try:
        container.write(path, save(leaves, {"run": json.dumps(asdict(run)), "history": json.dumps(history)}))
    except OSError as error:
        raise InputError(f"checkpoint {path} cannot be written ({error})") from None


def read_checkpoint(path: Path, run: Run, like: State) -> tuple[State, Curve]:
    """The state and history in `path`, if it was written by the same run; `like` gives the tree's form."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = [file.get_tensor(name) for name in sorted(file.keys())]
        found, history = Run(**json.loads(header["run"])), json.loads(header["history"])
    except FileNotFoundError:
        raise InputError(f"no checkpoint at {path}; leave resume out to start one there") from None
    except (SafetensorError, KeyError, TypeError, ValueError):
        raise InputError(f"{path} is not a checkpoint of veilstream, or it is damaged") from None
    if found.problem != run.problem:
        raise InputError(
            f"checkpoint {path} is of another problem (chain {found.chain}, fingerprint {found.problem[:8]}; "
            f"this one: {run.chain}, {run.problem[:8]}); pass that problem or start a new checkpoint"
        )
    for name, there, here in [
        ("method", found.method, run.method),
        ("seed", found.seed, run.seed),
        *((k, found.options.get(k), v) for k, v in run.options.items()),
    ]:
        if there != here:
            raise InputError(f"checkpoint {path} was made with {name} {there}, found {name} {here}; use the same")
    leaves, tree = jax.tree.flatten(like)
    if [v.shape for v in leaves] != [v.shape for v in arrays]:
        raise InputError(f"{path} is not a checkpoint of veilstream, or it is damaged")
    return jax.tree.unflatten(tree, arrays), history


# --- the loop --------------------------------------------------------------------------------------------


def train(
    run: Run,
    state: State,
    segment: Callable[[State], tuple[State, Figures]],
    measure: Callable[[State], Figures],
    segments: int,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    report: Report = None,
) -> tuple[State, Curve]:
    """`segments` segments, measured after each: (the last state, the learning curve)."""
    if resume and checkpoint is None:
        raise InputError("resume needs the checkpoint to resume from: pass checkpoint=FILE too")
    path = None if checkpoint is None else Path(checkpoint)
    history: Curve = []
    if resume and path is not None:
        state, history = read_checkpoint(path, run, state)
    for done in range(len(history), segments):
        state, figures = segment(state)
        figures = {"segment": done + 1, "seed": run.seed, **figures, **measure(state)}
        if not math.isfinite(figures["objective"]):
            raise InputError(f"{run.method} diverged in segment {done + 1}; lower the learning rate")
        history.append(figures)
        if path is not None:
            write_checkpoint(path, run, state, history)
        if report is not None:
            report(figures)
    return state, history


def known_optimum(problem: Problem, weight: float) -> float | None:
    """What the exact solver of memory 1 reaches, where that takes no time; shown beside the progress."""
    if problem.distortion.size > 1024:
        return None
    return CausalBA(window=1).at(problem, np.array([weight]))[0].objective(weight)


def tell(
    progress: Progress | None, share: tuple[float, float], segments: int, problem: Problem, weight: float
) -> Report:
    """A report for `train` that moves the bar through `share` of it: where the policy stands, and what is best."""
    optimum = None if progress is None else known_optimum(problem, weight)

    def report(figures: Figures) -> None:
        if progress is None:
            return
        now = " ".join(f"{name} {figures[name]:.4f}" for name in ("leakage", "distortion", "objective"))
        best = "" if optimum is None else f" (optimum {optimum:.4f})"
        progress(share[0] + (share[1] - share[0]) * figures["segment"] / segments, now + best)

    return report


def estimated(problem: Problem, policy: Policy, seed: int, history: Curve) -> Point:
    """The policy with its rates by exact-belief Monte Carlo, on draws that training has not seen."""
    small, n_z = problem.distortion.size <= SMALL, problem.n_states
    steps, streams = (300, 256) if small else (90, int(ENOUGH * n_z) if n_z <= MOST_STATES else 24)
    ev = evaluate(problem, policy, steps, streams, seed=seed + 1_000_003)
    return Point.estimated(policy, ev, status=Status.BUDGET, history=history)
