"""Log format of a process: one line of JSON per event on standard error.

Newlines in a client's text are escaped, so that it can never begin a line of its own. The text of an exception is bounded: a traceback of a deep
recursion would otherwise fill a disk.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

MAX_EXCEPTION_CHARACTERS = 8000

# What every record of the library has; what else it has are fields of `extra`.
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_as_json = json.JSONEncoder(default=repr).encode


def configure_logs(stream: TextIO | None = None) -> None:
    """Write all events from the level INFO on as lines of JSON."""
    # Lines do not say where in the code, in which thread or process they were written: finding it out takes a fifth of a line's time.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class JsonFormatter(logging.Formatter):
    """Format of one event: event, time, level, logger, the fields of `extra`, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        event = {
            "event": record.getMessage(),
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        event |= {
            name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD
        }
        if record.exc_info:
            event["exception"] = _shortened(self.formatException(record.exc_info))
        if record.stack_info:
            event["stack"] = record.stack_info
        return _as_json(event)


def _shortened(text: str) -> str:
    """Return the first and the last part of a long exception: where it began and what it was."""
    if len(text) <= MAX_EXCEPTION_CHARACTERS:
        return text
    half = MAX_EXCEPTION_CHARACTERS // 2
    return f"{text[:half]}\n…\n{text[-half:]}"
