"""The work on one user: fit, solve, trace the curve, prove, audit. Arrays and options in, bytes of files out.

A task holds all that its result depends on and nothing that is read from disk, so it can run on any machine, and its
digest says whether a result on disk is still the answer.
"""

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import veilstream
from veilstream.apps.fleet.spec import DEFAULT_AVG, FleetSpec
from veilstream.apps.report.points import curve_constraint
from veilstream.artefact import Artefact, dumps
from veilstream.audit.assemble import audit_artefact
from veilstream.audit.source import Recorded
from veilstream.audit.spec import AuditSpec
from veilstream.data.fitting import fit_model
from veilstream.data.model import FittedModel
from veilstream.data.readings import VALUE_COLUMNS, Account, Readings
from veilstream.data.spec import FitSpec
from veilstream.data.states import StateSpace
from veilstream.data.trajectories import Runs
from veilstream.errors import Caution
from veilstream.model.problem import Average
from veilstream.solvers import curve, default_weights
from veilstream.solvers.api import solve, utility_of
from veilstream.solvers.bounds import certify_curve
from veilstream.solvers.solution import Solution

WORK = 6  # raised whenever the same task gives other files
TIMED = ("seconds", "lower_bound", "leakage_lower", "gap")  # of a solution: what depends on how fast the machine is
COLUMNS = ("weight", "distortion", "leakage", "leakage_lower", "gap")  # of curve.csv
LONGEST_AUDIT = 20_000  # recorded steps that are released anew; beyond, the first so many


@dataclass(frozen=True, eq=False)
class Task:
    """One user. `space` and `prior` come from the people she shares states with, if any."""

    name: str
    readings: Readings  # hers alone
    options: FitSpec
    spec: FleetSpec
    space: StateSpace | None = None
    prior: NDArray[np.float64] | None = None
    pool: dict[str, Any] | None = None  # how the prior was chosen, for the summary

    @property
    def unit(self) -> str:
        return self.readings.unit

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Columns of the user's readings: trace, t, and lat, lon or value."""
        frame = self.readings.frame
        return {n: frame[n].to_numpy() for n in ("trace", "t", *VALUE_COLUMNS[self.readings.kind])}

    @property
    def digest(self) -> str:
        """SHA-256 over everything the result depends on."""
        space = None if self.space is None else self.space.export()
        own = self.readings
        told = {
            "veilstream": [veilstream.__version__, WORK],
            "user": [self.name, own.kind, own.unit, own.stepped, own.traced],
            "fit": asdict(self.options),
            "asked": self.spec.asked,
            "space": None if space is None else space[0],
            "pool": self.pool,
        }
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
        arrays = self.columns | ({} if space is None else {f"space/{k}": v for k, v in space[1].items()})
        if self.prior is not None:
            arrays["prior"] = self.prior
        for name in sorted(arrays):
            digest.update(f"\0{name}\0{arrays[name].dtype.str}\0{arrays[name].shape}\0".encode())
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
        return digest.hexdigest()

    @property
    def data_sha256(self) -> str:
        return hashlib.sha256(b"".join(np.ascontiguousarray(v).tobytes() for v in self.columns.values())).hexdigest()


def task_of(name: str, readings: Readings, options: FitSpec, spec: FleetSpec) -> Task:
    """A task of its own; its seed follows from the fleet's and the name, not from where or when it runs."""
    seed = int.from_bytes(hashlib.sha256(f"{spec.seed}/{name}".encode()).digest()[:4], "little")
    account = Account()
    account.add("read", readings.frame.height, f"readings of {name}")
    alone = readings.with_frame(readings.frame.with_columns(stream=pl.lit(0, pl.UInt32)))
    mine = replace(alone, streams=(name,), account=account, files=(readings.where,), sha256="", bad_streams=())
    return Task(name, mine, replace(options, seed=seed), spec)


Result = tuple[dict[str, bytes], dict[str, Any]]  # the files of one user, and her row of the summary


