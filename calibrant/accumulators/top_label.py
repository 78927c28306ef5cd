"""Cells of the top class's probability."""

from __future__ import annotations

from calibrant.accumulators.cells import OneTable
from calibrant.core.batch_sums import Filling


class TopLabelCells(OneTable):
    """Confidence of the top class (ties to the lowest class) against the share of ratings for it."""

    name = "top_label"

    def fill(self, filling: Filling) -> None:
        self._fill_scores(filling, filling.confidence, filling.top_correct)


ACCUMULATOR = TopLabelCells
