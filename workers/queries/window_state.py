"""A window as one state: its place, the versions of its panes at one moment, and the parts in which they are merged.

Parts are hours, 6 hours, days, 8 days and 64 days, which start at fixed times. The newest pane changes most. So the panes before it are
divided where its hour, its 6 hours, its day and so on begin. A change of the newest pane then leaves every other part as it is, and
a window of any length has a handful of parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

from calibrant.calibrators.temperature.fit import MAX_EXACT_ROWS
from calibrant.results.reads import SAMPLE, SAMPLE_OF_FEW
from calibrant_server.workers.queries.versions import name_state
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import is_baseline
from calibrant_server.workers.store.watermarks import DAY_S, Watermarks
from calibrant_server.workers.store.windows import DatedPane, Window

_PANE_OVERHEAD_BYTES = 2000
# Rows in memory take up to this many times the least bytes that they take packed.
_ROW_FACTOR = 16

Wanted = tuple[str, ...] | None
Panes = tuple[tuple[int, bytes], ...]
HOUR_S = 3600
LEVELS_S = (HOUR_S, 6 * HOUR_S, DAY_S, 8 * DAY_S, 64 * DAY_S)
DAYS, LONGEST = LEVELS_S.index(DAY_S), len(LEVELS_S) - 1


class PanesDamaged(RuntimeError):
    """Panes of the window cannot be read: no result is computed from the others as if these were empty.

    Attributes
    ----------
    panes : each with slice, first and last time, and the error
    """

    def __init__(self, panes: list[dict[str, str]]):
        super().__init__(f"{len(panes)} panes of the window cannot be read")
        self.panes = panes


class WindowChanging(RuntimeError):
    """The window changes so often that the reads of its parts were never of one state."""


class LoadedPane(NamedTuple):
    """A pane or a merge of panes, with its size in bytes.

    Attributes
    ----------
    rows : rows that are not in its sums yet; such a pane is not cached
    """

    pane: Any
    n_bytes: int
    rows: Any = None

    @classmethod
    def of(cls, pane: Any, rows: Any = None) -> LoadedPane:
        """Return a pane with the memory that it and its rows take."""
        n_bytes = pane.memory_bytes + _PANE_OVERHEAD_BYTES + cls.row_bytes(rows)
        return cls(pane, n_bytes, rows)

    @staticmethod
    def row_bytes(rows: Any) -> int:
        """Return about how many bytes rows take; 0 without rows."""
        return 0 if rows is None else rows.least_bytes * _ROW_FACTOR

    def compacted(self) -> LoadedPane:
        """Return the same pane with the least memory."""
        return LoadedPane.of(self.pane.compact(), self.rows)

    def size_of(self) -> int:
        """Return the bytes that it counts for in a cache."""
        return self.n_bytes


@dataclass(frozen=True)
class WindowState:
    """Window as one state.

    Attributes
    ----------
    spans : start and length of its panes in seconds, oldest first; none if no pane was requested
    window : with its current boundaries
    panes : each with its place in time, if requested separately
    merged : their merge, if requested
    """

    version: str
    spans: list[tuple[int, int]]
    window: Window
    marks: Watermarks
    panes: list[DatedPane] = field(default_factory=list)
    merged: Any = None

    @property
    def covered(self) -> Window:
        """The window; one without a start starts with its data."""
        if self.window.from_s == 0 and self.spans:
            return Window(self.spans[0][0], self.window.to_s)
        return self.window


@dataclass(frozen=True)
class WindowPlace:
    """Slice and window of a query, and the requested parts of its panes."""

    config: ModelConfig
    slice: str
    window: Window
    wanted: Wanted

    @cached_property
    def name(self) -> tuple[Any, ...]:
        return self.config.key, self.config.generation, self.slice, self.wanted

    @property
    def wants_sample(self) -> bool:
        """Whether a sample is requested that is stored by model and day; a baseline has its own."""
        requested = self.wanted is None or SAMPLE in self.wanted or SAMPLE_OF_FEW in self.wanted
        return requested and not is_baseline(self.slice)

    def leaves_sample_out(self, n_labelled: float) -> bool:
        """Whether these are too many labelled rows for the sample that is requested."""
        if self.wanted is None or SAMPLE in self.wanted:
            return False
        return n_labelled > MAX_EXACT_ROWS

    @cached_property
    def parts(self) -> Wanted:
        """Accumulators to read from the pane."""
        if self.wanted is None:
            return None
        others = tuple(name for name in self.wanted if name not in (SAMPLE, SAMPLE_OF_FEW))
        if self.wants_sample or others == self.wanted:
            return others or ("counts",)
        return (*others, SAMPLE)


@dataclass(frozen=True)
class WindowSnapshot:
    """Versions of the window's panes by start and the slice's marks, at one moment."""

    window: Window
    versions: dict[int, bytes]
    marks: Watermarks

    def spans(self, config: ModelConfig) -> list[tuple[int, int]]:
        """Return start and length of the panes, oldest first."""
        return [(start, self.marks.length(start, config.pane_s)) for start in self.versions]

    def state(self, place: WindowPlace, alarm: bytes, **more: Any) -> WindowState:
        config, marks = place.config, self.marks
        name = name_state(config, place.slice, self.window, self.versions, marks, alarm)
        return WindowState(name, self.spans(config), self.window, marks, **more)


@dataclass(frozen=True)
class WindowPart:
    """Neighbouring panes that are merged, by start and version, oldest first.

    Attributes
    ----------
    level : the length of the interval of fixed start that they are in, in `LEVELS_S`; above `LONGEST`: another length
    start_s : of the interval
    panes : those of the window, without the newest
    """

    level: int
    start_s: int
    panes: Panes

    @property
    def is_pane(self) -> bool:
        """Whether it is a single pane."""
        return len(self.panes) == 1

    @cached_property
    def state(self) -> bytes:
        """What the merge depends on: starts and versions of its panes; 16 bytes."""
        digest = blake2b(digest_size=16)
        for start, version in self.panes:
            digest.update(b"|%d:%s" % (start, version))
        return digest.digest()

    @cached_property
    def smaller(self) -> list[WindowPart]:
        """The parts of which it is the merge: those of the next lower level that are not the same, or panes."""
        found = [self]
        level = self.level
        while len(found) == 1 and level:
            level -= 1
            found = _parts(level, self.panes)
        return found if len(found) > 1 else [WindowPart(0, pane[0], (pane,)) for pane in self.panes]


def parts_of(versions: Mapping[int, bytes]) -> list[WindowPart]:
    """Return the parts of a window's panes, oldest first; the newest pane is a part of its own.

    Examples
    --------
    >>> hours = {3600 * hour: b"v" for hour in range(100 * 24 + 9)}
    >>> [(part.level, len(part.panes)) for part in parts_of(hours)]
    [(4, 1536), (4, 768), (3, 96), (2, 6), (1, 2), (0, 1)]
    """
    panes = tuple(versions.items())
    if not panes:
        return []
    newest, found, rest = panes[-1][0], [], panes[:-1]
    for level in reversed(range(len(LEVELS_S))):
        # Everything before the newest pane's interval of the next lower level.
        below = newest - newest % LEVELS_S[level - 1] if level else newest
        found += _parts(level, [pane for pane in rest if pane[0] < below])
        rest = tuple(pane for pane in rest if pane[0] >= below)
    return [*found, *_parts(0, panes[-1:])]


def parts_of_sides(snapshot: WindowSnapshot, config: ModelConfig, last_s: int) -> list[WindowPart]:
    """Return the parts of the last seconds of a window, and those of the panes before them: none is in both."""
    cut = max((start + length for start, length in snapshot.spans(config)), default=0) - last_s
    sides: list[dict[int, bytes]] = [{}, {}]
    for start, version in snapshot.versions.items():
        sides[start >= cut][start] = version
    return [part for side in sides for part in parts_of(side)]


def single_panes(versions: Mapping[int, bytes]) -> list[WindowPart]:
    """Return each pane as a part, oldest first."""
    return [WindowPart(0, pane[0], (pane,)) for pane in versions.items()]


def parts_every(versions: Mapping[int, bytes], every_s: int) -> list[WindowPart]:
    """Return the parts of a series, of one length each, oldest first.

    Examples
    --------
    >>> hours = {3600 * hour: b"v" for hour in range(50)}
    >>> [(part.start_s // 3600, len(part.panes)) for part in parts_every(hours, 20 * 3600)]
    [(0, 20), (20, 20), (40, 10)]
    """
    level = LEVELS_S.index(every_s) if every_s in LEVELS_S else LONGEST + 1
    return _parts(level, versions.items(), every_s)


def _parts(
    level: int, panes: Iterable[tuple[int, bytes]], length_s: int | None = None
) -> list[WindowPart]:
    length_s = length_s or LEVELS_S[level]
    found: dict[int, list[tuple[int, bytes]]] = {}
    for start, version in panes:
        found.setdefault(start - start % length_s, []).append((start, version))
    return [WindowPart(level, start, tuple(some)) for start, some in found.items()]
