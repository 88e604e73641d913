"""What a solver knows when it is done."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from veilstream.artefact import Artefact, dumps, provenance, save
from veilstream.control.epsilon import Epsilon
from veilstream.control.evaluate import Evaluation, evaluate
from veilstream.control.limit_check import HELD_OUT, MODEL_ONLY, HeldOut, LimitCheck, check_limits, limits_json
from veilstream.control.policy import Policy
from veilstream.control.replay import Replay, ReplayResult
from veilstream.control.stationary import holds_all, long_run
from veilstream.control.universal_bound import worst_rate
from veilstream.data.points import described
from veilstream.errors import InputError
from veilstream.model.chain import MarkovChain
from veilstream.model.information import Array
from veilstream.model.interval import Interval
from veilstream.model.problem import Average, Budget, Problem
from veilstream.shown import Rows, Shown, picture

Progress = Callable[[float, str], None]  # fraction done, what is going on
HIDDEN, RECORD = "bits there if nothing were hidden", "on your recorded data"
WIDE = 1.96  # standard errors on each side of a 95 % interval
LOOSE, SURE = 0.01, 3.3  # a bound above what is measured by this share, and by so many standard errors, is loose


class Level(StrEnum):
    """How sure a number is."""

    PROVED = "proved"
    COMPUTED = "computed exactly"
    ESTIMATED = "estimated with an interval"
    HELD_OUT = HELD_OUT  # measured on data that was not fitted, whatever its law
    MODEL_ONLY = MODEL_ONLY  # the data behind the model is too little to say more


class Status(StrEnum):
    """How a solver ended, as a sentence."""

    CONVERGED = "converged"
    STOPPED = "not converged: stopped at max_sweeps; raise it, or take the result as an upper bound"
    BUDGET = "stopped at the training budget; a longer run may do better"
    UNCHANGED = "training did not improve on the warm start, which is returned"
    GIVEN = "nothing to solve: the policy is given"


@dataclass(frozen=True)
class Point:
    """A policy and where it operates: bits and distortion per step."""

    policy: Policy = field(repr=False)
    leakage: float
    distortion: float
    level: Level = Level.COMPUTED
    leakage_se: float = 0.0
    distortion_se: float = 0.0
    startup_bits: float | None = None
    status: Status = Status.CONVERGED
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)
    warm: Any = field(default=None, repr=False, compare=False)  # where its solver can go on from, at another weight

    def objective(self, weight: float) -> float:
        return self.leakage + weight * self.distortion

    def startup(self, problem: Problem) -> float | None:
        """`startup_bits`, computed where that was put off until the point is the one asked for."""
        known = None if self.startup_bits is not None else long_run(problem.chain, self.policy)
        return self.startup_bits if known is None else known.startup_bits(problem.distortion)

    @classmethod
    def of(cls, problem: Problem, policy: Policy, steps: int = 300, streams: int = 256, seed: int = 0) -> "Point":
        """Where a policy operates: computed where that can be, else estimated on so many steps and streams.

        Where the memory forgets what still matters I(Z;Y|memory) is an upper bound only; a loose one is not shown.
        """
        known, d = long_run(problem.chain, policy), problem.distortion
        if known is None:
            return cls.estimated(policy, evaluate(problem, policy, steps, streams, seed=seed))
        rates = known.rates(d)
        if not holds_all(problem.chain, policy):
            seen = evaluate(problem, policy, steps, streams, seed=seed)
            if rates.leakage > (1 + LOOSE) * seen.leakage + SURE * seen.leakage_se:
                return cls.estimated(policy, seen, distortion=rates.distortion, distortion_se=0.0)
        return cls(policy, *rates, startup_bits=known.startup_bits(d))

    @classmethod
    def estimated(cls, policy: Policy, ev: Evaluation, **known: Any) -> "Point":
        """From a simulation; `known` replaces what is known better."""
        found = {"leakage": ev.leakage, "distortion": ev.distortion, "level": Level.ESTIMATED}
        errors = {"leakage_se": ev.leakage_se, "distortion_se": ev.distortion_se, "startup_bits": ev.startup_bits}
        return cls(policy, **{**found, **errors, **known})


def mean_distortion(problem: Problem, policy: Policy) -> float:
    """In the long run: computed where that can be, else estimated."""
    known = long_run(problem.chain, policy)
    return evaluate(problem, policy).distortion if known is None else known.rates(problem.distortion).distortion


class Solver(ABC):
    """A frozen set of hyper-parameters that finds a policy for each weight; the rest says what else it can do."""

    clocks: ClassVar[bool] = False  # whether it can look at the public clock of a chain

    @property
    def name(self) -> str:
        """How solutions call it, when it was not asked for by name."""
        return type(self).__name__

    @property
    def sharp(self) -> bool:
        """Whether a state may always show what is nearest to it: the end of the curve."""
        return True

    @abstractmethod
    def at(
        self, problem: Problem, weights: Array, progress: Progress | None = None, warm: Point | None = None
    ) -> list[Point]: ...

    def meet(
        self,
        problem: Problem,
        constraint: Average | Budget,
        progress: Progress | None = None,
        replay: Replay | None = None,
    ) -> "tuple[Point, float] | None":
        """Its own way to a limit, and the weight there (0 where it needs none); None: by `search.meet`."""
        return None

    def rough(self, problem: Problem) -> "Solver":
        """The same for a first look around."""
        return self

    def windowed(self) -> "Solver":
        """The same, with policies that remember releases and can share time or a ladder; `grown` begins from them."""
        return self

    def carries(self, problem: Problem) -> bool:
        """Whether a warm point leads to one as good as none: then nothing is begun afresh on the way to a limit."""
        return False

    def grown(self, problem: Problem, weight: float, point: Point) -> Point:
        """The point found at this weight, with a memory made to measure where that leaks less."""
        return point


class Fact(NamedTuple):
    """One figure of a result, as terminal, notebook and report show it; an indented label belongs to the last."""

    label: str
    value: float | Interval
    unit: str  # and what it is a figure of
    level: str = ""  # how sure it is
    se: float | None = None
    form: str = ".4f"

    @property
    def text(self) -> str:
        """The value, with its interval where it has one."""
        if isinstance(v := self.value, Interval):
            return f"{v.value:{self.form}} [{v.low:{self.form}}, {v.high:{self.form}}]"
        return f"{v:{self.form}}" + ("" if self.se is None else f" ± {WIDE * self.se:{self.form}}")

    @property
    def note(self) -> str:
        return ", ".join(filter(None, (self.unit, self.level)))


@dataclass(frozen=True, repr=False)
class Solution(Shown):
    """The answer of `solve`. Lower bounds hold for every policy.

    `leakage` and `distortion` are those of the long run of the chain, bits and distance per step; where a person's
    readings are behind it, `record.bits` and `record.error` are those on her recorded data, which `veil solve` says
    first, and `held_out` has those on later data.

    >>> import veilstream as vs
    >>> solution = vs.solve("builtin:grid2x3-toy", avg=0.6, certify=True, certify_seconds=1)
    >>> round(solution.leakage, 2), solution.method
    (0.16, 'causal-ba')
    >>> solution.leakage_lower <= solution.leakage, 0 <= solution.gap < 0.05
    (True, True)
    """

    problem: Problem = field(repr=False)
    method: str
    policy: Policy = field(repr=False)
    leakage: float
    distortion: float
    weight: float  # bits per unit of distortion
    lower_bound: float | None  # of leakage + weight * distortion, whatever the policy
    leakage_lower: float | None  # of leakage, for every policy with at most this distortion
    startup_bits: float | None  # once, on top of the rate
    level: Level
    leakage_se: float
    distortion_se: float
    status: Status
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)
    warnings: list[str] = field(default_factory=list)
    certificate: Any = field(default=None, repr=False)
    record: ReplayResult | None = None  # the same policy on the recorded streams that the limit is about
    held_out: HeldOut | None = None  # and on later ones that nothing was fitted to
    ladder: Any = field(default=None, repr=False)  # `solvers.adaptive.Climb`: what keeps the limit, where feedback does
    total: Any = None  # `solvers.totals.Kept`: where what is released is to add up
    behind: Any = field(default=None, repr=False)  # `solvers.behind.Price`: where it looks at a finer policy's releases
    epsilon: Epsilon | None = None  # where it was limited
    asked: Any = field(default=None, repr=False)  # `solvers.api.Asked`: the model and its limits, where it is of one

    @classmethod
    def of(cls, problem: Problem, method: str, point: Point, weight: float) -> "Solution":
        own = {f.name: getattr(point, f.name) for f in fields(point) if f.name in cls.__dataclass_fields__}
        own |= {"policy": point.policy.made_for(problem.chain), "startup_bits": point.startup(problem)}
        warnings = problem.chain.warnings
        return cls(problem, method, weight=weight, lower_bound=None, leakage_lower=None, warnings=warnings, **own)

    def recorded(self, replay: Replay) -> "Solution":
        """With what the policy does on recorded streams."""
        return replace(self, record=replay.whole(self.policy, self.problem.chain))

    @property
    def objective(self) -> float:
        return self.leakage + self.weight * self.distortion

    @property
    def gap(self) -> float | None:
        """(objective - lower_bound) / objective; 0 where the objective is 0."""
        if self.lower_bound is None:
            return None
        return (self.objective - self.lower_bound) / self.objective if self.objective > 0 else 0.0

    @cached_property
    def worst_leakage(self) -> float | None:
        """Bits per step that no data whatever can exceed, proved; None where the memories are too many to look at."""
        return worst_rate(self.policy)

    @property
    def person(self) -> MarkovChain:
        """Whose data it is about: not the chain of finer releases that a policy behind another looks at."""
        return self.problem.chain if self.behind is None else self.behind.audience.truth.chain

    @property
    def window(self) -> int | None:
        """Released symbols the policy remembers; None where that is not what it remembers."""
        return self.policy.window

    @property
    def limits(self) -> list[LimitCheck]:
        """Every limit that was asked for, and whether later data shows it kept; none where there is no person."""
        if self.held_out is None and not (self.asked is not None and self.asked.utility.fitted):
            return []
        beyond = 0.0 if self.asked is None else 1 - self.asked.quantile
        return check_limits(self.problem.constraint, self.held_out, self.unit, self.record is None, beyond)

    def to_json(self) -> dict[str, Any]:
        """What `veil solve` prints as JSON."""
        later = self.held_out
        return {
            "chain": self.problem.chain.name,
            "method": self.method,
            "window": self.window,
            "constraint": str(self.problem.constraint),
            "leakage": self.leakage,
            "leakage_se": self.leakage_se,
            "distortion": self.distortion,
            "weight": self.weight,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "leakage_lower": self.leakage_lower,
            "gap": self.gap,
            "startup_bits": self.startup_bits,
            "level": str(self.level),
            "status": str(self.status),
            "seconds": round(self.seconds, 3),
            "warnings": self.warnings,
            **({} if self.record is None else self.record.to_json()),
            **({} if self.ladder is None else {"feedback": self.ladder.to_json()}),
            **({} if later is None else {"held_out": later.to_json()}),
            **limits_json(self.limits),
            **({"worst_leakage": self.worst_leakage} if later or self.record else {}),
            **({} if self.total is None else {"total": self.total.to_json()}),
            **({} if self.epsilon is None else {"epsilon": self.epsilon.to_json()}),
            **({} if self.behind is None else {"behind": self.behind.to_json(self.leakage)}),
        }

    def facts(self) -> list[Fact]:
        """Every figure of it, in the order in which it is read."""
        tried, later, kept, unit = self.record, self.held_out, self.total, self.unit or "units"
        wrong = f"{unit} of steps wrong," if unit == "%" else unit
        units = "" if later is None else f"{later.level}: {later.units} {later.unit}"
        level = str(self.level) if self.behind is None else f"at most, by what its memory keeps: {self.level}"
        rate = self.leakage, "bits per step", level, self.leakage_se or None
        bits = [Fact("leakage", *rate)]
        if tried is not None:
            later_error = [] if later is None else [Fact("  on later data", later.raw_distortion, unit, units)]
            truth = [] if tried.truth is None else [Fact("  the truth", tried.truth, HIDDEN)]
            bits = [
                Fact("error", tried.error, f"{wrong} on average", RECORD),
                *later_error,
                Fact("  long run", self.distortion, unit, "under the fitted chain"),
                Fact("leakage", tried.bits, f"bits per step {RECORD}", "starts and gaps in it", tried.bits_se),
                *truth,
                Fact("  long run", *rate),
            ]
        found = [*bits, *self._bounds(units), *([] if self.behind is None else self.behind.facts(self.leakage))]
        if tried is None:
            found.append(Fact("distortion", self.distortion, f"{wrong} on average"))
        if self.asked is not None and (between := self.asked.between_states(self)) is not None:
            found.append(Fact("between states", between, f"{wrong} from state to release"))
        found.append(Fact("objective", self.objective, f"leakage + {self.weight:g} x distortion"))
        if self.lower_bound is not None:
            found.append(Fact("  at least", self.lower_bound, "for any policy", f"proved: gap {self.gap:.2%}"))
        if self.epsilon is not None:
            found.append(Fact("epsilon", self.epsilon.step, "nats, of one release, whatever is known", "proved"))
            found.append(Fact("  all of them", self.epsilon.event, "nats, of one step", "under the fitted chain"))
        if self.startup_bits is not None:
            found.append(Fact("start-up", max(self.startup_bits, 0.0), "bits once, on top of the rate", form=".2f"))
        if kept is not None:
            without = f"error of the mean over releases ({kept.off_before:+.1%} without)"
            found.append(Fact("total", kept.off, without, form="+.3%"))
            spread = "standard deviation of one release of that data"
            found.append(Fact("  spread", kept.spread, spread, "estimated", form=".2%"))
            found.append(Fact("  its price", kept.bits, f"bits per step {RECORD}", form="+.4f"))
        if self.asked is not None and self.unit:
            found.append(Fact("releases", self.problem.n_outputs, described(self.asked.utility.points), form="d"))
        long = "" if tried is None else "long run"
        return [
            *found,
            Fact("the truth", self.person.entropy_rate, "bits per step if nothing were hidden", long),
        ]

    def _bounds(self, units: str) -> list[Fact]:
        """What bounds its leakage: on later data, whatever the data is, by its meter."""
        tried, later, found = self.record, self.held_out, list[Fact]()
        if self.leakage_lower is not None:
            found.append(Fact("  at least", self.leakage_lower, "bits for any policy this accurate", "proved"))
        if later is not None:
            found.append(Fact("  on later data", later.leakage, "bits", units))
        if (later or tried) and self.worst_leakage is not None:
            found.append(Fact("  at most", self.worst_leakage, "bits whatever the data is", "proved"))
        if self.ladder is not None and tried is not None and tried.charged is not None:
            found.append(Fact("  charged", tried.charged, "bits", "what its meter will say: proved under the chain"))
        return found

    # --- as a file, a line, a picture --------------------------------------------------------------------

    @property
    def unit(self) -> str:
        """Of the distortion; "" where it has none."""
        return "" if self.asked is None else str(self.asked.unit)

    def parts(self, command: str = "veilstream.solve") -> dict[str, Any]:
        """What its policy file holds, as `save` takes it; command: what made it."""
        if self.asked is not None:
            return {"policy": self.policy, **self.asked.parts(self, command)}
        return {
            "policy": self.policy,
            "problem": self.problem,
            "provenance": provenance(command, solution=self.to_json()),
        }

    @cached_property
    def artefact(self) -> Artefact:
        """The same as its policy file holds it: what `audit`, `report` and `release` go on with."""
        return dumps(**self.parts())[0]

    def save(self, path: str | os.PathLike[str], command: str = "veilstream.solve") -> Artefact:
        """Write the policy file, as `veil solve -o` does, for `veil release`, `veil serve` and `vs.load`."""
        return save(path, **self.parts(command))

    def plot(self, seed: int = 0) -> Any:
        """A matplotlib Figure: where it lies between truth and nothing, and a day drawn from the chain, released."""
        if self.behind is not None:
            raise InputError("a policy behind another has no picture of its own: it looks at releases, not at a day")
        return picture("solution", self, seed)

    def about(self) -> tuple[str, Rows]:
        far = f"{self.distortion:.3g} {self.unit}".rstrip()
        line = f"{self.problem.chain.name}: {self.leakage:.4f} bits per step at distortion {far}, {self.method}"
        if (tried := self.record) is not None:
            line = (
                f"{self.problem.chain.name}: {tried.bits:.4f} bits per step on your recorded data, error "
                f"{tried.error:.3g} {self.unit}; long run {self.leakage:.4f} at {far}; {self.method}"
            )
        rows = [*(("limit", c.words) for c in self.limits)] or [("limit", str(self.problem.constraint))]
        rows += [(f.label.strip(), f"{f.text} {f.note}") for f in self.facts()]
        return line, [*rows, ("status", str(self.status)), *(("!", warning) for warning in self.warnings)]

    def with_bound(self, bound: float, certificate: Any, elsewhere: float = 0.0) -> "Solution":
        """With a proved lower bound on the objective; `elsewhere`: one on leakage from other weights."""
        lower = max(0.0, bound - self.weight * self.distortion, elsewhere)
        return replace(self, lower_bound=bound, leakage_lower=lower, certificate=certificate)