def work(task: Task) -> Result:
    """Everything for one user, on one thread: the same numbers whoever runs it on equal machines."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)  # they are notes of her row
        return _work(task)


def _work(task: Task) -> Result:
    began, asked, seed = perf_counter(), task.spec, task.options.seed
    account = Account(list(task.readings.account.entries))  # cleaning writes into it, and a task may run twice
    model = fit_model(replace(task.readings, account=account), task.options, task.space, task.prior)
    pool = {} if task.pool is None else {"pool": task.pool}
    known, model_file = dumps(**replace(model, data_sha256=task.data_sha256).parts("veil fleet", **pool))
    show = asked.shown(task.unit)
    utility, _ = utility_of(known, show=show)
    replay = utility.replay
    least = 0.0 if replay is None else replay.least(utility.problem(Average(weight=1.0)).allowed)
    limits, raised = asked.limits(utility, task.unit, least)
    total = replay is not None and asked.adds_up(task.unit)
    solution = solve(
        known, asked.method, asked.window, **limits, seed=seed, progress=False, feedback=asked.feedback, show=show,
        keep_total=total,
    )  # fmt: skip
    open_ = solution.problem.under(curve_constraint(solution.problem.constraint))
    found = curve(open_, default_weights(open_, asked.points), asked.method, seed=seed, window=asked.window)
    if asked.certify > 0:
        solution, *found = certify_curve([solution, *found], asked.certify)
    parts = solution.parts("veil fleet")  # without timings: equal tasks give equal bytes on equal machines
    said = {k: v for k, v in parts["provenance"]["solution"].items() if k not in TIMED}
    made = parts["provenance"] | pool | {"solution": said}
    policy, policy_file = dumps(**parts | {"provenance": made, "name": "the policy"})
    row = _row(task, model, solution, utility.blind) | {"limit_raised": raised}
    if raised:
        row["notes"] += [
            f"the default limit, {DEFAULT_AVG} of what revealing nothing costs, cannot be kept with these states: "
            f"{limits['avg']:.3g} {task.unit}, {limits['avg'] / utility.blind:.0%} of it, was taken instead; "
            "`avg` asks for another"
        ]
    row["curve"] = [
        [s.distortion, s.leakage, s.leakage_lower, None if replay is None else replay.error(s.policy)] for s in found
    ]
    lines = [COLUMNS, *(["" if v is None else f"{v:.8g}" for v in attrgetter(*COLUMNS)(s)] for s in found)]
    table = "".join(",".join(line) + "\n" for line in lines)
    files = {"model.veil": model_file, "policy.veil": policy_file, "curve.csv": table.encode()}
    if asked.audit == "quick":
        row["audit"], files["audit.json"] = _audit(policy, model.runs, seed)
    row["seconds"] = round(perf_counter() - began, 3)
    return files, row


def _row(task: Task, model: FittedModel, solution: Solution, blind: float) -> dict[str, Any]:
    chosen, record, climbed = solution.to_json(), solution.record, None
    if solution.ladder is not None:  # and what became of it on her record
        rule, tried = solution.ladder.to_json(), {} if record is None else record.to_json()["record"]
        climbed = {k: rule[k] for k in ("every", "limit", "overshoot", "first", "promised", "served")}
        climbed |= {k: tried.get(k) for k in ("rungs", "moves", "charged")}
    names = ("leakage", "leakage_lower", "gap", "distortion", "window", "constraint", "level", "status", "startup_bits",
             "raw_distortion", "held_out", "worst_leakage", "total", "limits", "limit_verdict")  # fmt: skip
    return {
        "user": task.name,
        "unit": task.unit,
        "states": len(model.states),
        "steps": model.runs.steps,
        "transitions": model.runs.transitions,
        "period_s": model.period_s,
        "cycle": model.cycle.to_json(),
        "entropy_rate": model.chain.entropy_rate,
        "blind_distortion": blind,
        **{k: chosen.get(k) for k in names},
        "raw_leakage": None if record is None else record.bits,
        "raw_truth": None if record is None else record.truth,
        "feedback": climbed,
        "may_hide_all": bool(solution.problem.allowed.all()),
        "pool": task.pool,
        "notes": [*model.notes, *solution.warnings],
    }


def _audit(policy: Artefact, runs: Runs, seed: int) -> tuple[dict[str, Any], bytes]:
    """Exact adversaries on data from the chain and on her own traces; no network is trained."""
    options = AuditSpec(seed=seed)
    left = LONGEST_AUDIT - np.cumsum([0, *map(len, runs.sequences)])  # before each
    few = zip(runs.first.tolist(), runs.sequences, left.tolist(), strict=False)
    long = [(f, s[:most]) for f, s, most in few if min(len(s), most) > max(options.lookbacks)]
    data = Recorded.symbols(policy, [s for _, s in long], [f for f, _ in long]) if long else None
    found = audit_artefact(policy, data, options)
    seen = {s.name: {who: s.adversaries["filter"][who].top1 for who in ("released", "nothing")} for s in
            found.policy.settings}  # fmt: skip
    told = found.to_json()
    row = {"stands": told["stands"], "contradictions": told["contradictions"], "named": seen}
    return row, json.dumps(told, indent=1, default=_plain).encode()


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
