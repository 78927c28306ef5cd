"""Statistics of one row of ratings: its variation, its disagreement and its distance from the prediction.

With mu = y / n, the shares of the ratings, everything here is exact arithmetic of one row, and unbiased given the row's
label distribution q for n >= 2 ratings: `spread` + `correction` for sum q (1 - q), `squared_gap` - `correction`
for the squared distance of z from q.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.batch_sums import BatchSums


@dataclass(frozen=True)
class LabelRows:
    """Statistics of labelled predictions, each float64 (n,).

    Attributes
    ----------
    n_ratings : number of ratings of the row, at least 1
    squared_gap : sum over classes of (mu - z)^2
    spread : sum of mu (1 - mu)
    predicted : disagreement probability if the prediction is the label distribution, 1 - sum z^2
    """

    n_ratings: Floats
    squared_gap: Floats
    spread: Floats
    predicted: Floats

    @property
    def several(self) -> NDArray[np.bool_]:
        """Rows with at least two ratings: those that determine disagreement."""
        return self.n_ratings > 1

    @cached_property
    def correction(self) -> Floats:
        """Bias of `squared_gap` as a distance from q, sum mu (1 - mu) / (n - 1); 0 with one rating."""
        return np.divide(
            self.spread, self.n_ratings - 1.0, out=np.zeros_like(self.spread), where=self.several
        )

    @property
    def disagreement(self) -> Floats:
        """Share of the row's pairs of ratings that differ, 1 - sum y (y - 1) / (n (n - 1)); 0 with one rating."""
        return np.asarray(self.spread + self.correction)

    @property
    def disagreement_loss(self) -> Floats:
        """Loss (phi - predicted)^2 + phi (1 - phi) with phi the row's disagreement; 0 with one rating."""
        phi = self.disagreement
        return np.asarray(
            np.where(self.several, self.predicted * (self.predicted - 2.0 * phi) + phi, 0.0)
        )


def label_rows(batch_sums: BatchSums) -> LabelRows:
    """Return the statistics of a batch's labelled predictions."""
    return batch_sums.once(_label_rows)


def _label_rows(batch_sums: BatchSums) -> LabelRows:
    correct_ratings, n = batch_sums.correct_ratings, batch_sums.n
    squares = batch_sums.squares
    total = batch_sums.n_ratings.astype(np.float64)
    share_squared = np.bincount(correct_ratings.row, correct_ratings.ratings**2, n) / total**2
    cross = batch_sums.rated_probability / total
    spread = 1.0 - share_squared
    return LabelRows(
        total,
        np.maximum(share_squared - 2.0 * cross + squares, 0.0),
        spread,
        1.0 - squares,
    )
