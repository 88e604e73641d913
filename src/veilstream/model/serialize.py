"""Chains and constraints as a file holds them: a description that JSON can hold, and arrays by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.model.problem import Average, Both, Budget, Constraint, Instantaneous, Limit


def export_chain(chain: MarkovChain) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    meta: dict[str, Any] = {"name": chain.name}
    arrays: dict[str, NDArray[Any]] = {"transition": chain.transition, "initial": chain.initial}
    if chain.phases > 1:
        meta["clock"], arrays = chain.clock.export(), {"transition": chain.cycle}
    if chain.counts is not None:
        arrays["counts"] = chain.counts
    if chain.histories is not None:
        padded = np.full((len(chain.histories), chain.order), -1, np.int64)
        for row, history in zip(padded, chain.histories, strict=True):
            row[: len(history)] = history
        arrays["histories"] = padded
    return meta, arrays


def restore_chain(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> MarkovChain:
    histories = None
    transition = arrays["transition"]
    if transition.ndim != (3 if "clock" in meta else 2) or transition.shape[-2] != transition.shape[-1]:
        raise InputError(f"transition must be a square matrix, found shape {transition.shape}")
    if "histories" in arrays:
        padded = arrays["histories"]
        if padded.ndim != 2 or padded.dtype != np.int64 or (padded[:, 0] < 0).any() or (padded >= len(padded)).any():
            raise InputError("histories must be symbols, newest first")
        histories = tuple(tuple(int(x) for x in row if x >= 0) for row in padded)
    counts = arrays.get("counts")
    if counts is not None and counts.shape != transition.shape[-2:]:
        raise InputError(f"counts must have the shape of the transition, found {counts.shape}")
    name = str(meta.get("name", "chain"))[:80]
    name = name if name.isprintable() else "chain"
    if "clock" in meta:
        return MarkovChain(transition, None, histories, name, counts, Clock(**meta["clock"]))  # type: ignore[arg-type]
    return MarkovChain(transition, arrays["initial"], histories, name, counts)


LIMITS: dict[str, type[Constraint]] = {k.__name__.lower(): k for k in (Average, Instantaneous, Budget, Both)}


def export_constraint(constraint: Constraint) -> dict[str, Any]:
    def plain(v: Any) -> Any:
        return export_constraint(v) if isinstance(v, Limit) else list(v) if isinstance(v, tuple) else v  # type: ignore[arg-type]

    kind = type(constraint).__name__.lower()
    return {"kind": kind, **{f.name: plain(getattr(constraint, f.name)) for f in fields(constraint)}}


def restore_constraint(meta: Mapping[str, Any]) -> Constraint:
    kind = LIMITS.get(str(meta["kind"]))
    if kind is None:
        raise InputError(f"unknown constraint {str(meta['kind'])[:20]!r}")
    own = {f.name: meta[f.name] for f in fields(kind)}
    parts = {k: restore_constraint(v) if isinstance(v, Mapping) else v for k, v in own.items()}
    found = kind(**parts)  # type: ignore[arg-type]
    pair = (found.average, found.instantaneous) if isinstance(found, Both) else ()
    if pair and not (isinstance(pair[0], Average | Budget) and isinstance(pair[1], Instantaneous)):
        raise InputError("a constraint of both kinds is an average or a budget, and a limit at every step")
    return found


def plain(value: Any) -> Any:
    """A provenance entry as JSON can hold it; what it cannot hold becomes text."""
    match value:
        case dict():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case None | bool() | str() | int():
            return value
        case float() if np.isfinite(value):
            return float(value)
        case np.ndarray() | np.generic():
            return plain(value.tolist())
    return str(value)
