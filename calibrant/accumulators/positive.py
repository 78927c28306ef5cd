"""Cells of the probability of class 1 of a model with two classes."""

from __future__ import annotations

from calibrant.accumulators.cells import OneTable
from calibrant.core.batch_sums import BatchSums
from calibrant.core.spec import PaneSpec


class PositiveCells(OneTable):
    """Probability of class 1 against the share of ratings for it."""

    name = "positive"

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.n_classes == 2

    def fill(self, batch_sums: BatchSums) -> None:
        self._fill_scores(batch_sums, batch_sums.columns[1], batch_sums.positive_correct)


ACCUMULATOR = PositiveCells
