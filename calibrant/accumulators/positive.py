"""Cells of the probability of class 1 of a model with two classes."""

from __future__ import annotations

from calibrant.accumulators.cells import OneTable
from calibrant.core.spec import PaneSpec


class PositiveCells(OneTable):
    """Probability of class 1 against the share of ratings for it."""

    name = "positive"

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.n_classes == 2


ACCUMULATOR = PositiveCells
