"""Messages as they come in: as many as may be are one transaction, and one that fails costs itself alone.

What fails for a reason nobody thought of is tried again without looking at its values, so that a failure which a value
brings about is a draw that does not look, like every fault of value. What fails even then is refused. Of both the
store keeps, privately, reason, length and hash; never the text.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from veilstream.gateway.core import Core
from veilstream.gateway.outcome import Outcome
from veilstream.gateway.records import StoreError
from veilstream.gateway.wire import Reading, Refusal

log = logging.getLogger("veilstream.intake")
AT_ONCE = 2_000  # readings in one transaction, unless a single message has more
Found = list[Reading | Refusal] | Refusal


class Parcel(msgspec.Struct):
    """One message: its bytes, its readings, what became of them, and what its transport must remember of it."""

    data: bytes | bytearray
    found: Found
    note: Any = None
    outcomes: list[Outcome] | None = None

    @property
    def size(self) -> int:
        """Readings."""
        return len(self.found) if isinstance(self.found, list) else 1

    @classmethod
    def of(cls, core: Core, data: bytes | bytearray, read: Callable[[bytes | bytearray], Found], note: Any) -> "Parcel":
        try:
            return cls(data, read(data), note)
        except Exception as error:  # whatever a message holds, the process lives on
            core.set_aside(type(error).__name__, data)
            _tell(error)
            return cls(data, Refusal.unhandled, note)


def taken(parcels: Iterable[Parcel]) -> list[Parcel]:
    """The first of them, as many as one transaction takes: those after them need not be in memory yet."""
    out: list[Parcel] = []
    n = 0
    for parcel in parcels:
        out.append(parcel)
        n += parcel.size
        if n >= AT_ONCE:
            break
    return out


def handle(core: Core, parcels: Sequence[Parcel], work: Callable[[Sequence[Parcel]], None]) -> None:
    """`work` on all of them, which sets their outcomes; those that cannot be handled have none in the end."""
    for part in _parts(parcels):
        _handle(core, part, work)


def _handle(core: Core, part: Sequence[Parcel], work: Callable[[Sequence[Parcel]], None]) -> None:
    try:
        work(part)
    except (StoreError, ConnectionError):
        raise
    except Exception as error:  # whatever a message holds, the process lives on
        if len(part) > 1:
            for parcel in part:
                _handle(core, [parcel], work)
            return
        (parcel,) = part
        core.set_aside(type(error).__name__, parcel.data)
        if not _blinded(parcel):
            _refuse(core, error)
            return
        try:
            work(part)
        except (StoreError, ConnectionError):
            raise
        except Exception as again:
            parcel.outcomes = None
            _refuse(core, again)


def _blinded(parcel: Parcel) -> bool:
    """Take the values out of it; whether it had any."""
    had = False
    for r in parcel.found if isinstance(parcel.found, list) else ():
        if isinstance(r, Reading) and r.point is not None:
            r.point, had = None, True
    return had


def _refuse(core: Core, error: Exception) -> None:
    core.stats.refused[Refusal.unhandled.name] += 1
    _tell(error)


def _tell(error: Exception) -> None:
    log.error("message_unhandled", extra={"reason": type(error).__name__, "at": place_of(error)})


def _parts(parcels: Sequence[Parcel]) -> Iterator[Sequence[Parcel]]:
    """Runs of them with at most AT_ONCE readings, or one."""
    start = n = 0
    for i, parcel in enumerate(parcels):
        if i > start and n + parcel.size > AT_ONCE:
            yield parcels[start:i]
            start, n = i, 0
        n += parcel.size
    if parcels:
        yield parcels[start:]


def place_of(error: BaseException) -> str:
    """Where it was raised; never what it says, which may quote a value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
