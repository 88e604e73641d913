"""Limits as people say them: "500m", "25%" of what revealing nothing costs, "home=5km,*=500m", "500m@99%".

What to do about a limit that the states of a model are too coarse for.
"""

from __future__ import annotations

import shlex

import numpy as np

from veilstream.data.utility import Utility
from veilstream.errors import InputError
from veilstream.model.problem import Average, Both, Budget, Constraint, Instantaneous, parts
from veilstream.units import SMALLER, parse_quantity

Quantity = str | float | None  # with a unit, or in the unit of the distortion


def quantile_of(text: Quantity) -> tuple[Quantity, float]:
    """A limit with the share of readings it is for: "500m@99%" is ("500m", 0.99); without a share for all of them."""
    if not isinstance(text, str) or "@" not in text:
        return text, 1.0
    limit, _, share = text.rpartition("@")
    try:
        part = float(share.removesuffix("%")) / 100
    except ValueError:
        part = 0.0
    if not share.endswith("%") or not 0 < part <= 1:
        raise InputError(f"`max`: {share!r} is no share of the readings; write it like 500m@99%")
    return limit, part


def constraint_of(
    model: Utility, avg: Quantity, most: Quantity, weight: float | None, budget: float | None, command: str = ""
) -> Constraint:
    """`avg`, `weight` or `budget`, alone or with `max`. command: that made the model."""
    given = [name for name, v in (("`avg`", avg), ("`weight`", weight), ("`budget`", budget)) if v is not None]
    if len(given) > 1:
        raise InputError(f"give one of {', '.join(given)}, not several")
    average: Average | Budget | None = None
    if avg is not None:
        average = Average(limit=mean_limit(model, avg))
    elif weight is not None:
        average = Average(weight=weight)
    elif budget is not None:
        average = Budget(budget)
    if most is None:
        if average is None:
            one = f"1{model.unit}"
            raise InputError(
                f"say how much utility is needed: `avg='25%'` of what revealing nothing costs, `avg='{one}'`, "
                f"`max='{one}'`, `weight=1.0` or `budget=0.1`"
            )
        return average
    limit = Instantaneous(limits(model, most, command))
    return limit if average is None else Both(average, limit)


def mean_limit(model: Utility, text: str | float) -> float:
    """2km, or 25%: of what revealing nothing costs."""
    if not isinstance(text, str) or not text.strip().endswith("%"):
        return quantity(text, model.unit, "`avg`")
    share = parse_quantity(text.strip().removesuffix("%"), "", "`avg`")
    if not 0 <= share <= 100:
        of = "the steps" if model.unit == "%" else "what revealing nothing costs"
        raise InputError(f"`avg` {text!r} must be from 0% to 100% of {of}")
    return share if model.unit == "%" else share / 100 * model.blind


def quantity(text: str | float, unit: str, what: str) -> float:
    """A number in this unit: a text says which it has, where there is one."""
    if isinstance(text, str) and unit and (bare := text.strip()) and not bare[-1].isalpha() and bare[-1] not in "²%":
        smaller = f" or {bare}{SMALLER[unit]}" if unit in SMALLER else ""  # what a bare number may have meant
        raise InputError(f"{what} {bare!r} has no unit; write {bare}{unit}{smaller}")
    return parse_quantity(text, unit, what)


def limits(model: Utility, text: str | float, command: str = "") -> float | tuple[float, ...]:
    """One limit for all, or name=limit pairs with * for the rest: home=5km,*=500m."""
    if not isinstance(text, str) or "=" not in text:
        return quantity(text, model.unit, "`max`")
    by_name: dict[str, float] = {}
    for part in text.split(","):
        given, _, value = part.partition("=")
        name = _as_shown(given.strip(), model.names)
        if name not in (*model.names, "*"):
            raise unknown_state(name, model, command)
        by_name[name] = quantity(value, model.unit, f"`max` {name}")
    missing = [n for n in model.names if n not in by_name and "*" not in by_name]
    if missing:
        raise InputError(
            f"`max` has no limit for the state {missing[0]!r}; add {missing[0]}=LIMIT, or *=LIMIT for all others"
        )
    return tuple(by_name.get(n, by_name.get("*", 0.0)) for n in model.names)


def _as_shown(name: str, names: tuple[str, ...]) -> str:
    """A state by the number that plots show for it: 4 is "stop 4", where no state is called 4."""
    meant = [n for n in names if n in (f"stop {name}", f"cell {name}")]
    return meant[0] if name not in names and len(meant) == 1 else name


# --- what to do about a limit that no release keeps, or a state that there is not ------------------------


GENERAL = "allow more, or make a model with finer states"


def anywhere(utility: Utility, constraint: Constraint) -> str | None:
    """The command for a policy that keeps these limits without states; None where there is none."""
    record, cost = utility.record, utility.cost
    if record is None or cost is None or cost.measure != "absolute" or cost.states.kind == "names":
        return None
    asked = dict[str, float]()
    for part in parts(constraint):
        if isinstance(part, Average) and part.limit is not None:
            asked["avg"] = part.limit
        elif isinstance(part, Instantaneous):
            asked["max"] = float(np.min(part.limit))
    flags = " ".join(f"--{name} {limit:g}{cost.states.unit}" for name, limit in asked.items())
    return f"veil start MODEL {flags} -o policy.veil" if flags else None


def remedy(utility: Utility, constraint: Constraint) -> str:
    """What to do about a limit that no release among these states keeps."""
    command = anywhere(utility, constraint)
    return GENERAL if command is None else f"allow more, or have no states: {command}"


def unknown_state(name: str, utility: Utility, command: str) -> InputError:
    """A limit for a state that there is not: which there are, most visited first, and how one gets a name."""
    names = utility.names
    if utility.replay is None or len(names) != utility.chain.n_symbols:
        return InputError(f"`max` names the unknown state {name!r}; states: {', '.join(names[:8])}, ..., or *")
    visits = np.bincount(utility.chain.symbols[utility.replay.states], minlength=len(names))
    first = np.argsort(-visits, kind="stable")[:4]
    often = ", ".join(f"{names[x]} ({visits[x] / visits.sum():.0%} of steps)" for x in first)
    return InputError(
        f"`max` names the unknown state {name!r}; the most visited of {len(names)} are {often}; to give one that name: "
        f"{_named(command, f'{names[first[0]]}={name}')}"
    )


def _named(command: str, pair: str) -> str:
    """The fit that made a model, with one more name."""
    if command.split()[:2] != ["veil", "fit"]:  # made in Python
        return f"vs.fit(..., names=[{pair!r}])"
    return shlex.join([*shlex.split(command), "--name", pair])
