"""The two ways veilstream says no."""


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


class ImpossibleObservation(RuntimeError):
    """A release was observed that the policy gives probability zero. Fail closed: there is no belief to go on with.

    >>> import veilstream as vs
    >>> issubclass(vs.ImpossibleObservation, RuntimeError)
    True
    """
