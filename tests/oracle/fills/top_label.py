"""numpy fill of the accumulator `top_label`: the specification of the kernel's."""

from __future__ import annotations

from calibrant.accumulators.top_label import TopLabelCells
from calibrant.core.batch_sums import BatchSums
from tests.oracle.cells import fill_table


class Filled(TopLabelCells):
    """The accumulator with its fill."""

    def fill(self, batch_sums: BatchSums) -> None:
        fill_table(self, batch_sums, batch_sums.confidence, batch_sums.top_correct)
