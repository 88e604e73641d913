"""The ways veilstream says no."""

from importlib import import_module
from types import ModuleType


class InputError(ValueError):
    """What was asked cannot be done: one line naming what was required, what was found, and what to do.

    Fields that the caller can set stand in backquotes, alone or with a value (`gaps`, `gaps='split'`): the command line
    says them as its flags.

        >>> import veilstream as vs
        >>> vs.Recording(gaps="jump")
        Traceback (most recent call last):
            ...
        veilstream.errors.InputError: `gaps` must be one of split, bridge, found 'jump'
    """


def need(module: str, extra: str, otherwise: str = "") -> ModuleType:
    """A library of an extra, or a line saying how to install it (and what to do without it)."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"this needs {module.split('.')[0]}: pip install 'veilstream[{extra}]'{otherwise}") from None


class Infeasible(InputError):
    """A limit that no policy keeps: what was found, and what to do about it where more is known of the model."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{found}; {remedy}")
        self.found = found


class Caution(UserWarning):
    """A line that must stand beside a result; the command line prints it, scripts are warned by it."""


class Announcement(Caution):
    """A line that must be read before a result is there: what was asked for takes hours."""


class ImpossibleObservation(RuntimeError):
    """A release was observed that the policy gives probability zero. Fail closed: there is no belief to go on with.

    >>> import veilstream as vs
    >>> issubclass(vs.ImpossibleObservation, RuntimeError)
    True
    """
