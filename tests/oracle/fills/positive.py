"""numpy fill of the accumulator `positive`: the specification of the kernel's."""

from __future__ import annotations

from calibrant.accumulators.positive import PositiveCells
from calibrant.core.batch_sums import BatchSums
from tests.oracle.cells import fill_table


class Filled(PositiveCells):
    """The accumulator with its fill."""

    def fill(self, batch_sums: BatchSums) -> None:
        fill_table(self, batch_sums, batch_sums.columns[1], batch_sums.positive_correct)
