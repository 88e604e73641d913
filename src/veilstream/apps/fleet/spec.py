"""FleetSpec: every choice of a fleet, said once: where its work is done, and what is asked of every user."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from veilstream.data.limits import mean_limit, quantity
from veilstream.data.spec import FitSpec, Recording, option
from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.units import adds_up, parse_quantity

WHERE, LIMITS, MODEL = "Where it runs", "What is asked", "Model"
DEFAULT_AVG = "25%"
ROOM = 1.1  # times the least distortion there is: what a limit that nobody asked for is at least


@dataclass(frozen=True, kw_only=True)
class FleetSpec:
    """Limits may be given once per unit: "1km", "0.1kWh". 25% is of what revealing nothing costs her."""

    engine: str = option("serial", "serial, joblib (local processes) or dask.", WHERE)
    workers: int | None = option(None, "Number of worker processes (default: as many as cores).", WHERE)
    scheduler: str | None = option(None, "Address of a dask scheduler; without it a local cluster is started.", WHERE)
    avg: Sequence[str] = option(
        (),
        "Mean distortion at most: 1km, 0.1kWh (once per unit), or a share of what revealing nothing costs (default "
        "25%).",
        LIMITS,
    )
    at_most: Sequence[str] = option((), "Distortion at every step at most; once per unit.", LIMITS, "max")
    weight: float | None = option(None, "Bits per unit of distortion.", LIMITS)
    budget: float | None = option(None, "Bits per step at most.", LIMITS)
    feedback: str | None = option(
        None,
        "Correct the mean by a public move every day, week, month or 6h; for long records.",
        LIMITS,
    )
    keep_total: bool | None = option(
        None, "Releases add up to the readings in the mean (a bill); on for energy, kWh per step.", LIMITS
    )
    show: Sequence[str] = option(
        (), "Release points of a public grid this far apart, as in veil solve; once per unit.", LIMITS
    )
    method: str = option("causal-ba", "causal-ba, myopic, ...", LIMITS)
    window: int | None = option(None, "Releases a policy remembers; else what pays.", LIMITS)
    points: int = option(12, "Number of policies on each curve.", LIMITS)
    certify: float = option(5.0, "Seconds of proof per user; 0: none.", LIMITS)
    audit: str = option("quick", "quick (exact adversaries) or none.", LIMITS)
    pool: str = option("auto", "auto: users of one source help each other if they share states; off.", MODEL)
    seed: int = option(0, "Seed; that of each user follows from it and the user's name.", MODEL)
    fit: FitSpec = field(default_factory=lambda: FitSpec(cycle="none"))

    def __post_init__(self) -> None:
        known = {"pool": ("auto", "off"), "audit": ("quick", "none")}
        for name, words in known.items():
            if getattr(self, name) not in words:
                raise InputError(f"`{name}` must be {' or '.join(words)}, found {getattr(self, name)!r}")
        given = [f"`{name}`" for name in ("avg", "weight", "budget") if getattr(self, name) not in (None, (), [])]
        if len(given) > 1:
            raise InputError(f"give one of {', '.join(given)}, not several")
        if self.keep_total and self.feedback is not None:
            raise InputError("`keep_total` and `feedback` cannot be had together; give one of them")
        if self.feedback is not None and not self.avg:
            raise InputError("`feedback` keeps a mean limit: give one (`avg`)")
        if not (self.feedback or "0").isdecimal():
            Recording(period_s=1.0).steps_in(str(self.feedback), "`feedback`")  # whether it is a stretch of time at all
        if self.points < 2:
            raise InputError(f"`points` must be at least 2, found {self.points}")
        for text in (*self.avg, *self.at_most):
            if "=" in text:
                raise InputError(f"{text!r}: a fleet's users have no states in common to name; give one limit per unit")
        for text in self.at_most:
            if text.strip().endswith("%"):
                raise InputError(f"`max` {text}: a share is for `avg`; give a quantity")
        for text in self.avg:
            if text.strip().endswith("%") and not 0 <= parse_quantity(text.strip()[:-1], "", "`avg`") <= 100:
                raise InputError(f"`avg` {text}: a share must be from 0% to 100%")

    @property
    def by_default(self) -> bool:
        """Whether nobody asked for the limit: then it is one that can be kept."""
        return not self.at_most and not self.avg and self.weight is None and self.budget is None

    @property
    def asked(self) -> dict[str, Any]:
        """Choices that the result for one user depends on, beside those of the fit."""
        return {f.name: asdict(self)[f.name] for f in fields(self) if f.metadata.get("group") == LIMITS}

    def check_units(self, units: Iterable[str]) -> None:
        """Every unit met has its limit, before any work begins."""
        units = sorted(set(units))
        for unit in units:
            self.limit_of("avg", unit)
            self.limit_of("at_most", unit)
        for text in self.show:
            if not any(_is_in(text, unit) for unit in units):
                raise InputError(f"`show` {text}: no user has values in that unit ({', '.join(map(repr, units))})")

    def shown(self, unit: str) -> str | None:
        """The entry of `show` that is for users in this unit."""
        return next((text for text in self.show if _is_in(text, unit)), None)

    def adds_up(self, unit: str) -> bool:
        """Whether releases of users in this unit are to add up to their readings."""
        return adds_up(unit) and self.feedback is None if self.keep_total is None else self.keep_total

    def limits(self, utility: Utility, unit: str, least: float) -> tuple[dict[str, Any], bool]:
        """For one user, as `solve` takes them, and whether one was raised; least: mean distortion of any policy.

        A limit that nobody asked for is raised where it could not be kept: to that share of what lies between that and
        what revealing nothing costs.
        """
        found: dict[str, Any] = {name: self.limit_of(name, unit) for name in ("avg", "at_most")}
        found = {"avg": found["avg"], "max": found["at_most"], "weight": self.weight, "budget": self.budget}
        if not self.by_default:
            return found, False
        limit, blind = mean_limit(utility, DEFAULT_AVG), utility.blind
        raised = limit < ROOM * least
        return {"avg": least + limit / blind * (blind - least) if raised else DEFAULT_AVG}, raised

    def limit_of(self, field: str, unit: str) -> str | None:
        """The first text of `avg` or `max` that is in this unit; a share if none is; None where none is asked."""
        what, texts = f"`{'max' if field == 'at_most' else field}`", getattr(self, field)
        shares = [text for text in texts if text.strip().endswith("%")]
        found = [text for text in texts if text not in shares and _is_in(text, unit, quantity)] + shares
        if found or not texts:
            return str(found[0]) if found else None
        if len(texts) == 1 and not any(c.isalpha() for c in texts[0]):
            quantity(texts[0], unit, what)  # raises: it lacks a unit, or is no number at all
        raise InputError(
            f"{what} {' '.join(texts)} has no limit for users in {unit or 'no unit'}; add {what} "
            f"{f'0.1{unit}' if unit else 'a bare number'}{' or 25%' if field == 'avg' else ''}"
        )


def _is_in(text: str, unit: str, read: Callable[[str, str, str], float] = parse_quantity) -> bool:
    """Whether a quantity is one in this unit."""
    try:
        return text == "states" or read(text, unit, "") is not None
    except InputError:
        return False
