"""Event times of a request as microseconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.input.arrow_column import Column
from calibrant.input.value_checks import ViolationCollector

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# The colon of the offset may be absent, as Java and strftime write it.
RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):?[0-5]\d)", re.ASCII
)
_NAIVE = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?", re.ASCII)
# Microseconds of the units in which numbers may count from 1970.
TIME_UNITS = {"s": 1_000_000, "ms": 1000}
_EARLIEST, _YEAR_10000 = 0, 253_402_300_800_000_000  # panes are counted from 1970
_NO_TIMESTAMP = (
    "rfc3339",
    "Received an invalid event time; expected RFC 3339 with an offset, such as 2026-11-20T09:00:00Z.",
)
_NO_ZONE = (
    "rfc3339",
    "Received an event time without a time zone; expected RFC 3339 with an offset, such as 2026-11-20T09:00:00Z or +01:00.",
)
_NO_UNIT = (
    "rfc3339",
    "Received a number as event time; expected RFC 3339 with an offset. If numbers count from 1970, state time_unit: s or ms.",
)
OUT_OF_RANGE = (
    "range",
    "Received an event time out of range; expected the years 1970 to 9999 (UTC).",
)


def event_times(
    column: Sequence[Any] | NDArray[Any], violations: ViolationCollector
) -> NDArray[np.int64]:
    """Return microseconds since 1970 of every row. Rows with an invalid time are noted."""
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind == "M":
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
    """Read times sent as datetime64."""
    none = np.isnat(column)
    seconds = column.astype("datetime64[s]").astype(np.int64)
    near = (seconds >= _EARLIEST // 10**6) & (seconds < _YEAR_10000 // 10**6)
    column = np.where(near, column, np.datetime64(0, "s")).astype("datetime64[us]")
    violations.rows("event_times", none, *_NO_TIMESTAMP)
    violations.rows("event_times", ~near & ~none, *OUT_OF_RANGE)
    return np.where(near, column.astype(np.int64), 0)


def in_unit(column: Any, unit: str | None) -> Any:
    """Return a column of event times whose numbers count from 1970 in this unit; None for none: numbers are then rejected."""
    if unit is None or not isinstance(column, list | np.ndarray | Column):
        return column
    if not isinstance(column, Column):
        return counted_from_1970(column, unit)
    if not isinstance(column.values, np.ndarray):
        return column
    return replace(column, values=counted_from_1970(column.values, unit))


def counted_from_1970(values: Sequence[Any] | NDArray[Any], unit: str) -> Any:
    """Return numbers since 1970 UTC as datetime64, and values that are no numbers unchanged.

    Parameters
    ----------
    unit : of the numbers, of `TIME_UNITS`

    Examples
    --------
    >>> counted_from_1970([1764288000.5], "s")
    array(['2025-11-28T00:00:00.500000'], dtype='datetime64[us]')
    """
    numbers = np.asarray(values) if isinstance(values, np.ndarray) else _numbers(values)
    if numbers is None or numbers.dtype.kind not in "iuf":
        return values
    micros = numbers.astype(np.float64) * TIME_UNITS[unit]
    if numbers.dtype.kind in "iu":
        exact = np.clip(numbers, -(2**43), 2**43).astype(np.int64) * TIME_UNITS[unit]
        micros = np.where(np.abs(micros) < 2**62, exact, 2**62)
    known = np.isfinite(micros)
    whole = np.rint(np.clip(np.where(known, micros, 0.0), -(2.0**62), 2.0**62)).astype(np.int64)
    return np.where(known, whole.astype("datetime64[us]"), np.datetime64("NaT"))


def _numbers(values: Sequence[Any]) -> NDArray[Any] | None:
    kinds = set(map(type, values))
    return np.array(values, np.float64) if kinds and kinds <= {int, float} else None


def timestamp_us(text: Any) -> int | None:
    """Return microseconds since 1970 UTC of an RFC 3339 text with an offset; None where it is not one, or not in 1970 to 9999."""
    micros = _micros(text)
    return micros if micros is not None and _EARLIEST <= micros < _YEAR_10000 else None


def rejection(text: Any) -> tuple[str, str]:
    """Return rule and detail of a text that `timestamp_us` does not accept."""
    if isinstance(text, int | float | np.number) and not isinstance(text, bool):
        return _NO_UNIT
    if isinstance(text, str) and _NAIVE.fullmatch(text):
        return _NO_ZONE
    return _NO_TIMESTAMP if _micros(text) is None else OUT_OF_RANGE


def _micros(text: Any) -> int | None:
    if not isinstance(text, str) or len(text) > 64 or not RFC3339.fullmatch(text):
        return None
    try:
        return (datetime.fromisoformat(text.upper()) - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None
