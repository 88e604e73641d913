"""Messages as they come in: as many as may be are one transaction, and one that fails costs itself alone.

What fails for a reason nobody thought of is tried again without looking at its values, so that a failure which a value
brings about is a draw that does not look, like every fault of value. What fails even then is refused. Of both the
store keeps, privately, reason, length and hash; never the text.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from veilstream.gateway.core import Compose, Core
from veilstream.gateway.records import Outcome, Receipt, StoreError
from veilstream.gateway.wire import Reading, Refusal

log = logging.getLogger("veilstream.intake")
AT_ONCE = 2_000  # readings after which a transaction takes no further message
Found = list[Reading | Refusal] | Refusal


class Message(msgspec.Struct):
    """One message: its bytes, its readings, what became of them, and what its transport must remember of it."""

    data: bytes | bytearray
    found: Found
    note: Any = None
    outcomes: list[Outcome] | None = None

    @property
    def readings(self) -> list[Reading | Refusal]:
        """Its readings; one that could not be read at all counts as one, refused."""
        return self.found if isinstance(self.found, list) else [self.found]

    @classmethod
    def of(
        cls, core: Core, data: bytes | bytearray, read: Callable[[bytes | bytearray], Found], note: Any
    ) -> "Message":
        try:
            return cls(data, read(data), note)
        except Exception as error:  # whatever a message holds, the process lives on
            core.set_aside(type(error).__name__, data)
            _tell(error)
            return cls(data, Refusal.unhandled, note)


def transactions(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """As many as one transaction takes: those after them need not be in memory yet."""
    part, n = list[Message](), 0
    for message in messages:
        part.append(message)
        n += len(message.readings)
        if n >= AT_ONCE:
            yield part
            part, n = [], 0
    if part:
        yield part


def process(core: Core, messages: Sequence[Message], compose: Compose | None = None) -> Receipt:
    """One transaction for all of them; their outcomes are set once it is committed."""
    receipt = core.process([r for message in messages for r in message.readings], compose)
    outcomes = iter(receipt.outcomes)
    for message in messages:
        message.outcomes = list(islice(outcomes, len(message.readings)))
    return receipt


def handle(core: Core, messages: Sequence[Message], work: Callable[[Sequence[Message]], object] | None = None) -> None:
    """`work` (by default `process`) on all of them; messages that cannot be handled have no outcomes in the end."""
    for part in transactions(messages):
        _handle(core, part, work or partial(process, core))


def _handle(core: Core, part: Sequence[Message], work: Callable[[Sequence[Message]], object]) -> None:
    try:
        work(part)
    except (StoreError, ConnectionError):
        raise
    except Exception as error:  # whatever a message holds, the process lives on
        if len(part) > 1:
            for message in part:
                _handle(core, [message], work)
            return
        (message,) = part
        core.set_aside(type(error).__name__, message.data)
        if not _blinded(message):
            _refuse(core, error)
            return
        try:
            work(part)
        except (StoreError, ConnectionError):
            raise
        except Exception as again:
            message.outcomes = None
            _refuse(core, again)


def _blinded(message: Message) -> bool:
    """Take the values out of it; whether it had any."""
    had = False
    for r in message.readings:
        if isinstance(r, Reading) and r.point is not None:
            r.point, had = None, True
    return had


def _refuse(core: Core, error: Exception) -> None:
    core.stats.refused[Refusal.unhandled.name] += 1
    _tell(error)


def _tell(error: Exception) -> None:
    log.error("message_unhandled", extra={"reason": type(error).__name__, "at": place_of(error)})


def place_of(error: BaseException) -> str:
    """Where it was raised; never what it says, which may quote a value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
