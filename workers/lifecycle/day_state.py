"""State and content of a model's days: what moves to files compare and read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calibrant_server.workers.ingest.sample_cache import SampleKey
from calibrant_server.workers.store.cold_days import ColdDay, of_file
from calibrant_server.workers.store.day_file import PANE, SEALED, DayItem, Fields
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.pane_starts import pane_starts
from calibrant_server.workers.store.watermarks import DAY_S, Watermarks, day_of

Name = tuple[str, str]


@dataclass(frozen=True)
class OldDay:
    """A day of a model in time, with its panes, its files and the watermarks of the model."""

    config: ModelConfig
    marks: dict[bytes, bytes]
    day_s: int
    panes: list[DayItem]
    cold: ColdDay | None

    @property
    def end_s(self) -> int:
        """When the last pane of the day ends."""
        pane_s = self.config.pane_s
        lengths = (self._of(each.slice).length(each.start_s, pane_s) for each in self.panes)
        ends = (each.start_s + length for each, length in zip(self.panes, lengths, strict=True))
        return max(self.day_s + DAY_S, *ends)

    def is_past(self, age_s: float, now_s: float) -> bool:
        """Whether the last pane ended this long ago, and is not past its retention."""
        return self._of("").kept_from < self.end_s <= now_s - age_s

    def is_settled(self, merges: bool) -> bool:
        """Whether the day is sealed, if the model seals cohorts, and merged, if hours are merged into days."""
        if self.config.label_horizon_s is not None and self.end_s > self._of("").sealed_to:
            return False
        if not merges or DAY_S % self.config.pane_s or self.config.pane_s == DAY_S:
            return True
        return all(each.start_s < self._of(each.slice).daily_to for each in self.panes)

    def _of(self, slice_: str) -> Watermarks:
        return Watermarks.of(slice_, self.marks)


@dataclass(frozen=True)
class DayState:
    """What is stored of a day.

    Attributes
    ----------
    panes, samples : of the store or of files; samples are those of the store
    cold : the files of the day, if it has any
    """

    panes: list[DayItem]
    samples: list[DayItem]
    cold: ColdDay | None

    @property
    def in_store(self) -> list[DayItem]:
        """What the store has of the day."""
        cold, items = self.cold, (*self.panes, *self.samples)
        return [each for each in items if cold is None or each in cold.back]


class DayReader:
    """Reader of the state and the content of days of one partition."""

    def __init__(self, node: Any, keys: PartitionKeys):
        self._node = node
        self._keys = keys

    def days(self, config: ModelConfig) -> list[OldDay]:
        """Return the days of a model, from the first to the last."""
        name = (config.key, config.generation)
        marks = self._node.hgetall(self._keys.marks(*name))
        stored = self._node.hgetall(self._keys.cold_days(*name))
        return [
            OldDay(config, marks, day_s, panes, ColdDay.read(stored.get(str(day_s).encode())))
            for day_s, panes in sorted(self._panes(name).items())
        ]

    def _panes(self, name: Name) -> dict[int, list[DayItem]]:
        """Return the panes of a model by day, but baselines."""
        found: dict[int, list[DayItem]] = {}
        for slice_, starts in pane_starts(self._node, self._keys, name).items():
            for start in starts:
                found.setdefault(day_of(start), []).append(DayItem(PANE, slice_, start))
        return found

    def state(self, name: Name, day_s: int) -> DayState:
        """Return the state of a day; only this partition's worker changes it."""
        samples = [SampleKey(*name, day_s, sealed) for sealed in (False, True)]
        return DayState(
            self._panes(name).get(day_s, []),
            [each.item for each in samples if self._node.exists(each.name(self._keys))],
            ColdDay.read(self._node.hget(self._keys.cold_days(*name), day_s)),
        )

    def fields(self, name: Name, state: DayState) -> Iterator[tuple[DayItem, Fields]]:
        """Yield the content of a day, of the store or of files; raise PackingError if a file is damaged."""
        cold, files = state.cold, self._keys.files
        in_files: set[DayItem] = set()
        if cold is not None and files is not None:
            in_files.update(*(files.items(each) for each in cold.files))
        samples = {each for each in in_files if each.kind != PANE}
        for item in sorted({*state.panes, *state.samples, *samples}):
            found = of_file(files, cold, item)
            yield item, self._node.hgetall(self.key(name, item)) if found is None else found

    def key(self, name: Name, item: DayItem) -> str:
        """Return the hash of the store that has an item, unless a file has it."""
        if item.kind == PANE:
            return self._keys.pane(PaneKey(*name, item.slice, item.start_s))
        return SampleKey(*name, item.start_s, item.kind == SEALED).name(self._keys)
