"""`vs.audit`: what adversaries learn from a policy's releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from veilstream.audit.assemble import audit_artefact
from veilstream.audit.settings import Options
from veilstream.audit.verdict import Assessment
from veilstream.data.reader_options import read_as_fitted
from veilstream.errors import InputError, need
from veilstream.shown import Progress, watching
from veilstream.solvers.api import artefact_of

if TYPE_CHECKING:
    from veilstream.data.recording import Recording


WORK = {"lookbacks": tuple, "orders": tuple, "current": bool, "seeds": int, "copies": int, "streams": int, "steps": int}


def audit(
    policy: Any,
    data: Any = None,
    *,
    against: Sequence[str] = (),
    quick: bool = True,
    stream: str | None = None,
    columns: str | Mapping[str, str] | None = None,
    skip_bad: bool = False,
    recording: Recording | None = None,
    seed: int = 0,
    progress: Progress | bool | None = None,
    **work: Any,
) -> Assessment:
    """What an adversary learns from the releases, on data drawn from the chain and on recorded data.

    policy is a `Solution`, an `Artefact` or the path of a policy file; data what `fit` takes, read and encoded as the
    model's was by default. Data later than what was fitted says whether the promise holds there and whether it still
    is the same person.

        >>> import veilstream as vs
        >>> found = vs.audit(vs.solve("builtin:binary", avg=0.1), against=["randomised-response"], streams=40, steps=90)
        >>> found
        <Assessment of causal-ba: the claim stands>
        >>> "randomised-response leaks" in found.words
        True

        against     methods to compare at equal mean distortion
        quick       exact adversaries only; False also trains the paper's network (JAX, minutes), as `veil audit` does
        recording   another way from readings to steps
        work        how much: lookbacks, current, orders, seeds, streams, steps, copies

    The `Assessment` has `.words`, `.stands`, `.warnings` and `.to_json()`.
    """
    artefact = artefact_of(policy, "no policy file {!r}; make one with veil solve MODEL -o policy.veil")
    options = _options(work, seed)
    if quick:
        options = options.quick() if not {"streams", "steps"} & work.keys() else _small(options)
    for library in ("jax", "optax") if options.learn else ():
        need(library, "deep", "; or `quick=True`, which trains no network")
    readings = None
    if data is not None:
        need("polars", "data")
        from veilstream.data.frames import of_stream

        readings = read_as_fitted(artefact.provenance, data, columns=columns, skip_bad=skip_bad)
        readings = of_stream(readings, stream)
    with watching("auditing", progress) as tell:
        return audit_artefact(artefact, readings, recording, against=against, options=options, progress=tell)


def _options(work: dict[str, Any], seed: int) -> Options:
    """How much work, checked: one look-back or order may be given as a number, several as a tuple."""
    if unknown := sorted(work.keys() - set(WORK)):
        raise InputError(f"an audit has no option {unknown[0]}; known: {', '.join(WORK)}")
    for name, kind in WORK.items():
        values = work.get(name, ())
        values = values if isinstance(values, tuple | list) and kind is tuple else [values] if name in work else []
        if not all(type(v) is (int if kind is tuple else kind) for v in values):
            wanted = {tuple: "whole numbers separated by commas", int: "a whole number", bool: "true or false"}[kind]
            raise InputError(f"{name} must be {wanted}, found {work[name]!r}")
        if kind is tuple and name in work:
            work = work | {name: tuple(values)}
    return Options(**work, seed=seed)


def _small(options: Options) -> Options:
    """Quick, on as much data as was asked for."""
    return replace(options.quick(), streams=options.streams, steps=options.steps)


audit.__name__ = "veilstream.audit"  # what `import veilstream.audit.assemble as r` looks for when it meets the verb
