"""Watermarks: how far the panes of a model are dropped, sealed and merged into days.

The watermarks of a model change only in commits of its partition's worker, together with the panes that they describe. A
reader that reads watermarks, versions and panes in one transaction sees them agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calibrant_server.workers.store.windows import Window

DAY_S = 86_400
KEPT_FROM, SEALED_TO = "kept_from", "sealed_to"
RATED = "rated"  # 1 if named raters rated, in a model with a label horizon
_SEALED = "sealed!"
_BASELINE = "baseline!"


def daily_to(slice_: str) -> str:
    """Return the field of a slice's watermark of days."""
    return f"d|{slice_}"


def latest_day(found: Mapping[bytes, bytes]) -> int:
    """Return up to where any slice that batches fill is merged into days, from all watermarks of a model."""
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
        """Return the start of the pane that holds the former pane of `start_s`."""
        return start_s - start_s % DAY_S if start_s < self.daily_to else start_s

    def length(self, start_s: int, pane_s: int) -> int:
        """Return the length of the pane that begins at `start_s`."""
        return max(DAY_S, pane_s) if start_s < self.daily_to else pane_s

    def widened(self, window: Window) -> Window:
        """Return the window widened to the boundaries that still exist."""
        to_s = window.to_s
        if to_s < self.daily_to:
            to_s = -(-to_s // DAY_S) * DAY_S
        return Window(self.start(window.from_s), to_s)
