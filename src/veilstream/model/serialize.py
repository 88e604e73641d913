"""Chains and constraints as a file holds them: a description that JSON can hold, and arrays by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.clock import Clock
from veilstream.model.problem import Average, Both, Budget, Constraint, Instantaneous


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


def export_constraint(constraint: Constraint) -> dict[str, Any]:
    match constraint:
        case Average(weight=weight, limit=limit):
            return {"kind": "average", "weight": weight, "limit": limit}
        case Instantaneous(limit=limits):
            return {"kind": "instantaneous", "limit": list(limits) if isinstance(limits, tuple) else limits}
        case Budget(bits=bits):
            return {"kind": "budget", "bits": bits}
        case Both(average=average, instantaneous=instantaneous):
            return {
                "kind": "both",
                "average": export_constraint(average),
                "instantaneous": export_constraint(instantaneous),
            }


def restore_constraint(meta: Mapping[str, Any]) -> Constraint:
    match meta["kind"]:
        case "average":
            return Average(weight=meta["weight"], limit=meta["limit"])
        case "instantaneous":
            return Instantaneous(tuple(meta["limit"]) if isinstance(meta["limit"], list) else meta["limit"])
        case "budget":
            return Budget(meta["bits"])
        case "both":
            average, instantaneous = (restore_constraint(meta[k]) for k in ("average", "instantaneous"))
            if isinstance(average, Average | Budget) and isinstance(instantaneous, Instantaneous):
                return Both(average, instantaneous)
    raise InputError(f"unknown constraint {str(meta['kind'])[:20]!r}")
