"""Windows: the panes that a query reads; and watermarks: how far a model's panes are dropped, sealed and merged into days.

Panes are aligned to the epoch in UTC. Every resolution is pure: the caller passes the clock.

The watermarks of a model change only in commits of its partition's worker, together with the panes that they describe. A
reader that reads watermarks, versions and panes in one transaction sees them agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.routing import ALL_ROWS, MICROSECONDS, pane_start
from calibrant_server.workers.store.durations import parse_duration

__all__ = [
    "ALL_ROWS",
    "Dated",
    "Window",
    "WindowError",
    "pane_start",
    "parse_duration",
    "resolve",
    "rfc3339",
]

# The largest second of a four-digit year, so that every resolved window can be written as RFC 3339.
LAST_SECOND = 253_402_300_799


class WindowError(CalibrationInputError):
    """The window cannot be resolved to panes."""


@dataclass(frozen=True)
class Window:
    """A half-open run of panes, in whole seconds since the epoch."""

    from_s: int
    to_s: int

    @property
    def from_at(self) -> datetime:
        """First timestamp inside."""
        return datetime.fromtimestamp(self.from_s, UTC)

    @property
    def to_at(self) -> datetime:
        """First timestamp after."""
        return datetime.fromtimestamp(min(self.to_s, LAST_SECOND), UTC)

    def __contains__(self, pane_start_s: int) -> bool:
        return self.from_s <= pane_start_s < self.to_s

    def to_dict(self) -> dict[str, str]:
        """Return the window as in responses."""
        return {"from": rfc3339(self.from_at), "to": rfc3339(self.to_at)}


class Dated(NamedTuple):
    """A pane with its position in time, in seconds."""

    start_s: int
    length_s: int
    pane: Any


def rfc3339(at: datetime) -> str:
    """Return a timestamp as `2026-11-20T09:00:00Z`."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def resolve(
    from_: datetime | None = None,
    to: datetime | None = None,
    window: str | None = None,
    pane_s: int = 3600,
    now: datetime | None = None,
) -> Window:
    """Resolve a requested window to pane boundaries: `from` down, `to` up.

    Parameters
    ----------
    from_, to : aware datetimes or None
        The half-open interval; without `to` it ends with the pane of `now`, without `from_` it contains everything before.
    window : ISO 8601 duration or None
        Back from `to` (or now). Not together with `from_`.
    pane_s : int
        Length of the model's panes.
    now : aware datetime
        The clock of the caller; needed unless `to` is given.
    """
    if from_ is not None and window is not None:
        raise _window_error(
            "/from", "one_of", "Received both from and window; expected one of them."
        )
    end = to if to is not None else now
    if end is None:
        raise ValueError("now is needed where to is not given")
    end_us = _microseconds(end, "/to")
    # An explicit `to` is exclusive; the pane of `now` belongs to the window.
    end_s = _up(end_us, pane_s) if to is not None else pane_start(end_us, pane_s) + pane_s
    start_s = _start(from_, window, end_us, pane_s)
    start_s, end_s = max(0, start_s), min(end_s, LAST_SECOND // pane_s * pane_s)
    if start_s >= end_s:
        raise _window_error(
            "/from",
            "empty_window",
            "Received an empty window; expected from before to, and to after 1970.",
        )
    return Window(start_s, end_s)


def _start(
    from_: datetime | None,
    window: str | None,
    end_us: int,
    pane_s: int,
) -> int:
    if from_ is not None:
        return pane_start(_microseconds(from_, "/from"), pane_s)
    if window is None:
        return 0
    try:
        length = parse_duration(window)
    except ValueError as error:
        raise _window_error("/window", "iso_8601", str(error)) from error
    if length <= 0:
        detail = f"Received {window!r}; expected a duration longer than zero, such as P7D."
        raise _window_error("/window", "positive", detail)
    return max(0, pane_start(end_us - int(length * MICROSECONDS), pane_s))


def _microseconds(at: datetime, pointer: str) -> int:
    if at.tzinfo is None:
        raise _window_error(
            pointer, "time_zone", "Received a timestamp without offset; expected one, such as Z."
        )
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * MICROSECONDS + since.microseconds


def _up(at_us: int, pane_s: int) -> int:
    return -(-at_us // (pane_s * MICROSECONDS)) * pane_s


def _window_error(pointer: str, rule: str, detail: str) -> WindowError:
    return WindowError([Violation(pointer, rule, detail)])


DAY_S = 86_400
KEPT_FROM, SEALED_TO = "kept_from", "sealed_to"
RATED = "rated"  # 1 if named raters rated, in a model with a label horizon
_SEALED = "sealed!"
_BASELINE = "baseline!"


def daily_to(slice_: str) -> str:
    """Return the field of a slice's watermark of days."""
    return f"d|{slice_}"


def latest_day(found: Mapping[bytes, bytes]) -> int:
    """Return the latest watermark of days of the slices that batches fill, from all watermarks of a model."""
    head = daily_to("").encode()
    return max(
        (
            int(value)
            for name, value in found.items()
            if name.startswith(head) and is_live(name.removeprefix(head).decode())
        ),
        default=0,
    )


def sealed_slice(slice_: str) -> str:
    """Return the slice name of sealed cohorts; no client can use it."""
    return _SEALED + slice_


def baseline_slice(name: str) -> str:
    """Return the slice name of a baseline's pane."""
    return _BASELINE + name


def is_sealed(slice_: str) -> bool:
    """Whether a slice holds the sealed cohorts of another."""
    return slice_.startswith(_SEALED)


def is_baseline(slice_: str) -> bool:
    """Whether a slice holds a baseline, which neither ages nor changes."""
    return slice_.startswith(_BASELINE)


def is_live(slice_: str) -> bool:
    """Whether batches fill a slice."""
    return not (is_sealed(slice_) or is_baseline(slice_))


def plain_slice(slice_: str) -> str:
    """Return the client's name of a slice."""
    return slice_.removeprefix(_SEALED)


def fields_of(slice_: str) -> list[str]:
    """Return the fields that `Watermarks.read` takes."""
    return [KEPT_FROM, SEALED_TO, daily_to(slice_)]


@dataclass(frozen=True)
class Watermarks:
    """Watermarks of one slice, in seconds since the epoch.

    Attributes
    ----------
    kept_from : panes that began earlier are past their retention
    sealed_to : cohorts that ended by then are sealed
    daily_to : panes that begin earlier are one day long
    """

    kept_from: int = 0
    sealed_to: int = 0
    daily_to: int = 0

    @classmethod
    def read(cls, values: Sequence[bytes | None]) -> Watermarks:
        """Create from the values of `fields_of`."""
        return cls(*(int(value or 0) for value in values))

    @classmethod
    def of(cls, slice_: str, found: Mapping[bytes, bytes]) -> Watermarks:
        """Create from all watermarks of a model."""
        return cls.read([found.get(name.encode()) for name in fields_of(slice_)])

    def start(self, start_s: int) -> int:
        """Return the start of the pane that now contains the pane of `start_s`."""
        return start_s - start_s % DAY_S if start_s < self.daily_to else start_s

    def starts(self, starts_s: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `start` of several."""
        return np.where(starts_s < self.daily_to, starts_s - starts_s % DAY_S, starts_s)

    def length(self, start_s: int, pane_s: int) -> int:
        """Return the length of the pane that begins at `start_s`."""
        return max(DAY_S, pane_s) if start_s < self.daily_to else pane_s

    def widened(self, window: Window) -> Window:
        """Return the window widened to the boundaries that still exist."""
        to_s = window.to_s
        if to_s < self.daily_to:
            to_s = -(-to_s // DAY_S) * DAY_S
        return Window(self.start(window.from_s), to_s)
