"""Samples of slices as parts of the samples of all rows.

Every row of a slice is a row of the model, and a sample has all columns of its rows. So where the days of all rows were read, as
for a report with subgroups, those of a slice need not be read: only the versions of both are compared, of one moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.ingest.sample_reading import DaySample, by_day
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.slice_names import is_live
from calibrant_server.workers.store.watermarks import Watermarks

if TYPE_CHECKING:
    from calibrant_server.workers.queries.window_state import LruCache

Versions = Mapping[int, bytes]


def day_name(config: ModelConfig, slice_: str, day_s: int, versions: Versions) -> tuple[Any, ...]:
    """Return the name of a day's sample in the cache."""
    return ("sample", config.key, config.generation, slice_, day_s, tuple(versions.items()))


class _LastRead(NamedTuple):
    """Panes of all rows of a day when its sample was read last: their versions, and up to where panes were days."""

    versions: Versions
    daily_to: int

    def size_of(self) -> int:
        """Return the bytes that it counts for in a cache."""
        return 200 + 150 * len(self.versions)


@dataclass(frozen=True)
class SliceSamples:
    """Reader of samples of a model's slices.

    Parameters
    ----------
    cache : of days, and of which of all rows was read last
    """

    node: Any
    keys: PartitionKeys
    config: ModelConfig
    cache: LruCache[Any, Any]

    def remember(self, slice_: str, marks: Watermarks, day_s: int, versions: Versions) -> None:
        """Remember that the sample of a day was read and cached."""
        if slice_ == ALL_ROWS:
            self.cache.put(self._last_name(day_s), _LastRead(versions, marks.daily_to))

    def days(self, slice_: str, marks: Watermarks, versions: Versions) -> dict[int, DaySample]:
        """Return the samples of days, by their start, that are parts of those of all rows; the others must be read."""
        if slice_ == ALL_ROWS or not is_live(slice_):
            return {}
        known: dict[int, tuple[Versions, DaySample]] = {}
        for day_s, starts in by_day(versions).items():
            last: _LastRead | None = self.cache.get(self._last_name(day_s))
            if last is None or last.daily_to != marks.daily_to or not last.versions.keys() >= {*starts}:  # fmt: skip
                continue
            name = day_name(self.config, ALL_ROWS, day_s, last.versions)
            day: DaySample | None = self.cache.get(name)
            if day is not None:
                known[day_s] = last.versions, day
        unchanged = self._unchanged(slice_, versions, known)
        return {day_s: _part(known[day_s][1], slice_, marks, starts) for day_s, starts in unchanged}

    def _unchanged(
        self, slice_: str, versions: Versions, known: Mapping[int, tuple[Versions, DaySample]]
    ) -> list[tuple[int, list[int]]]:
        """Return the days of which slice and all rows have these versions now, each with the starts of the slice's panes."""
        model = self.config.key, self.config.generation
        days = [(day_s, starts) for day_s, starts in by_day(versions).items() if day_s in known]
        reads = ReadTogether()
        for day_s, starts in days:
            reads.hmget(self.keys.versions(*model, slice_), starts)
            reads.hmget(self.keys.versions(*model, ALL_ROWS), known[day_s][0])
        found = iter(reads.run(self.node) if days else [])
        return [
            (day_s, starts)
            for (day_s, starts), own, of_all in zip(days, found, found, strict=False)
            if own == [versions[start] for start in starts]
            and of_all == list(known[day_s][0].values())
        ]

    def _last_name(self, day_s: int) -> tuple[Any, ...]:
        return ("sample of all rows", self.config.key, self.config.generation, day_s)


def _part(day: DaySample, slice_: str, marks: Watermarks, starts: list[int]) -> DaySample:
    """Return the part of a day's sample of all rows that is in a slice and in these panes."""
    if day.rows is None:
        return day
    rows = day.rows.in_slice(slice_)
    return DaySample(rows.where(np.isin(marks.starts(rows.starts), starts)), day.halvings)
