"""Samples of windows, read by day and cached by the versions of the day's panes.

Every change of a slice's rows, and every fall of a day's threshold, gives panes of the day new versions. While these are the
same, so is the sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibrant.accumulators.sample import WINDOW_BYTES, Sample
from calibrant.core.packing import PackingError
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_reading import (
    DaySample,
    SampleSource,
    by_day,
    merged_sample,
)
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.lru_cache import LruCache
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import Watermarks

Versions = Mapping[int, bytes]


class SampleDamaged(PackingError):
    """The sample of a day is damaged.

    Attributes
    ----------
    starts : panes of that day
    """

    def __init__(self, starts: list[int], error: Exception):
        super().__init__(str(error))
        self.starts = starts


class WindowSamples:
    """Reader of samples; several threads may share one object.

    Parameters
    ----------
    cache : of days and of whatever else has a `size_of`
    """

    def __init__(self, store: Store, numerics: Numerics, cache: LruCache[Any, Any]):
        self._store = store
        self._numerics = numerics
        self._days = cache

    def are_stored(self, config: ModelConfig) -> bool:
        """Return whether panes of a model have samples."""
        return self._numerics.keeps_samples and Sample.applies(self._numerics.spec(config))

    def days(
        self, config: ModelConfig, slice_: str, marks: Watermarks, versions: Versions
    ) -> list[DaySample]:
        """Return the samples of a window's days; SampleChangedError if the panes have other versions now."""
        partition = self._store.keys.partition_of(config.key)
        keys, node = self._store.keys.partition(partition), self._store.node(partition)
        source = SampleSource(keys, self._numerics, config, slice_, marks)
        found = []
        for day_s, starts in by_day(versions).items():
            expected = {start: versions[start] for start in starts}
            name = "sample", config.key, config.generation, slice_, day_s, tuple(expected.items())
            day: DaySample | None = self._days.get(name)
            if day is None:
                try:
                    day = self._days.put(name, source.day(node, day_s, expected))
                except PackingError as error:
                    raise SampleDamaged(starts, error) from error
            found.append(day)
        return found

    def parts(
        self,
        config: ModelConfig,
        slice_: str,
        marks: Watermarks,
        versions: Versions,
        parts: Sequence[Sequence[int]],
    ) -> list[Sample]:
        """Return the sample of each part, by the starts of its panes; SampleChangedError if they have other versions now."""
        spec = self._numerics.spec(config)
        days = dict(zip(by_day(versions), self.days(config, slice_, marks, versions), strict=True))
        found: list[Sample] = []
        for starts in parts:
            some = []
            for day_s in by_day(starts):
                day = days[day_s]
                rows = day.rows
                if rows is not None:
                    rows = rows.where(np.isin(marks.starts(rows.starts), starts))
                some.append(DaySample(rows, day.halvings))
            found.append(merged_sample(spec, some, WINDOW_BYTES))
        return found
