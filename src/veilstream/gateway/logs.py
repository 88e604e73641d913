"""Structured logs: one JSON object per line on stderr. Events and counts only; no stream's values, no payloads."""

import json
import logging
import sys
from datetime import UTC, datetime

_USUAL = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "part": record.name.removeprefix("veilstream."),
        }
        extra = {k: v for k, v in record.__dict__.items() if k not in _USUAL and v is not None}
        return json.dumps({**line, **extra}, default=str)


def configure(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLine())
    root = logging.getLogger("veilstream")
    root.handlers, root.propagate = [handler], False
    root.setLevel(level)
    for library in ("aiohttp", "asyncio"):  # they quote malformed requests
        logging.getLogger(library).setLevel(logging.CRITICAL + 1)
