"""Cells of the top class's probability."""

from __future__ import annotations

from calibrant.accumulators.cells import OneTable


class TopLabelCells(OneTable):
    """Confidence of the top class (ties to the lowest class) against the share of ratings for it."""

    name = "top_label"


ACCUMULATOR = TopLabelCells
