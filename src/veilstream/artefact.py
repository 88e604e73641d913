"""The .veil file: a model (states and chain) or a policy with its problem. Safe to load from a stranger.

One safetensors file: arrays of numbers, and a JSON description under one key of its header. Nothing in it is ever
executed or unpickled. Before any number is used: the size of the file and of its header, the type and shape of
every array against the bytes present, the format's version, a SHA-256 over everything (so that damage and careless
editing are found), and the invariants of every object it describes, by making that object anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.container import pack, unpack, write
from veilstream.control import adaptive as _ladder  # noqa: F401
from veilstream.control import belief as _belief  # noqa: F401  (every kind of policy a file may hold)
from veilstream.control import controller as _controller  # noqa: F401
from veilstream.control.policy import Policy, restore
from veilstream.data.cost import MEASURES, MOST_LETTERS, TABLE, Cost
from veilstream.data.recording import Recording
from veilstream.data.states import StateSpace
from veilstream.data.trajectories import Trajectories
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Problem
from veilstream.model.serialize import export_chain, export_constraint, restore_chain, restore_constraint
from veilstream.shown import Rows, Shown, picture
from veilstream.units import format_duration

FORMAT = "veilstream"
VERSION = 2
SAME_CHAIN = 1e-9  # largest difference between two copies of one chain


@dataclass(frozen=True, repr=False)
class Artefact(Shown):
    """What a .veil file holds. A model has chain and states; a policy file has policy and problem as well.

    >>> import tempfile, veilstream as vs
    >>> solution = vs.solve(vs.builtin_problem("binary", vs.Average(limit=0.1)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     art = solution.save(f"{folder}/policy.veil")
    >>> art
    <Artefact policy for binary: 2 states, average <= 0.1>
    """

    policy: Policy | None
    problem: Problem | None
    states: StateSpace | None
    chain: MarkovChain
    recording: Recording = field(default_factory=Recording)  # how readings become its symbols
    provenance: dict[str, Any] = field(default_factory=dict)
    sha256: str = ""  # identifies the content: the store is bound to it
    record: Trajectories | None = None  # of a model: the readings behind it
    held_out: Trajectories | None = None  # of a model: later readings that it was not fitted to
    points: StateSpace | None = None  # of a policy: what it releases, where that is not the states
    measure: str = "absolute"  # of a policy: what its distortion is made of, as `data.cost` knows it
    cost_unit: str | None = None  # of its distortion, where that is not the states'

    @property
    def unit(self) -> str:
        """Of the distortion; "" where it has none."""
        return self.cost_unit if self.cost_unit is not None else "" if self.states is None else self.states.unit

    @property
    def cost(self) -> Cost:
        """What a release costs a reading: the distortion, where that knows more than the state."""
        if self.states is None or (self.measure == TABLE and self.problem is None):
            raise InputError("the file knows no places or levels, so there are no distances from readings")
        shown, table = self.points or self.states, None
        if self.measure == TABLE and self.problem is not None:
            table = self.problem.distortion[np.unique(self.chain.symbols, return_index=True)[1]]
        return Cost(self.states, shown, self.measure, table, self.unit)

    @property
    def shown(self) -> StateSpace | None:
        """Where each release is: a public point, or a state."""
        return self.points or self.states

    @property
    def period_s(self) -> float | None:
        return self.recording.period_s

    @property
    def epoch_s(self) -> float:
        return self.recording.epoch_s

    @property
    def study_only(self) -> tuple[str, ...]:
        """Why no gateway should run this; empty if one may."""
        return (*self.recording.study_only, *impossible_next(self.chain))

    def plot(self) -> Any:
        """A matplotlib Figure: its states with the moves between them, and the transition probabilities."""
        return picture("model", self.states, self.chain)

    def about(self) -> tuple[str, Rows]:
        what = "model of" if self.policy is None else "policy for"
        asked = "" if self.problem is None or self.policy is None else f", {self.problem.constraint}"
        line = f"{what} {self.chain.name}: {self.chain.n_symbols} states{asked}"
        rows = [("entropy rate", f"{self.chain.entropy_rate:.3f} bits per step, order {self.chain.order}")]
        rows += [] if self.period_s is None else [("steps", f"of {format_duration(self.period_s)}")]
        rows += [] if self.unit == "" else [("distances", f"in {self.unit}")]
        return line, [*rows, *(("study only", reason) for reason in self.study_only), ("sha256", self.sha256[:16])]


def is_guess(provenance: Mapping[str, Any]) -> bool:
    """Whether nobody's readings are behind a chain: `veil start` made it of a public kernel."""
    return isinstance(provenance.get("start"), dict)


def impossible_next(chain: MarkovChain) -> tuple[str, ...]:
    """A reason not to deploy the chain, where some symbol can never follow some state."""
    follow = np.zeros((len(chain), chain.n_symbols))
    for x in range(chain.n_symbols):
        follow[:, x] = chain.rarest[:, chain.symbols == x].sum(1)
    zeros = int((follow <= 0).sum())
    return (f"{zeros} transitions of the chain have probability 0; fit with smoothing > 0",) if zeros else ()


def dumps(
    policy: Policy | None = None,
    *,
    problem: Problem | None = None,
    chain: MarkovChain | None = None,
    states: StateSpace | None = None,
    recording: Recording | None = None,
    record: Trajectories | None = None,
    held_out: Trajectories | None = None,
    points: StateSpace | None = None,
    measure: str = "absolute",
    cost_unit: str | None = None,
    period_s: float | None = None,
    epoch_s: float = 0.0,
    provenance: Mapping[str, Any] | None = None,
    name: str = "the file",
) -> tuple[Artefact, bytes]:
    """The bytes of a .veil file, and what it holds. period_s and epoch_s: for a recording that has no more to say.

    record: the person's own readings, for a model; held_out: later ones it was not fitted to; none in a policy's file.
    points: what the policy releases, where that is not the states. measure, cost_unit: of its distortion.

    name: of the file, for messages.
    """
    chain = chain if chain is not None else (problem.chain if problem is not None else None)
    if chain is None:
        raise InputError(f"{name}: a .veil file needs a chain, or a problem that has one")
    if recording is not None and (period_s is not None or epoch_s):
        raise InputError(f"{name}: give a recording, or period_s and epoch_s, not both")
    meta: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "recording": {"period_s": period_s, "epoch_s": epoch_s} if recording is None else recording.export(),
        "provenance": _plain(dict(provenance or {})),
    }
    arrays: dict[str, NDArray[Any]] = {}
    parts = {"chain": export_chain(chain)}
    if states is not None:
        parts["states"] = states.export()
    if points is not None:
        parts["points"] = points.export()
    if problem is not None:
        d = problem.distortion if problem.forbidden is None else np.where(problem.forbidden, np.inf, problem.distortion)
        distances = {"distortion": d} | ({} if problem.worst is None else {"worst": problem.worst})
        said = {"measure": measure, "unit": cost_unit}
        parts["problem"] = {"constraint": export_constraint(problem.constraint), **said}, distances
    parts |= {k: kept.export() for k, kept in (("record", record), ("held_out", held_out)) if kept is not None}
    if policy is not None:
        _check_own_chain(policy, chain, name)
        parts["policy"] = policy.export()
    for part, (description, own) in parts.items():
        meta[part] = description
        arrays |= {f"{part}/{k}": np.ascontiguousarray(v) for k, v in own.items()}
    artefact = _build(meta, arrays, name)  # what cannot be loaded is not written
    meta["recording"] = artefact.recording.export()
    meta["sha256"] = _digest(meta, arrays)
    return replace(artefact, sha256=meta["sha256"]), pack(meta, arrays)


def save(path: str | os.PathLike[str], policy: Policy | None = None, **parts: Any) -> Artefact:
    """Write a .veil file (in one move, so that no half file is ever seen) and return what it holds.

    parts: problem, chain, states, points, recording (or period_s and epoch_s), provenance, as `dumps` takes them.

        >>> import tempfile, veilstream as vs
        >>> solution = vs.solve("builtin:binary", avg=0.1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     art = vs.save(f"{folder}/policy.veil", solution.policy, problem=solution.problem)
        >>> len(art.sha256)
        64
    """
    artefact, data = dumps(policy, **parts, name=str(path))
    try:
        write(Path(path), data)
    except OSError as problem_:
        raise InputError(f"{path}: cannot be written ({problem_.strerror})") from None
    return artefact


def load(path: str | os.PathLike[str]) -> Artefact:
    """Read and check a .veil file. Every fault is one line.

    >>> import tempfile, veilstream as vs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = vs.solve("builtin:binary", avg=0.1).save(f"{folder}/policy.veil")
    ...     vs.load(f"{folder}/policy.veil").sha256 == saved.sha256
    True
    """
    name = str(path)
    meta, arrays = unpack(Path(path), name)
    if meta.get("format") != FORMAT:
        raise InputError(f"{name}: not a veilstream file")
    if (version := meta.get("version")) != VERSION:
        raise InputError(f"{name}: {_other_version(version)}")
    stated = meta.pop("sha256", None)
    if stated != _digest(meta, arrays):
        raise InputError(f"{name}: damaged or altered (its checksum does not match its content); make it anew")
    return replace(_build(meta, arrays, name), sha256=stated)


def _other_version(version: Any) -> str:
    what = "an unknown version"
    if isinstance(version, int) and version > VERSION:
        what = "made by a newer veilstream; upgrade"
    elif isinstance(version, int) and version >= 1:
        what = "made by an older veilstream; make it again with `veil fit` and `veil solve`"
    return f"format {repr(version)[:20]}, this veilstream reads {VERSION}: {what}"


def provenance(command: str, seed: int | None = None, data_sha256: str | None = None, **more: Any) -> dict[str, Any]:
    """Where a file comes from: command, seed, data hash, library versions. No time: equal inputs, equal bytes."""
    from importlib import metadata  # 4 MB, and a gateway writes no files

    versions = {"python": platform.python_version()}
    for package in ("veilstream", "numpy", "scipy", "scikit-learn", "polars", "safetensors"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {"command": command, "seed": seed, "data_sha256": data_sha256, "versions": versions, **more}


def _plain(value: Any) -> Any:
    """A provenance entry as JSON can hold it; what it cannot hold becomes text."""
    match value:
        case dict():
            return {str(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case None | bool() | str() | int():
            return value
        case float() if np.isfinite(value):
            return float(value)
        case np.ndarray() | np.generic():
            return _plain(value.tolist())
    return str(value)


def _digest(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True, ensure_ascii=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _build(meta: dict[str, Any], arrays: dict[str, NDArray[Any]], name: str) -> Artefact:
    """The objects behind a description; whatever is wrong with it comes out as one line."""
    try:
        for key, array in arrays.items():
            if array.dtype.kind == "f" and np.isnan(array).any():
                raise InputError(f"{key} holds a number that is not a number")
        chain = restore_chain(meta["chain"], _part(arrays, "chain"))
        states = StateSpace.restore(meta["states"], _part(arrays, "states")) if "states" in meta else None
        if states is not None and chain.n_symbols != len(states):
            raise InputError(f"{len(states)} states but a chain on {chain.n_symbols}")
        points = StateSpace.restore(meta["points"], _part(arrays, "points")) if "points" in meta else None
        problem, cost = None, _cost_of(meta.get("problem", {}))
        if "problem" in meta:
            constraint = restore_constraint(meta["problem"]["constraint"])
            distances = _part(arrays, "problem")
            problem = Problem(chain, distances["distortion"], constraint, distances.get("worst"))
        policy = _restore_policy(meta["policy"], _part(arrays, "policy"), chain) if "policy" in meta else None
        recording = Recording(**meta["recording"])
        record, held_out = (_record(meta, arrays, part, states) for part in ("record", "held_out"))
        _check_points(points, states, problem)
        provenance = dict(meta.get("provenance", {}))
        return Artefact(policy, problem, states, chain, recording, provenance, "", record, held_out, points, *cost)
    except InputError as fault:
        raise InputError(f"{name}: {_shown(fault)}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as fault:
        raise InputError(
            f"{name}: the description is not complete ({type(fault).__name__}: {_shown(fault)[:60]})"
        ) from None


def _cost_of(meta: Mapping[str, Any]) -> tuple[str, str | None]:
    """What the distortion is made of, and its unit."""
    measure, unit = meta.get("measure", "absolute"), meta.get("unit")
    if measure not in (*MEASURES, TABLE) or not (
        unit is None or (isinstance(unit, str) and unit.isprintable() and len(unit) <= MOST_LETTERS)
    ):
        raise InputError(f"unknown kind or unit of distortion, {str(measure)[:20]!r}")
    return measure, unit


def _check_points(points: StateSpace | None, states: StateSpace | None, problem: Problem | None) -> None:
    """Raises unless there is a place, of the states' kind, for every release."""
    if points is None:
        return
    if states is None or (points.is_map, points.unit) != (states.is_map, states.unit):
        raise InputError("the points that are released are of another kind than the states")
    if problem is None or problem.n_outputs != len(points):
        raise InputError(f"{len(points)} points but a policy for {'none' if problem is None else problem.n_outputs}")


def _record(
    meta: dict[str, Any], arrays: dict[str, NDArray[Any]], part: str, states: StateSpace | None
) -> Trajectories | None:
    if part not in meta:
        return None
    record = Trajectories.restore(meta[part], _part(arrays, part))
    if states is None or not record.fits(states):
        raise InputError("the record does not fit the states")
    return record


def _shown(fault: Exception) -> str:
    """What it says, which may quote the file: nothing that moves a terminal."""
    return "".join(c if c.isprintable() else "?" for c in str(fault))


def _part(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    return {k.removeprefix(f"{name}/"): v for k, v in arrays.items() if k.startswith(f"{name}/")}


# --- policy ----------------------------------------------------------------------------------------------


def _restore_policy(meta: Any, arrays: dict[str, NDArray[Any]], chain: MarkovChain) -> Policy:
    policy = restore(meta, arrays, chain)
    if policy.n_states != len(chain):
        raise InputError(f"the policy looks at {policy.n_states} states, the chain has {len(chain)}")
    policy.check()
    return policy


def _check_own_chain(policy: Policy, chain: MarkovChain, name: str) -> None:
    """The file holds one chain: a policy that was made for another cannot be in it."""
    for what in ("transition", "initial", "cycle"):
        carried, own = getattr(policy.chain, what, None), getattr(chain, what, None)
        same = own is not None and carried is not None and carried.shape == own.shape
        if carried is not None and not (same and np.abs(carried - own).max() <= SAME_CHAIN):
            raise InputError(f"{name}: the policy was made for another chain than the file's (its {what} differs)")
