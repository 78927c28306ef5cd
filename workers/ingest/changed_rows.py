"""Rows that time slices lose and gain by joined labels, and the panes that these are in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from calibrant.core.routing import ALL_ROWS, pane_start
from calibrant_server.workers.ingest.joined_records import ChangedColumns
from calibrant_server.workers.ingest.retained_record import RetainedRecord
from calibrant_server.workers.ingest.tail_rows import TailRows
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig

NamedRecord = tuple[str, RetainedRecord]


@dataclass
class ChangedRows:
    """Rows that a time slice loses and gains: all rows of each unit that changed.

    Attributes
    ----------
    start_s : of the time slice
    columns : the same of units of one row whose records change by columns
    """

    config: ModelConfig
    start_s: int
    lost: list[NamedRecord] = field(default_factory=list)
    gained: list[NamedRecord] = field(default_factory=list)
    columns: list[ChangedColumns] = field(default_factory=list)
    _gained_rows: TailRows | None = None

    def touched(self) -> set[PaneKey]:
        """Return the panes that change."""
        config = self.config
        found = panes_of_records(config, [record for _, record in (*self.lost, *self.gained)])
        if self.columns:
            found.add(PaneKey(config.key, config.generation, ALL_ROWS, self.start_s))
        return found

    def check(
        self, rows: type[TailRows], fill_if_doubtful: Callable[[TailRows, ModelConfig], None]
    ) -> None:
        """Find an error in the new rows before they are stored."""
        if self.gained or self.columns:
            self._gained_rows = self._gained(rows)
            fill_if_doubtful(self._gained_rows, self.config)

    def rows(self, rows: type[TailRows], part: int) -> list[TailRows]:
        """Return the rows that it takes away and adds, as batches of the tail numbered from `part`."""
        found = []
        lost = self._lost(rows)
        if lost is not None:
            found.append(lost.of_part(part))
        if self.gained or self.columns:
            if self._gained_rows is None:
                self._gained_rows = self._gained(rows)
            found.append(self._gained_rows.of_part(part + len(found)))
        return found

    def _lost(self, rows: type[TailRows]) -> TailRows | None:
        task = self.config.task
        lost = [rows.of_records(self.lost, task, -1, 0)] if self.lost else []
        lost += [each.lost for each in self.columns if each.lost is not None]
        return rows.together(lost) if lost else None

    def _gained(self, rows: type[TailRows]) -> TailRows:
        task = self.config.task
        gained = [rows.of_records(self.gained, task, 1, 0)] if self.gained else []
        return rows.together([*gained, *(each.gained for each in self.columns)])


def panes_of_records(config: ModelConfig, records: Iterable[RetainedRecord]) -> set[PaneKey]:
    """Return the panes that predictions contribute to: all rows of their time, and one per slice value."""
    predictions = [each.prediction for each in records if each.prediction is not None]
    places = {(pane_start(one.event_us, config.pane_s), one.slices) for one in predictions}
    return {
        PaneKey(config.key, config.generation, name, start)
        for start, slices in places
        for name in (ALL_ROWS, *(f"{key}:{value}" for key, value in slices))
    }
