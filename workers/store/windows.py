"""A window: the half-open interval of time, made of complete panes, that a query covers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

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
    """A pane with its position in time, in seconds."""

    start_s: int
    length_s: int
    pane: Any


def rfc3339(at: datetime) -> str:
    """Return a timestamp as `2026-11-20T09:00:00Z`."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
