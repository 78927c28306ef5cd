"""A join over records in memory, packed as a store has them."""

from __future__ import annotations

from dataclasses import dataclass, field

from calibrant_server.workers.ingest.label_join import LabelJoin
from calibrant_server.workers.store.watermarks import Watermarks


@dataclass
class MemoryRecords:
    """Stored records and members of units of one model."""

    stored: dict[str, bytes] = field(default_factory=dict)
    members: dict[tuple[int, str], list[str]] = field(default_factory=dict)
    marks_: Watermarks = field(default_factory=Watermarks)

    def packed(self, config, names):
        return {name: self.stored[name] for name in names if name in self.stored}

    def unit_members(self, config, groups):
        return {group: list(self.members[group]) for group in groups if group in self.members}

    def marks(self, config):
        return self.marks_

    def join(self):
        """A join of the next group."""
        return LabelJoin(self)

    def commit(self, join):
        """Store what a join writes."""
        for model in join.joined():
            names = [model.ids[i] for i in model.changed]
            self.stored |= dict(zip(names, model.written, strict=True))
            self.members |= model.members


def rows_of(change, part=0):
    """The rows that a change appends to a tail."""
    rows = change.rows(part)
    return type(rows[0]).together(rows)
