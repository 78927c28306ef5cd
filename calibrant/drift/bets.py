"""Alternatives of the sequential test (bets): fixed miscalibrations with weights, chosen before any data are processed.

A bet is a shift λ of the log-odds of the outcome, one number per bin. Half of the weight is on shifts of all
bins together: an intercept (more or fewer outcomes than predicted) or a slope (scores too extreme or not
extreme enough). The other half is on one bin at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.documents import Result

Floats = NDArray[np.float64]
GRID = 1  # number of this grid of bets; evidence under another grid is not added to it
INTERCEPTS = (0.1, 0.2, 0.4, 0.8)
SLOPES = (0.1, 0.2, 0.4)
LOCALS = (0.25, 0.5, 1.0, 2.0)
GLOBAL_WEIGHT = 0.5


@dataclass(frozen=True)
class Bets:
    """The grid of bets over equal-width bins.

    Bets are numbered: intercepts, slopes, then local ones by size and by bin. `sizes` are their signed shifts,
    of intercepts and slopes first; `shifts` holds the first `n_global` as rows, then each local size as one row
    that replaces a bet in each bin.
    """

    bins: int

    @cached_property
    def sizes(self) -> Floats:
        """Signed sizes, float64 (n_global + 8,)."""
        return np.array(
            [s * v for group in (INTERCEPTS, SLOPES, LOCALS) for v in group for s in (1, -1)]
        )

    @property
    def n_global(self) -> int:
        return 2 * (len(INTERCEPTS) + len(SLOPES))

    @property
    def n_bets(self) -> int:
        return self.n_global + 2 * len(LOCALS) * self.bins

    @cached_property
    def shifts(self) -> Floats:
        """float64 (n_global + 8, bins)."""
        middle = (np.arange(self.bins) + 0.5) / self.bins
        along = np.ones((len(self.sizes), self.bins))
        along[2 * len(INTERCEPTS) : self.n_global] = scipy.special.logit(middle)
        return self.sizes[:, None] * along

    @cached_property
    def log_weights(self) -> Floats:
        """Logarithms of the weights, which sum to one; float64 (n_bets,)."""
        n_local = self.n_bets - self.n_global
        weights = np.full(self.n_bets, (1.0 - GLOBAL_WEIGHT) / n_local)
        weights[: self.n_global] = GLOBAL_WEIGHT / self.n_global
        return np.asarray(np.log(weights))

    def summed(self, gains: Floats) -> Floats:
        """Return each bet's total from the gains of `shifts` by bin.

        Parameters
        ----------
        gains : float64 (..., n_global + 8, bins)

        Returns
        -------
        float64 (..., n_bets)
        """
        overall = gains[..., : self.n_global, :].sum(axis=-1)
        local = gains[..., self.n_global :, :].reshape(*gains.shape[:-2], -1)
        return np.concatenate([overall, local], axis=-1)

    def describe(self, bet: int) -> Result:
        """Describe a bet: its kind, its size in log-odds (for a slope, its distance from 1), its bin."""
        if bet < self.n_global:
            kind = "intercept" if bet < 2 * len(INTERCEPTS) else "slope"
            return {"kind": kind, "shift": float(self.sizes[bet])}
        row, place = divmod(bet - self.n_global, self.bins)
        edges = [place / self.bins, (place + 1) / self.bins]
        return {"kind": "local", "shift": float(self.sizes[self.n_global + row]), "bin": edges}


@lru_cache(maxsize=16)
def bets_of(bins: int) -> Bets:
    """Return the grid over a number of bins; one object each.

    Examples
    --------
    >>> bets_of(15).n_bets
    134
    """
    return Bets(bins)
