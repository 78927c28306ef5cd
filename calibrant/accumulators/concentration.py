"""The concentration profile: likelihood of the votes under a Dirichlet around the prediction, on a grid of its concentration.

Given alpha0, a row's votes are Dirichlet-multinomial with parameters alpha0 z. The negative log-likelihood (the multinomial
coefficient left out) is additive over predictions, and so are its derivatives by log alpha0; with them on a fixed grid alpha0 is fitted
without raw rows. For whole votes the gamma functions are products, Gamma(x + y) / Gamma(x) = x (x + 1) ... (x + y - 1), and
the factor x is the same for every alpha0 up to its logarithm: one vote costs nothing and says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.filling import Filling

STEPS_PER_OCTAVE = 2
OCTAVES = (-8, 12)
LOG_CONCENTRATIONS = np.log(2.0) * (
    np.arange(OCTAVES[0] * STEPS_PER_OCTAVE, OCTAVES[1] * STEPS_PER_OCTAVE + 1) / STEPS_PER_OCTAVE
)
CONCENTRATIONS = np.exp(LOG_CONCENTRATIONS)
N_POINTS = len(CONCENTRATIONS)
COUNTS = ("predictions", "n_zero_probability")
SUMS = ("weight", "nll_limit", "nll", "nll_d1", "nll_d2", "nll_d1_squared")
_MOST_FACTORS = 32
_CHUNK = 1 << 12
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class ConcentrationProfile(Accumulator):
    """Block `profile`, a cell a concentration; predictions with at least two votes only.

    `nll_limit` is the loss at infinite concentration (a multinomial around the prediction), `nll_d1_squared` sums squares by unit,
    so that the standard error allows any dependence inside a unit of a batch. Rows with a vote for a class
    at probability 0 stay out of the sums and are counted.
    """

    name = "concentration"

    def zero(self) -> dict[str, Block]:
        return {"profile": Block(len(COUNTS), len(SUMS), N_POINTS)}

    def fill(self, filling: Filling) -> None:
        several = filling.n_ratings > 1
        if not several.any():
            return
        hits, block = filling.hits, self.blocks["profile"]
        impossible = np.bincount(hits.row, ~np.isfinite(filling.log_probability), filling.n) > 0
        block.counts[0] += int(several.sum())
        block.counts[1] += int((several & impossible).sum())
        rows = np.flatnonzero(several & ~impossible)
        by_unit = np.zeros((filling.n_units, N_POINTS)) if filling.has_units else None
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            weight = filling.weights[chunk]
            loss = _row_losses(filling, chunk)
            block.sums[0] += weight.sum()
            block.sums[1] += weight @ loss.limit
            block.sums[2:5] += np.einsum("n,dna->da", weight, loss.by_concentration)
            gradient = weight[:, None] * loss.by_concentration[1]
            if by_unit is None:
                block.sums[5] += np.einsum("na,na->a", gradient, gradient)
            else:
                np.add.at(by_unit, filling.unit_index[chunk], gradient)
        if by_unit is not None:
            block.sums[5] += np.einsum("ua,ua->a", by_unit, by_unit)


@dataclass(frozen=True)
class _Losses:
    """limit (n,), and loss with its two derivatives by log concentration (3, n, concentrations)."""

    limit: Floats
    by_concentration: Floats


def _row_losses(filling: Filling, rows: Ints) -> _Losses:
    """Losses of some rows, increasing, each of at least two votes and none of probability 0."""
    place = np.full(filling.n, -1, np.int64)
    place[rows] = np.arange(len(rows))
    entries = np.flatnonzero(place[filling.hits.row] >= 0)
    row = place[filling.hits.row[entries]]
    votes = filling.hits.votes[entries].astype(np.int64)
    log_probability = filling.log_probability[entries]
    limit = -np.bincount(row, votes * log_probability, len(rows))
    first = -np.bincount(row, log_probability, len(rows))

    totals, index = np.unique(filling.n_ratings[rows], return_inverse=True)
    whole = np.broadcast_to(CONCENTRATIONS, (len(totals), N_POINTS))
    result = rising_factors(whole, totals)[:, index]
    repeated = np.flatnonzero(votes > 1)
    repeated = repeated[np.argsort(-votes[repeated], kind="stable")]
    probability = np.exp(log_probability[repeated])
    parts = rising_factors(probability[:, None] * CONCENTRATIONS, votes[repeated])
    order = np.argsort(row[repeated], kind="stable")
    own = row[repeated][order]
    starts = np.flatnonzero(np.diff(own, prepend=-1))
    if len(own):
        result[:, own[starts]] -= np.add.reduceat(parts[:, order], starts, axis=1)
    others = np.bincount(row, minlength=len(rows))[:, None] - 1.0  # voted classes beyond the first
    result[0] += first[:, None] - others * LOG_CONCENTRATIONS
    result[1] -= others
    return _Losses(limit, result)


def rising_factors(x: Floats, m: Ints) -> Floats:
    """Sum over j = 1 .. m - 1 of log(x + j), and its first two derivatives by log x.

    Parameters
    ----------
    x : float64 (n, p), not negative
    m : int64 (n,), at least 1; fastest in decreasing order

    Returns
    -------
    float64 (3, n, p)

    Source
    ------
    Gamma(x + m) / Gamma(x + 1) = (x + 1) ... (x + m - 1); beyond 32 factors by the gamma function and its derivatives, whose
    differences lose nothing there.

    Examples
    --------
    >>> rising_factors(np.array([[1.0]]), np.array([3]))[:, 0, 0].round(4).tolist()
    [1.7918, 0.8333, 0.4722]
    """
    result = np.zeros((3, *x.shape))
    decreasing = bool((np.diff(m) <= 0).all())
    for j in range(1, min(int(m.max(initial=1)), _MOST_FACTORS)):
        use: slice | Ints = slice(0, int((m > j).sum())) if decreasing else np.flatnonzero(m > j)
        term = x[use] + j
        result[0, use] += np.log(term)
        ratio = x[use] / term
        result[1, use] += ratio
        result[2, use] += ratio * (j / term)
    many = np.flatnonzero(m > _MOST_FACTORS)
    if len(many):
        low, high = x[many] + _MOST_FACTORS, x[many] + m[many, None]
        slope = x[many] * (digamma(high) - digamma(low))
        result[0, many] += gammaln(high) - gammaln(low)
        result[1, many] += slope
        result[2, many] += slope + x[many] ** 2 * (polygamma(1, high) - polygamma(1, low))
    return result


ACCUMULATOR = ConcentrationProfile
