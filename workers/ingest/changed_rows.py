"""Rows that time slices lose and gain when records change, and the panes that these are in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig


@dataclass(frozen=True)
class ChangedRows:
    """Rows that a time slice loses and gains: all rows of each unit that changed."""

    config: ModelConfig
    start_s: int
    lost: Rows | None
    gained: Rows | None

    def touched(self) -> set[PaneKey]:
        """Return the panes that change."""
        names = {
            name
            for rows in (self.lost, self.gained)
            if rows is not None
            for name in rows.n_by_slice
        }
        key, generation = self.config.key, self.config.generation
        return {PaneKey(key, generation, name, self.start_s) for name in names}

    def check(self, fill_if_doubtful: Callable[[Rows, ModelConfig], None]) -> None:
        """Find an error in the new rows before they are stored."""
        if self.gained is not None:
            fill_if_doubtful(self.gained, self.config)

    def rows(self, part: int) -> list[Rows]:
        """Return the rows that it takes away and adds, as batches of the tail numbered from `part`."""
        found = [rows for rows in (self.lost, self.gained) if rows is not None]
        return [rows.of_part(part + i) for i, rows in enumerate(found)]
