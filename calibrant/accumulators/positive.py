"""Cells of the probability of class 1 of a model with two classes."""

from __future__ import annotations

from calibrant.accumulators.cells import OneTable
from calibrant.core.batch_sums import Filling
from calibrant.core.spec import PaneSpec


class PositiveCells(OneTable):
    """Probability of class 1 against the share of ratings for it."""

    name = "positive"

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.n_classes == 2

    def fill(self, filling: Filling) -> None:
        self._fill_scores(filling, filling.columns[1], filling.positive_correct)


ACCUMULATOR = PositiveCells
