"""Raw rows that a view reads beside its pane, as a batch that is made when something reads it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.input.notes import NO_NOTES, InputNotes


class RawRows:
    """Rows that most results need only as a pane.

    Parameters
    ----------
    read : returns the checked rows
    notes : what was altered as they were read
    """

    def __init__(self, read: Callable[[], Batch], notes: InputNotes = NO_NOTES) -> None:
        self._read, self.notes = read, notes

    @cached_property
    def batch_sums(self) -> BatchSums:
        """The labelled rows, with what several results read."""
        return BatchSums(self._read())
