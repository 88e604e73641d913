"""What a fleet asks of every user, whatever the unit of her data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from veilstream.data.limits import quantity
from veilstream.data.recording import Recording
from veilstream.errors import InputError
from veilstream.model.problem import Average, Both, Budget, Constraint, Instantaneous
from veilstream.units import adds_up, parse_quantity

DEFAULT_AVG = "25%"
ROOM = 1.1  # times the least distortion there is: what a limit that nobody asked for is at least


@dataclass(frozen=True)
class Settings:
    """Limits may be given once per unit: "1km", "0.1kWh". 25% is of what revealing nothing costs her."""

    avg: tuple[str, ...] = ()
    at_most: tuple[str, ...] = ()
    weight: float | None = None
    budget: float | None = None
    method: str = "causal-ba"
    window: int | None = None
    points: int = 12  # of the curve
    certify_s: float = 5.0  # seconds of proof per user; 0: none
    audit: bool = True
    feedback: str | None = None  # a stretch of time between public moves; None: no ladder
    show: tuple[str, ...] = ()  # how far apart releases are, or "states"; the default where none is in the unit
    keep_total: bool | None = None  # releases add up to the readings in the mean; None: where values are summed
    by_default: bool = False  # whether nobody asked for the limit: then it is one that can be kept

    def __post_init__(self) -> None:
        given = [
            n for n, v in (("`avg`", self.avg), ("`weight`", self.weight), ("`budget`", self.budget)) if v or v == 0.0
        ]
        if len(given) > 1:
            raise InputError(f"give one of {', '.join(given)}, not several")
        if not given and not self.at_most:
            object.__setattr__(self, "avg", (DEFAULT_AVG,))
            object.__setattr__(self, "by_default", True)
        if self.keep_total and self.feedback is not None:
            raise InputError("`keep_total` and `feedback` cannot be had together; give one of them")
        if self.feedback is not None and not self.avg:
            raise InputError("`feedback` keeps a mean limit: give one (`avg`)")
        if self.feedback is not None and not self.feedback.isdecimal():
            Recording(period_s=1.0).steps_in(self.feedback, "`feedback`")  # whether it is a stretch of time at all
        if self.points < 2:
            raise InputError(f"`points` must be at least 2, found {self.points}")
        for text in (*self.avg, *self.at_most):
            if "=" in text:
                raise InputError(f"{text!r}: a fleet's users have no states in common to name; give one limit per unit")
        for text in self.at_most:
            if text.strip().endswith("%"):
                raise InputError(f"`max` {text}: a share is for `avg`; give a quantity")

    def check_method(self) -> None:
        """The method exists and takes its options."""
        from veilstream.solvers import make_solver

        make_solver(self.method, window=self.window)

    def check_units(self, units: Iterable[str]) -> None:
        """Every unit met has its limit, before any work begins."""
        units = sorted(set(units))
        for unit in units:
            for what, texts in (("`avg`", self.avg), ("`max`", self.at_most)):
                if texts:
                    _for_unit(texts, unit, what, 1.0)
        for text in self.show:
            if not any(replace(self, show=(text,)).shown(unit) for unit in units):
                raise InputError(f"`show` {text}: no user has values in that unit ({', '.join(map(repr, units))})")

    def shown(self, unit: str) -> str | None:
        """What of `show` is for users in this unit."""
        for text in self.show:
            try:
                if text != "states":
                    parse_quantity(text, unit)
                return text
            except InputError:
                continue
        return None

    def adds_up(self, unit: str) -> bool:
        """Whether releases of users in this unit are to add up to their readings."""
        return adds_up(unit) and self.feedback is None if self.keep_total is None else self.keep_total

    def raised(self, limit: float, least: float) -> bool:
        """Whether a limit that nobody asked for could not be kept."""
        return self.by_default and limit < ROOM * least

    def constraint(self, unit: str, blind: float, least: float = 0.0) -> Constraint:
        """For one user; `blind`: the mean distortion of always releasing the one best state, `least`: of any policy.

        A limit that nobody asked for is raised where it could not be kept: to that share of what lies between the two.
        """
        average: Average | Budget | None = None
        if self.avg:
            most = _for_unit(self.avg, unit, "`avg`", blind)
            average = Average(limit=most if not self.raised(most, least) else least + most / blind * (blind - least))
        elif self.weight is not None:
            average = Average(weight=self.weight)
        elif self.budget is not None:
            average = Budget(self.budget)
        if not self.at_most:
            assert average is not None
            return average
        limit = Instantaneous(_for_unit(self.at_most, unit, "`max`", blind))
        return limit if average is None else Both(average, limit)


def _for_unit(texts: Sequence[str], unit: str, what: str, whole: float) -> float:
    """The first limit that can be read in this unit; a share of `whole` if none can."""
    shares = [t for t in texts if t.strip().endswith("%")]
    for text in texts:
        if text in shares:
            continue
        try:
            return quantity(text, unit, what)
        except InputError as fault:
            last = fault
    if shares:
        share = parse_quantity(shares[0].strip().removesuffix("%"), "", what)
        if not 0 <= share <= 100:
            raise InputError(f"{what} {shares[0]}: a share must be from 0% to 100%")
        return share / 100 * whole
    if len(texts) == 1 and not any(c.isalpha() for c in texts[0]):
        raise last
    example = f"0.1{unit}" if unit else "a bare number"
    raise InputError(
        f"{what} {' '.join(texts)} says nothing for users in {unit or 'no unit'}; add {what} {example}"
        + (" or 25%" if what == "`avg`" else "")
    )
