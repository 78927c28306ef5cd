"""Cells of the top class's probability."""

from __future__ import annotations

from calibrant.accumulators.cells import OneTable
from calibrant.core.batch_sums import BatchSums


class TopLabelCells(OneTable):
    """Confidence of the top class (ties to the lowest class) against the share of ratings for it."""

    name = "top_label"

    def fill(self, batch_sums: BatchSums) -> None:
        self._fill_scores(batch_sums, batch_sums.confidence, batch_sums.top_correct)


ACCUMULATOR = TopLabelCells
