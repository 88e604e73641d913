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
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.container import pack, unpack, write
from veilstream.control import adaptive as _ladder  # noqa: F401
from veilstream.control import belief as _belief  # noqa: F401  (every kind of policy a file may hold)
from veilstream.control import controller as _controller
from veilstream.control.frame import Frame
from veilstream.control.frame_ladder import FrameLadder
from veilstream.control.policy import Policy, restore
from veilstream.data.cost import MEASURES, MOST_LETTERS, TABLE, Cost
from veilstream.data.spec import Recording
from veilstream.data.states import StateSpace
from veilstream.data.trajectories import Trajectories
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.problem import Problem
from veilstream.model.serialize import export_chain, export_constraint, plain, restore_chain, restore_constraint
from veilstream.shown import Rows, Shown, picture
from veilstream.units import format_duration, printable

FORMAT = "veilstream"
VERSION = 2
# parts that are written and read alike
PLAIN: dict[str, Any] = {"states": StateSpace, "points": StateSpace, "record": Trajectories, "held_out": Trajectories}
NO_CHAIN = (
    "a policy of veil start believes no chain of its person, which this needs: veil fit SOURCE -o model.veil makes one "
    "of her readings (or veil refit the model that its places are of, and veil start it again)"
)
BEHIND = (
    "this policy looks at the releases of a finer one, not at readings: name it as an audience of that one, as in veil "
    "release FINER.veil --audience FILE"
)
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
    finer: Artefact | None = None  # of a policy for an audience behind another: that one; its releases are the states
    truth: NDArray[np.float64] | None = None  # and what its own releases cost from the true states, |Z| x |Y|

    @property
    def unit(self) -> str:
        """Unit of the distortion; "" where it has none."""
        if isinstance(self.policy, Frame | FrameLadder):
            return self.policy.lattice.unit
        return self.cost_unit if self.cost_unit is not None else "" if self.states is None else self.states.unit

    @property
    def cost(self) -> Cost:
        """Cost of a release for a reading: the distortion, from the reading itself rather than its state."""
        if self.states is None or (self.measure == TABLE and self.problem is None):
            raise InputError("the file knows no places or levels, so there are no distances from readings")
        shown, table = self.points or self.states, None
        if self.measure == TABLE and self.problem is not None:
            table = self.problem.distortion[np.unique(self.chain.symbols, return_index=True)[1]]
        return Cost(self.states, shown, self.measure, table, self.unit)

    @property
    def policies(self) -> list[Policy]:
        """Those that a release goes through, the finest first."""
        before = [] if self.finer is None else self.finer.policies
        return before if self.policy is None else [*before, self.policy]

    @property
    def person(self) -> Artefact:
        """The policy that looks at true states: the finest of those that this one is behind, or itself."""
        return self if self.finer is None else self.finer.person

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

    def answer(self) -> tuple[Policy, Problem]:
        """Its policy with the problem behind it, for whoever must know the person's chain."""
        if isinstance(self.policy, Frame | FrameLadder):
            raise InputError(NO_CHAIN)
        if self.policy is None or self.problem is None:
            raise InputError("this file is a model without a policy; make one with veil solve MODEL -o policy.veil")
        if self.finer is not None:
            raise InputError(BEHIND)
        return self.policy, self.problem

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
    recording: Recording | None = None,
    period_s: float | None = None,
    epoch_s: float = 0.0,
    provenance: Mapping[str, Any] | None = None,
    name: str = "the file",
    **parts: Any,
) -> tuple[Artefact, bytes]:
    """The bytes of a .veil file, and what it holds. period_s and epoch_s: for a recording that has no more to say.

    parts: the fields of an `Artefact` by name; the chain may be that of the problem. The readings are a model's, none
    go into a policy's file. name: of the file, for messages.
    """
    said = {
        "policy": policy,
        "recording": recording,
        "provenance": provenance,
        "period_s": period_s,
        "epoch_s": epoch_s,
    }
    meta, arrays = _described(said | parts, name)
    artefact = _build(meta, arrays, name)  # what cannot be loaded is not written
    meta["recording"] = artefact.recording.export()
    meta["sha256"] = _digest(meta, arrays)
    return replace(artefact, sha256=meta["sha256"]), pack(meta, arrays)


