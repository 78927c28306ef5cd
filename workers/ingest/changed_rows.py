"""Rows that time slices lose and gain by joined labels, and the panes that these are in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS, pane_start
from calibrant_server.workers.ingest.retained_record import RetainedRecord
from calibrant_server.workers.ingest.tail_rows import TailRows
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.registry import ModelConfig

NamedRecord = tuple[str, RetainedRecord]


@dataclass
class ChangedRows:
    """Rows that a time slice loses and gains: all rows of each unit that changed."""

    config: ModelConfig
    lost: list[NamedRecord] = field(default_factory=list)
    gained: list[NamedRecord] = field(default_factory=list)
    _gained_rows: TailRows | None = None

    def touched(self) -> set[PaneKey]:
        """Return the panes that change."""
        return panes_of_records(self.config, [record for _, record in (*self.lost, *self.gained)])

    def try_fill(self, rows: type[TailRows], make: Callable[[ModelConfig], Pane]) -> None:
        """Fill the new rows once, so that an error is found before they are stored."""
        if self.gained:
            self._gained_rows = rows.of_records(self.gained, self.config.task, 1, 0)
            self._gained_rows.fill_into(make(self.config), ALL_ROWS, lambda: make(self.config))

    def rows(self, rows: type[TailRows], part: int) -> list[TailRows]:
        """Return the rows that it takes away and adds, as batches of the tail numbered from `part`."""
        found = []
        if self.lost:
            found.append(rows.of_records(self.lost, self.config.task, -1, part))
        if self.gained:
            if self._gained_rows is None:
                self._gained_rows = rows.of_records(self.gained, self.config.task, 1, part)
            found.append(self._gained_rows.of_part(part + len(found)))
        return found


def panes_of_records(config: ModelConfig, records: Iterable[RetainedRecord]) -> set[PaneKey]:
    """Return the panes that predictions contribute to: all rows of their time, and one per slice value."""
    predictions = [each.prediction for each in records if each.prediction is not None]
    places = {(pane_start(one.event_us, config.pane_s), one.slices) for one in predictions}
    return {
        PaneKey(config.key, config.generation, name, start)
        for start, slices in places
        for name in (ALL_ROWS, *(f"{key}:{value}" for key, value in slices))
    }
