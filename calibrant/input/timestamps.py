"""Event times of a request as microseconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.input.value_checks import ViolationCollector

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_EARLIEST, _YEAR_10000 = 0, 253_402_300_800_000_000  # panes are counted from 1970
_NO_TIMESTAMP = (
    "rfc3339",
    "Received an invalid event time; expected RFC 3339 with an offset, such as 2026-11-20T09:00:00Z.",
)
OUT_OF_RANGE = (
    "range",
    "Received an event time out of range; expected the years 1970 to 9999 (UTC).",
)


def event_times(
    column: Sequence[Any] | NDArray[Any], violations: ViolationCollector
) -> NDArray[np.int64]:
    """Return microseconds since 1970 of every row. Rows with an invalid time are noted."""
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "iM":
        return _timestamps(column, violations)
    result = np.zeros(len(column), np.int64)
    for i, text in enumerate(column):
        micros = timestamp_us(text)
        if micros is None:
            violations.row("event_times", i, *rejection(text))
        else:
            result[i] = micros
    return result


def _timestamps(column: NDArray[Any], violations: ViolationCollector) -> NDArray[np.int64]:
    """Read times sent as datetime64 or as integer microseconds since 1970."""
    none = np.zeros(len(column), np.bool_)
    if column.dtype.kind == "M":
        none = np.isnat(column)
        seconds = column.astype("datetime64[s]").astype(np.int64)
        near = (seconds >= _EARLIEST // 10**6) & (seconds < _YEAR_10000 // 10**6)
        column = np.where(near, column, np.datetime64(0, "s")).astype("datetime64[us]")
    else:
        near = (column >= _EARLIEST) & (column < _YEAR_10000)
    violations.rows("event_times", none, *_NO_TIMESTAMP)
    violations.rows("event_times", ~near & ~none, *OUT_OF_RANGE)
    return np.where(near, column.astype(np.int64), 0)


def timestamp_us(text: Any) -> int | None:
    """Return microseconds since 1970 UTC of an RFC 3339 text with an offset; None where it is not one, or not in 1970 to 9999."""
    micros = _micros(text)
    return micros if micros is not None and _EARLIEST <= micros < _YEAR_10000 else None


def rejection(text: Any) -> tuple[str, str]:
    """Return rule and detail of a text that `timestamp_us` does not accept."""
    return _NO_TIMESTAMP if _micros(text) is None else OUT_OF_RANGE


def _micros(text: Any) -> int | None:
    if not isinstance(text, str) or len(text) > 64 or not _RFC3339.fullmatch(text):
        return None
    try:
        return (datetime.fromisoformat(text.upper()) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None
