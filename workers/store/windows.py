"""A window: the half-open interval of time, made of complete panes, that a query covers, and its resolution from a request.

Every resolution is pure: the caller passes the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from calibrant.core.durations import parse_duration
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.routing import MICROSECONDS, pane_start

# The largest second of a four-digit year, so that every resolved window can be written as RFC 3339.
LAST_SECOND = 253_402_300_799


@dataclass(frozen=True)
class Window:
    """A half-open run of panes, in whole seconds since the epoch, to which panes are aligned (UTC)."""

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


class DatedPane(NamedTuple):
    """A pane with its position in time, in seconds.

    Attributes
    ----------
    state : names the model, its settings, the slice and the versions of the panes that it is the merge of; empty if not known
    """

    start_s: int
    length_s: int
    pane: Any
    state: bytes = b""


def rfc3339(at: datetime) -> str:
    """Return a timestamp as `2026-11-20T09:00:00Z`."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


class WindowError(CalibrationInputError):
    """The window cannot be resolved to panes."""


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
    end_s = _round_up(end_us, pane_s) if to is not None else pane_start(end_us, pane_s) + pane_s
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


def _round_up(at_us: int, pane_s: int) -> int:
    return -(-at_us // (pane_s * MICROSECONDS)) * pane_s


def _window_error(pointer: str, rule: str, detail: str) -> WindowError:
    return WindowError([Violation(pointer, rule, detail)])
