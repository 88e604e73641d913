"""AuditSpec: every choice of an audit, said once. `vs.audit`, the command line and the docs are made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from veilstream.data.spec import DataSpec, option
from veilstream.errors import InputError

WHAT, HOW_MUCH = "What is audited", "How much work"


@dataclass(frozen=True, kw_only=True)
class AuditSpec(DataSpec):
    """`quick` asks exact adversaries only, on less data, and needs no JAX."""

    against: Sequence[str] = option((), "Methods or mechanisms of the same mean error, as in grid,myopic.", WHAT)
    quick: bool = option(True, "Exact adversaries only: seconds, no JAX.", WHAT)
    lookbacks: tuple[int, ...] = option(
        (1, 5), "Number of past releases that the learned adversary sees, as in 1,5.", HOW_MUCH
    )
    current: bool = option(False, "The learned adversary sees the current release too.", HOW_MUCH)
    orders: tuple[int, ...] = option(
        (1, 2, 3), "Orders of the Markov chains that are fitted to recorded traces as adversaries.", HOW_MUCH
    )
    seeds: int = option(3, "Number of trainings, each with its own held-out part of the traces.", HOW_MUCH)
    streams: int | None = option(None, "Number of streams drawn from the chain (240; quick: 120).", HOW_MUCH)
    steps: int | None = option(None, "Length of these streams (300; quick: 200).", HOW_MUCH)
    copies: int | None = option(None, "Number of times each recorded trace is released anew (40; quick: 10).", HOW_MUCH)
    seed: int = option(0, "Seed of draws, folds and trainings.", HOW_MUCH)
    truth: bool = True  # also learn from the true past
    net: Any = None  # an `audit.lstm.Lstm`

    def __post_init__(self) -> None:
        names = [name.strip() for text in self.against for name in text.split(",") if name.strip()]
        object.__setattr__(self, "against", tuple(names))
        for name, low in (("seeds", 2), ("streams", 6), ("steps", 3), ("copies", 1)):
            if (value := getattr(self, name)) is not None and (type(value) is not int or value < low):
                raise InputError(f"{name} must be a whole number, at least {low}, found {value!r}")
        for name, what in (("lookbacks", "a look-back"), ("orders", "an order")):
            object.__setattr__(self, name, found := whole_numbers(name, getattr(self, name)))
            if min(found, default=0) < 1:
                raise InputError(f"{what} must be at least 1, found {min(found, default=0)}")

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Streams drawn from the chain, steps of each, and copies of each recorded trace."""
        streams, steps, copies = (120, 200, 10) if self.quick else (240, 300, 40)
        return self.streams or streams, self.steps or steps, self.copies or copies

    @property
    def burn_in(self) -> int:
        """Steps of a stream drawn from the chain that are not scored."""
        return max(self.sizes[1] // 3, *self.lookbacks)


@dataclass(frozen=True, kw_only=True)
class JudgeSpec:
    """Which mechanisms, and how much work on each."""

    mechanism: Sequence[str] = option(
        (), "A mechanism to judge, with its setting: grid=2km; may be given twice. [default: all that fit]", WHAT
    )
    certify_seconds: float = option(4.0, "Seconds of work on the certificate of each.", HOW_MUCH)
    streams: int = option(120, "Number of streams drawn from the chain.", HOW_MUCH)
    steps: int = option(200, "Length of these streams; the first third is not scored.", HOW_MUCH)
    folds: int = option(5, "Of two files: parts of the traces that are held out in turn.", HOW_MUCH)
    seed: int = option(0, "Seed of draws and folds.", HOW_MUCH)

    def __post_init__(self) -> None:
        for name, low in (("streams", 2), ("steps", 3), ("folds", 2)):
            if type(value := getattr(self, name)) is not int or value < low:
                raise InputError(f"`{name}` must be a whole number, at least {low}, found {value!r}")
        if not self.certify_seconds >= 0:
            raise InputError(f"`certify_seconds` must be at least 0, found {self.certify_seconds!r}")


def whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    """One, several, or texts of them, as in 1,5."""
    found = list[int]()
    for one in [value] if isinstance(value, int | str) else value:
        for part in one.split(",") if isinstance(one, str) else [one]:
            if not (type(part) is int or (isinstance(part, str) and part.strip().isdecimal())):
                raise InputError(f"{name} must be whole numbers separated by commas, found {value!r}")
            found.append(int(part))
    return tuple(found)
