"""Log format of a process: one line of JSON per event on standard error.

Newlines in a client's text are escaped, so that it can never begin a line of its own. The text of an exception is bounded: a traceback of a deep
recursion would otherwise fill a disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog

MAX_EXCEPTION_CHARACTERS = 8000


def configure_logs(stream: TextIO | None = None) -> None:
    """Write all events from the level INFO on as lines of JSON."""
    # Lines do not say where in the code, in which thread or process they were written: finding it out takes a fifth of a line's time.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    handler = TurnHandler(stream or sys.stderr)
    handler.setFormatter(formatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class TurnHandler(logging.StreamHandler[TextIO]):
    """Writes what one turn of the event loop logs by one call of the system, which takes longer than making a line.

    A process that is killed may lose the lines of its last turn. Warnings and errors, and lines of threads, are written at once.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or keep it until the end of the turn."""
        loop = asyncio._get_running_loop() if record.levelno <= logging.INFO else None
        if loop is None:
            self._write_lines()
            super().emit(record)
            return
        try:
            line = self.format(record) + self.terminator
        except (
            Exception
        ):  # as in the base class: a line that cannot be made is reported, and its request goes on
            self.handleError(record)
            return
        if not self._lines or loop is not self._loop:
            self._loop = loop
            loop.call_soon(self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        """Write what was kept."""
        with self.lock or nullcontext():
            self._write_lines()
        super().flush()

    def _write_lines(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            self.stream.write("".join(lines))


def formatter() -> logging.Formatter:
    """Return the formatter of one event: time, level, logger, event, the fields of `extra`, exception."""
    return _Formatter(
        foreign_pre_chain=[
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _shortened,
            structlog.processors.JSONRenderer(),
        ],
    )


# What every record of the library has; what else it has are fields of `extra`.
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_as_json = json.JSONEncoder(default=repr).encode


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """The chain of processors, and for a plain event the same text directly: a request writes one."""

    def format(self, record: logging.LogRecord) -> str:
        if record.exc_info or record.stack_info or not isinstance(record.msg, str):
            return super().format(record)
        event = {
            "event": record.getMessage(),
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        event |= {
            name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD
        }
        return _as_json(event)


def _shortened(logger: Any, method: str, event: Any) -> Any:
    """Keep the first and the last part of a long exception: where it began and what it was."""
    text = event.get("exception", "")
    if len(text) > MAX_EXCEPTION_CHARACTERS:
        half = MAX_EXCEPTION_CHARACTERS // 2
        event["exception"] = f"{text[:half]}\n…\n{text[-half:]}"
    return event
