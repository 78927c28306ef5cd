"""numpy fill of the accumulator `concentration`: the specification of the kernel's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.accumulators.concentration import (
    CONCENTRATIONS,
    LOG_CONCENTRATIONS,
    N_POINTS,
    ConcentrationProfile,
)
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch_sums import BatchSums

_FACTORS = 48
_LOG_GAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_DIGAMMA = tuple((2 * k + 1) * c for k, c in enumerate(_LOG_GAMMA))
_TRIGAMMA = tuple((2 * k + 2) * c for k, c in enumerate(_DIGAMMA))
_CHUNK = 1 << 10


class Filled(ConcentrationProfile):
    """The accumulator with its fill."""

    def fill(self, batch_sums: BatchSums) -> None:
        several = batch_sums.n_ratings > 1
        if not several.any():
            return
        correct_ratings, block = batch_sums.correct_ratings, self.blocks["profile"]
        never = np.isinf(batch_sums.log_probability)
        impossible = np.bincount(correct_ratings.row[never], minlength=batch_sums.n) > 0
        block.counts[0] += int(several.sum())
        block.counts[1] += int((several & impossible).sum())
        chosen = several & ~impossible
        rows, number, is_used = (
            np.flatnonzero(chosen),
            np.cumsum(chosen) - 1,
            chosen[correct_ratings.row],
        )
        row, own_ratings = (
            number[correct_ratings.row[is_used]],
            correct_ratings.ratings[is_used].astype(np.int64),
        )
        log_probability = batch_sums.log_probability[is_used]
        by_unit = np.zeros((batch_sums.n_units, N_POINTS)) if batch_sums.has_units else None
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            part = slice(*np.searchsorted(row, [start, start + _CHUNK]))
            weight = batch_sums.weights[chunk]
            loss = _losses(
                batch_sums.n_ratings[chunk],
                weight,
                row[part] - start,
                own_ratings[part],
                log_probability[part],
            )
            block.sums[0] += weight.sum()
            block.sums[1] += loss.limit
            block.sums[2] += loss.nll
            block.sums[3] += weight @ loss.gradient
            block.sums[4] += loss.nll_d2
            gradient = weight[:, None] * loss.gradient
            if by_unit is None:
                block.sums[5] += np.einsum("na,na->a", gradient, gradient)
            else:
                np.add.at(by_unit, batch_sums.unit_index[chunk], gradient)
        if by_unit is not None:
            block.sums[5] += np.einsum("ua,ua->a", by_unit, by_unit)


@dataclass(frozen=True)
class _Losses:
    """Weighted sums `limit`, `nll`, `nll_d2` (concentrations,); `gradient` of each row's loss (n, concentrations)."""

    limit: float
    nll: Floats
    gradient: Floats
    nll_d2: Floats


def _losses(
    ratings: Ints, weight: Floats, row: Ints, own_ratings: Ints, log_probability: Floats
) -> _Losses:
    """Return the losses of some rows, (n,), with their rating entries in order of rows; at least two ratings, none of probability 0."""
    of_entry = weight[row]
    totals, index = np.unique(ratings, return_inverse=True)
    every = np.broadcast_to(CONCENTRATIONS, (len(totals), N_POINTS))
    by_total = np.bincount(index, weight, len(totals)).astype(np.float64)
    of_totals = rising_factors(every, totals, by_total)
    repeated = np.flatnonzero(own_ratings > 1)
    repeated = repeated[np.argsort(-own_ratings[repeated], kind="stable")]
    x = np.exp(log_probability[repeated])[:, None] * CONCENTRATIONS
    of_classes = rising_factors(x, own_ratings[repeated], of_entry[repeated])

    others = np.bincount(row, minlength=len(ratings)) - 1.0  # rated classes beyond the first
    gradient = of_totals.d1[index] - others[:, None]
    order = np.argsort(row[repeated], kind="stable")
    own = row[repeated][order]
    starts = np.flatnonzero(np.diff(own, prepend=-1))
    if len(own):
        gradient[own[starts]] -= np.add.reduceat(of_classes.d1[order], starts, axis=0)
    nll = of_totals.total - of_classes.total - (weight @ others) * LOG_CONCENTRATIONS
    return _Losses(
        -float(of_entry @ (own_ratings * log_probability)),
        nll - of_entry @ log_probability,
        gradient,
        of_totals.d2 - of_classes.d2,
    )


@dataclass(frozen=True)
class RisingFactors:
    """Sum over j = 1 .. m - 1 of log(x + j), by log x.

    `total` and the second derivative `d2` are weighted sums over rows, float64 (p,). `d1` is each row's derivative, (n, p).
    """

    total: Floats
    d1: Floats
    d2: Floats


def rising_factors(x: Floats, m: Ints, weight: Floats) -> RisingFactors:
    """Logarithm of (x + 1) ... (x + m - 1) = Gamma(x + m) / Gamma(x + 1), with derivatives by log x.

    Parameters
    ----------
    x : float64 (n, p), not negative
    m : int64 (n,), at least 1; fastest in decreasing order
    weight : float64 (n,)

    Source
    ------
    The product itself for 47 factors; beyond them Stirling's series, whose remainder is below 1e-15 at
    arguments from 48 on.

    Examples
    --------
    >>> made = rising_factors(np.array([[1.0]]), np.array([3]), np.ones(1))
    >>> [round(float(part.sum()), 4) for part in (made.total, made.d1, made.d2)]
    [1.7918, 0.8333, 0.4722]
    """
    product, d1, squares = np.ones(x.shape), np.zeros(x.shape), np.zeros(x.shape[1])
    decreasing = bool((np.diff(m) <= 0).all())
    for j in range(1, min(int(m.max(initial=1)), _FACTORS)):
        use: slice | Ints = slice(0, int((m > j).sum())) if decreasing else np.flatnonzero(m > j)
        term = x[use] + j
        product[use] *= term
        ratio = np.divide(x[use], term, out=term)
        d1[use] += ratio
        ratio *= ratio
        squares += weight[use] @ ratio
    total, d2 = weight @ np.log(product), -squares
    many = np.flatnonzero(m > _FACTORS)
    if len(many):
        tail = _stirling(x[many], m[many, None] - _FACTORS)
        total += weight[many] @ tail[0]
        d1[many] += tail[1]
        d2 += weight[many] @ tail[2]
    return RisingFactors(total, d1, d2 + weight @ d1)


def _stirling(x: Floats, delta: Ints) -> tuple[Floats, Floats, Floats]:
    """Return differences between x + 48 + delta and x + 48 of log gamma, of x digamma and of x^2 trigamma."""
    low = x + _FACTORS
    high = low + delta
    growth = np.log1p(delta / low)
    a, b = 1.0 / low, 1.0 / high
    log_gamma = (low - 0.5) * growth + delta * (np.log(high) - 1.0)
    log_gamma += _series(_LOG_GAMMA, b) - _series(_LOG_GAMMA, a)
    digamma = growth - 0.5 * (b - a) - b * _series(_DIGAMMA, b) + a * _series(_DIGAMMA, a)
    trigamma = (b - a) + 0.5 * (b**2 - a**2)
    trigamma += b**2 * _series(_TRIGAMMA, b) - a**2 * _series(_TRIGAMMA, a)
    return log_gamma, x * digamma, x**2 * trigamma


def _series(coefficients: tuple[float, ...], inverse: Floats) -> Floats:
    """Return c0 u + c1 u^3 + c2 u^5 + ..."""
    square, total = inverse**2, np.zeros_like(inverse)
    for coefficient in reversed(coefficients):
        total = coefficient + square * total
    return total * inverse