def _described(parts: Mapping[str, Any], name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Description and arrays, of what `dumps` takes."""
    policy, recording = parts["policy"], parts["recording"]
    period_s, epoch_s = parts.get("period_s"), parts.get("epoch_s", 0.0)
    problem: Problem | None = parts.get("problem")
    chain: MarkovChain | None = parts.get("chain") or (None if problem is None else problem.chain)
    if chain is None:
        raise InputError(f"{name}: a .veil file needs a chain, or a problem that has one")
    if recording is not None and (period_s is not None or epoch_s):
        raise InputError(f"{name}: give a recording, or period_s and epoch_s, not both")
    meta: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "recording": {"period_s": period_s, "epoch_s": epoch_s} if recording is None else recording.export(),
        "provenance": plain(dict(parts["provenance"] or {})),
    }
    written = {"chain": export_chain(chain)}
    written |= {k: parts[k].export() for k in PLAIN if parts.get(k) is not None}
    if problem is not None:
        d = problem.distortion if problem.forbidden is None else np.where(problem.forbidden, np.inf, problem.distortion)
        distances = {"distortion": d} | ({} if problem.worst is None else {"worst": problem.worst})
        said = {"measure": parts.get("measure", "absolute"), "unit": parts.get("cost_unit")}
        written["problem"] = {"constraint": export_constraint(problem.constraint), **said}, distances
    if policy is not None:
        _check_own_chain(policy, chain, name)
        written["policy"] = policy.export()
    if (finer := parts.get("finer")) is not None:
        written["finer"] = _whole(finer, name)
        written["problem"][1]["truth"] = parts["truth"]
    arrays: dict[str, NDArray[Any]] = {}
    for part, (description, own) in written.items():
        meta[part] = description
        arrays |= {f"{part}/{k}": np.ascontiguousarray(v) for k, v in own.items()}
    return meta, arrays


def _whole(artefact: Artefact, name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """A policy's file inside another, with its own checksum: the one by which a gateway knows it."""
    meta, arrays = _described({f.name: getattr(artefact, f.name) for f in fields(artefact)}, name)
    if _digest(meta, arrays) != artefact.sha256:
        raise InputError(f"{name}: the finer policy is not as its file has it; load it from its file")
    return {**meta, "sha256": artefact.sha256}, arrays


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
    write(Path(path), data)
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
        what = "an unknown version"
        if isinstance(version, int) and version >= 1:
            older = "made by an older veilstream; make it again with `veil fit` and `veil solve`"
            what = older if version < VERSION else "made by a newer veilstream; upgrade"
        raise InputError(f"{name}: format {repr(version)[:20]}, this veilstream reads {VERSION}: {what}")
    stated = meta.pop("sha256", None)
    if stated != _digest(meta, arrays):
        raise InputError(f"{name}: damaged or altered (its checksum does not match its content); make it anew")
    return replace(_build(meta, arrays, name), sha256=stated)


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
        return _restored(meta, arrays)
    except InputError as fault:
        raise InputError(f"{name}: {printable(str(fault))}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as fault:
        raise InputError(
            f"{name}: the description is not complete ({type(fault).__name__}: {printable(str(fault))[:60]})"
        ) from None


def _restored(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Artefact:
    for key, array in arrays.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise InputError(f"{key} holds a number that is not a number")
    chain = restore_chain(meta["chain"], _part(arrays, "chain"))
    parts: dict[str, Any] = {k: kind.restore(meta[k], _part(arrays, k)) for k, kind in PLAIN.items() if k in meta}
    policy, problem, states = None, None, parts.setdefault("states", None)
    if states is not None and chain.n_symbols != len(states):
        raise InputError(f"{len(states)} states but a chain on {chain.n_symbols}")
    if any(states is None or not parts[k].fits(states) for k in ("record", "held_out") if k in parts):
        raise InputError("the record does not fit the states")
    if "problem" in meta:
        said, distances = meta["problem"], _part(arrays, "problem")
        parts |= {"measure": said.get("measure", "absolute"), "cost_unit": said.get("unit")}
        constraint = restore_constraint(said["constraint"])
        problem = Problem(chain, distances["distortion"], constraint, distances.get("worst"))
    if "finer" in meta:
        parts |= {"finer": _finer(dict(meta["finer"]), _part(arrays, "finer")), "truth": arrays["problem/truth"]}
    if "policy" in meta:
        policy = restore(meta["policy"], _part(arrays, "policy"), chain)
        if policy.n_states != len(chain):
            raise InputError(f"the policy looks at {policy.n_states} states, the chain has {len(chain)}")
        policy.check()
    recording, whence = Recording(**meta["recording"]), dict(meta.get("provenance", {}))
    artefact = Artefact(policy=policy, problem=problem, chain=chain, recording=recording, provenance=whence, **parts)
    _check_releases(artefact)
    _check_finer(artefact)
    return artefact


def _finer(meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Artefact:
    stated = meta.pop("sha256", None)
    if stated != _digest(meta, arrays):
        raise InputError("the finer policy in it is damaged or altered")
    return replace(_restored(meta, arrays), sha256=stated)


def _check_finer(made: Artefact) -> None:
    """Raises unless the policy can look at what the finer one releases."""
    finer, problem, truth = made.finer, made.problem, made.truth
    if finer is None or truth is None:
        return
    known = finer.policy is not None and finer.problem is not None and problem is not None
    if not known or not isinstance(made.policy, _controller.Controller):
        raise InputError("behind a finer policy with its problem there must be a finite one (vs.Controller)")
    n, person = len(made.chain), finer.person.chain
    if finer.policy.n_outputs != n or problem.forbidden is not None:  # type: ignore[union-attr]
        raise InputError(f"a policy for {n} releases does not fit the finer one")
    if truth.shape != (len(person), problem.n_outputs) or not (truth >= 0).all():  # type: ignore[union-attr]
        raise InputError("the distances from the true states do not fit the policies")


def _check_releases(made: Artefact) -> None:
    """Raises unless the cost is a known one, and there is a point of the states' kind for every release."""
    unit, points, states = made.cost_unit, made.points, made.states
    named = unit is None or (isinstance(unit, str) and unit.isprintable() and len(unit) <= MOST_LETTERS)
    if made.measure not in (*MEASURES, TABLE) or not named:
        raise InputError(f"unknown kind or unit of distortion, {str(made.measure)[:20]!r}")
    if points is None:
        return
    zones = points.kind == "names" and made.measure == TABLE and states is not None and states.is_map
    if states is None or not (zones or (points.is_map, points.unit) == (states.is_map, states.unit)):
        raise InputError("the points that are released are of another kind than the states")
    if made.problem is None or made.problem.n_outputs != len(points):
        n = "none" if made.problem is None else made.problem.n_outputs
        raise InputError(f"{len(points)} points but a policy for {n}")


def _part(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    return {k.removeprefix(f"{name}/"): v for k, v in arrays.items() if k.startswith(f"{name}/")}


def _check_own_chain(policy: Policy, chain: MarkovChain, name: str) -> None:
    """The file holds one chain: a policy that was made for another cannot be in it."""
    for what in ("transition", "initial", "cycle"):
        carried, own = getattr(policy.chain, what, None), getattr(chain, what, None)
        same = own is not None and carried is not None and carried.shape == own.shape
        if carried is not None and not (same and np.abs(carried - own).max() <= SAME_CHAIN):
            raise InputError(f"{name}: the policy was made for another chain than the file's (its {what} differs)")
