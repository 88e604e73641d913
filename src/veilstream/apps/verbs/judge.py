"""`vs.judge`: what mechanisms of others reveal, beside our policy at equal error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from veilstream.artefact import Artefact
from veilstream.audit.figures import LEAST_TRACES
from veilstream.audit.judge import Judge, Judged, Judgement, Title, judge_model
from veilstream.audit.mechanisms.mechanism import Made
from veilstream.audit.pairs import Aligned
from veilstream.audit.spec import JudgeSpec
from veilstream.control.controller import controller_of
from veilstream.control.policy import Policy
from veilstream.data.spec import FitSpec, documented
from veilstream.data.utility import Utility
from veilstream.errors import InputError, need
from veilstream.shown import Progress, watching
from veilstream.solvers.api import BUILTIN, utility_of
from veilstream.solvers.warnings import about_data
from veilstream.units import counted

PLAIN = {"hold_out": 0.0, "cycle": "none", "order": 1}  # of a model that only says where the states are
PROGRAMS = 40  # streams that a program is run on


def judge(
    data: Any,
    released: Any = None,
    *,
    fit: FitSpec | None = None,
    spec: JudgeSpec | None = None,
    progress: Progress | bool | None = None,
    **options: Any,
) -> Judgement:
    """What mechanisms reveal along a whole trace, each beside our policy of the same error and the proved floor.

    data is what `fit` gives or takes, a model file or "builtin:grid4x4-q2": the mechanisms of the list are put on the
    model. With released, data and released are what `fit` takes: the true readings and what any program showed of them.
    An entry of mechanism may also be a policy, or any object with `start() -> state` and
    `release(state, reading) -> (state, shown)`.

        >>> import veilstream as vs
        >>> found = vs.judge("builtin:binary", mechanism=["planar-laplace", "hold=2"], certify_seconds=1, streams=40)
        >>> [row.label for row in found.rows]
        ['planar-laplace 0.25', 'hold 2']
        >>> found.rows[1].ours.leakage.value < found.rows[1].leakage.value
        True

    fit says how data becomes states and steps. spec holds the choices below, as a `JudgeSpec`; those given by name win
    over it.

    CHOICES

    The `Judgement` has `.rows`, `.words`, `.plot()` and `.to_json()`.
    """
    started, fit = time.perf_counter(), fit or FitSpec()
    objects = [one for one in options.get("mechanism", ()) if not isinstance(one, str)]
    if objects:
        options["mechanism"] = [one for one in options["mechanism"] if isinstance(one, str)]
    spec = replace(spec or JudgeSpec(), **options)
    with watching("judging", progress) as tell:
        if released is not None:
            private = True
            utility, warnings, rows = of_files(data, released, fit, spec, tell)
        else:
            utility, artefact = utility_of(modelled(data, fit))
            private = artefact is not None
            warnings = [] if artefact is None else about_data(artefact.provenance)
            rows, left = ([], []) if objects and not spec.mechanism else judge_model(utility, spec, tell)
            warnings = [*warnings, *left]
        rows += [of_object(one, utility, spec, tell) for one in objects]
    seconds = time.perf_counter() - started
    name, truth = utility.chain.name, utility.chain.entropy_rate
    return Judgement(name, utility.unit, utility.thing, truth, rows, private, warnings, seconds)


documented(judge, JudgeSpec)


def modelled(data: Any, fit: FitSpec) -> Any:
    """A model, fitted where data was given."""
    is_text = isinstance(data, str | Path)
    if isinstance(data, Artefact) or hasattr(data, "artefact") or (is_text and str(data).endswith(".veil")):
        return data
    if is_text and str(data).startswith(BUILTIN):
        return data
    from veilstream.data.fit import fit as fitted

    return fitted(data, spec=fit, progress=False)


def of_files(
    true: Any, released: Any, fit: FitSpec, spec: JudgeSpec, progress: Progress | None
) -> tuple[Utility, Sequence[str], list[Judged]]:
    """Two files: the states are those of the true one."""
    need("polars", "data")
    from veilstream.data.fitting import fit_model
    from veilstream.data.frames import of_stream, readings_of

    if spec.mechanism:
        raise InputError("`mechanism` is for a model; two files are judged by themselves")
    first, second = (of_stream(readings_of(one, **fit.reading), fit.stream) for one in (true, released))
    model = fit_model(first, replace(fit, **PLAIN))  # type: ignore[arg-type]  # its own fields
    pairs = Aligned.of(model, first, second)
    utility, _ = utility_of(model)
    notes = [*pairs.notes, *about_few(len(pairs.traces)), *about_data(model.artefact.provenance)]
    return utility, notes, [Judge(utility, spec).pairs(pairs, "released", "shows what is in the second file", progress)]


def about_few(traces: int) -> list[str]:
    """A line where there are too few traces to resample."""
    if traces >= LEAST_TRACES:
        return []
    return [f"{counted(traces, 'trace')} only: too few for an interval; the figures are of these traces alone"]


def of_object(one: Any, utility: Utility, spec: JudgeSpec, progress: Progress | None) -> Judged:
    """A policy exactly; anything else by what it shows of streams drawn from the chain."""
    judge, name = Judge(utility, spec), type(one).__name__
    what = f"the {name} that was given"
    if isinstance(one, Policy):
        finite = controller_of(one)
        if finite is None or (finite.n_states, finite.n_outputs) != (
            len(utility.chain),
            utility.distortion.shape[1],
        ):
            raise InputError(
                f"a policy must be finite and show the model's {utility.distortion.shape[1]} releases for its "
                f"{len(utility.chain)} states; {name} does not"
            )
        return judge.made(Made([finite], utility.distortion), Title(name, None, name, what, ""), progress)
    if not (hasattr(one, "start") and hasattr(one, "release")):
        raise InputError(f"a mechanism needs start() and release(state, reading), or is a name; {name} has not both")
    return judge.pairs(Aligned.of_program(one, utility, PROGRAMS, spec.steps, spec.seed), name, what, progress)
