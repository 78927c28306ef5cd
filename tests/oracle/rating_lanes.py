"""Lanes: ratings of rows as dense arrays with one slot per rated class, so that sums over ratings need no index.

There is one lane for all ratings, one for the majority class and one for the single rating. A label policy is a lane and
one weight per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.temperature import N_BETAS
from tests.oracle.squaring import even_steps, powers, squarings

ALL, MAJORITY, SINGLE = 0, 1, 2
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Lane:
    """Ratings of some rows, each (slots, n): relative logits (minus infinity for probability 0) and counts, 0 where unused."""

    logit: Floats
    ratings: Floats

    @cached_property
    def possible(self) -> NDArray[np.bool_]:
        return np.isfinite(self.logit)

    @cached_property
    def finite(self) -> Floats:
        """Relative logits with 0 for minus infinity."""
        return np.where(self.possible, self.logit, 0.0)

    @cached_property
    def total(self) -> Floats:
        """Number of ratings of each row, (n,)."""
        return np.asarray(self.ratings.sum(axis=0))

    @cached_property
    def total_possible(self) -> Floats:
        """The same without ratings for a class at probability 0."""
        return (
            self.total
            if self.possible.all()
            else np.asarray((self.ratings * self.possible).sum(axis=0))
        )

    @cached_property
    def logit_sum(self) -> Floats:
        """Sum of z over each row's ratings of positive probability, (n,)."""
        return np.asarray(np.einsum("sn,sn->n", self.ratings, self.finite))

    def sums(self, inverse: Floats) -> tuple[Floats, Floats, Floats]:
        """Return sums of p, of p z and of p z^2 over each row's ratings at every beta, (3 x) (betas, n)."""
        if len(self.logit) == 1:
            chosen = powers(self.logit[0], N_BETAS)
            chosen *= inverse
            if self.ratings.max() > 1.0:
                chosen *= self.ratings[0]
            slope = chosen * self.finite[0]
            return chosen, slope, slope * self.finite[0]
        result = np.empty((3, even_steps(N_BETAS), self.logit.shape[1]))
        rated_logit = self.ratings * self.finite
        columns = (self.ratings, rated_logit, rated_logit * self.finite)
        for steps, power in squarings(self.logit, N_BETAS):
            for sums, values in zip(result, columns, strict=True):
                np.einsum("jsn,sn->jn", power, values, out=sums[steps])
        chosen, slope, curvature = result[:, :N_BETAS]
        for sums in (chosen, slope, curvature):
            sums *= inverse
        return chosen, slope, curvature


@dataclass(frozen=True)
class Policies:
    """Lane and weight per rating (n,) of every policy that must be computed, and how all four follow from those.

    Where all rows have equally many ratings c and weight one, `mean` is `pooled` divided by c. With one rating all four are equal.

    Attributes
    ----------
    lanes, weights : of each policy that is computed
    source, divisor : which of those each of the four policies is, and its divisor
    even : all rows have the same weight
    """

    lanes: tuple[int, ...]
    weights: tuple[Floats, ...]
    source: tuple[int, ...]
    divisor: Floats
    even: bool

    def all_four(self, sums: Floats, power: int = 1) -> Floats:
        """Convert from (computed policies, ...) to (4, ...); `power` 2 for sums of squares."""
        divisor = self.divisor.reshape(-1, *[1] * (sums.ndim - 1)) ** power
        return np.asarray(sums[list(self.source)] / divisor)
