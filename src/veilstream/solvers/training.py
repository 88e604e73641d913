"""The loop around a jitted learner: measure, keep the best, write a checkpoint, resume.

A learner is a pytree `State` and a function `segment(state) -> (state, figures)`, deterministic given the state: a run
that was cut and resumed gives the same curve as one that was not. A checkpoint is one safetensors file (arrays, and
JSON in its header), never a pickle; it is written beside its place and moved there, so a cut leaves the last one whole.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from veilstream.errors import InputError
from veilstream.problem import Problem

State = Any  # a pytree of arrays
Figures = dict[str, float]


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
        return cls(method, problem.chain.name, fingerprint(problem, weight), seed, asdict(options))


def fingerprint(problem: Problem, weight: float) -> str:
    """A hash of everything the learner sees of a problem."""
    digest = hashlib.sha256(repr((problem.distortion.shape, float(weight))).encode())
    for v in (problem.chain.transition, problem.chain.initial, problem.distortion, problem.allowed):
        digest.update(np.ascontiguousarray(v).tobytes())
    return digest.hexdigest()


# --- options ---------------------------------------------------------------------------------------------


def configured(kind: type, method: str, options: dict[str, Any]) -> Any:
    """A frozen dataclass of hyper-parameters from keyword options, each checked against its default's type."""
    known = {f.name: f for f in fields(kind)}
    for name, value in options.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "known: " + ", ".join(known)
            raise InputError(f"{method} has no option {name!r}; {hint}")
        default = known[name].default
        if isinstance(default, bool) or not isinstance(default, int | float):
            continue
        if isinstance(default, int) and (not isinstance(value, int) or isinstance(value, bool)):
            raise InputError(f"{method}: {name} must be a whole number, found {value!r}")
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"{method}: {name} must be a finite number, found {value!r}")
    return kind(**options)


def require(method: str, name: str, value: float, low: float, high: float = math.inf) -> None:
    if not low <= value <= high:
        wanted = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise InputError(f"{method}: {name} must be {wanted}, found {value:g}")


# --- checkpoints -----------------------------------------------------------------------------------------


def write_checkpoint(path: Path, run: Run, state: State, history: list[Figures]) -> None:
    leaves = {f"{i:05d}": np.asarray(v) for i, v in enumerate(jax.tree.leaves(state))}
    temporary = path.with_name(path.name + ".part")
    save_file(leaves, temporary, {"run": json.dumps(asdict(run)), "history": json.dumps(history)})
    os.replace(temporary, path)


def read_checkpoint(path: Path, run: Run, like: State) -> tuple[State, list[Figures]]:
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
    report: Callable[[Figures], None] | None = None,
) -> tuple[State, list[Figures]]:
    """`segments` segments, measured after each: (the best state by `objective`, the learning curve)."""
    if resume and checkpoint is None:
        raise InputError("resume needs the checkpoint to resume from: pass checkpoint=FILE too")
    path = None if checkpoint is None else Path(checkpoint)
    best, history = state, []
    if resume and path is not None:
        (state, best), history = read_checkpoint(path, run, (state, state))
    for done in range(len(history), segments):
        state, figures = segment(state)
        figures = {"segment": done + 1, "seed": run.seed, **figures, **measure(state)}
        if not math.isfinite(figures["objective"]):
            raise InputError(f"{run.method} diverged in segment {done + 1}; lower the learning rate")
        if all(figures["objective"] <= past["objective"] for past in history):
            best = state
        history.append(figures)
        if path is not None:
            write_checkpoint(path, run, (state, best), history)
        if report is not None:
            report(figures)
    return best, history
