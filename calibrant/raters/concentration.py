"""Concentration alpha0 of Dirichlets around the predictions, fitted to the ratings: global alpha-calibration.

The fit minimises mean NLL + penalty (log alpha0)^2 over predictions with at least two ratings. The mean
prediction does not change. If ratings are no more alike within a prediction than by chance, the
likelihood increases up to the grid's end: then `dispersion` is "none detected", and the penalty alone
determines the value.

Source: Mimori, Sasada, Matsui, Sato (AISTATS 2021), section 5.3; penalty 0.005 as in their published code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from calibrant.accumulators.accumulator import Accumulator
from calibrant.accumulators.concentration import LOG_CONCENTRATIONS, N_POINTS, SUMS
from calibrant.core.arrays import Floats
from calibrant.core.view import NoResultError

PENALTY = 0.005
NEIGHBOURS = 8
_AT = {name: i for i, name in enumerate(SUMS)}
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True)
class Concentration:
    """A fitted alpha0.

    Attributes
    ----------
    value : float, between 2^-8 and 2^12
    standard_error : of log value, robust to any dependence inside a unit; None at a bound
    interval : of value, from it
    penalty : factor of (log alpha0)^2
    at_bound : "lower", "upper" or None
    dispersion : "detected", or "none detected" if the likelihood alone increases up to the largest alpha0
    unpenalised : the value without a penalty, None if none is detected
    nll_limit, nll : mean loss per prediction at infinite alpha0 and at value, in nats, without the multinomial
        coefficient
    gradient_norm : derivative of the penalised mean loss in log alpha0 at the value; 0 at a bound
    iterations : steps to it from the stored points
    n : number of predictions with at least two ratings in the fit
    n_zero_probability : number of excluded predictions with a rating of a class with probability 0
    """

    value: float
    standard_error: float | None
    interval: tuple[float, float] | None
    penalty: float
    at_bound: str | None
    dispersion: str
    unpenalised: float | None
    nll_limit: float
    nll: float
    gradient_norm: float
    iterations: int
    n: int
    n_zero_probability: int


def fit_concentration(
    profile: Accumulator, penalty: float = PENALTY, ci: float = 0.95
) -> Concentration:
    """Fit the concentration to the stored profile.

    Parameters
    ----------
    profile : the accumulator `concentration` of a pane
    penalty : factor of (log alpha0)^2, not negative
    ci : nominal coverage of the interval

    Raises
    ------
    NoResultError
        No prediction has two ratings (one leaves alpha0 unidentified), or all that have are impossible under the
        predictions.
    """
    counts = profile.blocks["profile"].counts[:, 0]
    sums = profile.blocks["profile"].sums
    if not counts[0]:
        raise NoResultError(
            "one_vote", "one rating per prediction leaves the concentration unidentified"
        )
    weight = float(sums[0, 0])
    if not weight > 0:
        raise NoResultError(
            "zero_probability", "every prediction has a rating of a class with probability 0"
        )
    means = sums[1:5] / weight
    curve = _Curve(means[1], means[2], means[3], penalty)
    place, bound, iterations = curve.minimum()
    free, free_bound, _ = _Curve(means[1], means[2], means[3], 0.0).minimum()
    detected = free_bound != "upper"
    error = None
    if bound is None:
        spread = math.sqrt(
            max(float(np.interp(place, LOG_CONCENTRATIONS, sums[_AT["nll_d1_squared"]])), 0.0)
        )
        error = spread / weight / curve.curvature(place)
    reach = None if error is None else float(scipy.special.ndtri(0.5 + ci / 2.0)) * error
    return Concentration(
        value=math.exp(place),
        standard_error=error,
        interval=None if reach is None else (math.exp(place - reach), math.exp(place + reach)),
        penalty=penalty,
        at_bound=bound,
        dispersion="detected" if detected else "none detected",
        unpenalised=math.exp(free) if detected else None,
        nll_limit=float(means[0, 0]),
        nll=curve.loss(place),
        gradient_norm=0.0 if bound else abs(curve.slope(place)),
        iterations=iterations,
        n=int(counts[0] - counts[1]),
        n_zero_probability=int(counts[1]),
    )


class _Curve:
    """Mean loss by log alpha0 between the stored points: the polynomial of slopes and curvatures of eight neighbours.

    The loss is analytic within pi of the real line, and so a minimum found from it is within 1e-7.
    """

    def __init__(self, nll: Floats, d1: Floats, d2: Floats, penalty: float) -> None:
        self._nll, self._d1, self._d2, self._penalty = nll, d1, d2, penalty
        self._objective_slope = d1 + 2.0 * penalty * LOG_CONCENTRATIONS

    def minimum(self) -> tuple[float, str | None, int]:
        """Return the place of the minimal penalised loss, the end of the grid if it is there, and the number of steps."""
        slope, t = self._objective_slope, LOG_CONCENTRATIONS
        ends: list[tuple[float, str | None, int]] = []
        if slope[0] >= 0:
            ends.append((float(t[0]), "lower", 0))
        if slope[-1] <= 0:
            ends.append((float(t[-1]), "upper", 0))
        rising = np.flatnonzero((slope[:-1] < 0) & (slope[1:] > 0))
        inner: list[tuple[float, str | None, int]] = [self._root(int(i)) for i in rising]
        exact: list[tuple[float, str | None, int]] = [
            (float(t[i]), None, 0) for i in np.flatnonzero(slope == 0)
        ]
        return min(
            ends + inner + exact,
            key=lambda found: self.loss(found[0]) + self._penalty * found[0] ** 2,
        )

    def loss(self, place: float) -> float:
        """Return the mean loss: a stored point's plus the integral of the slope from there."""
        start = float(LOG_CONCENTRATIONS[self._cell(place)])
        half = (place - start) / 2.0
        slope, _ = self._slope(self._cell(place))
        part = sum(
            w * slope(start + half * (1.0 + node)) for node, w in zip(_NODES, _WEIGHTS, strict=True)
        )
        return float(self._nll[self._cell(place)] + half * part)

    def slope(self, place: float) -> float:
        """Return the first derivative of the penalised loss."""
        return self._slope(self._cell(place))[0](place) + 2.0 * self._penalty * place

    def curvature(self, place: float) -> float:
        """Return the second derivative of the penalised loss."""
        return self._slope(self._cell(place))[1](place) + 2.0 * self._penalty

    def _cell(self, place: float) -> int:
        found = int(np.searchsorted(LOG_CONCENTRATIONS, place, side="right")) - 1
        return min(max(found, 0), N_POINTS - 2)

    def _root(self, cell: int) -> tuple[float, None, int]:
        slope, _ = self._slope(cell)
        low, high = LOG_CONCENTRATIONS[cell : cell + 2]
        found, how = scipy.optimize.brentq(
            lambda t: slope(t) + 2.0 * self._penalty * t, low, high, xtol=1e-12, full_output=True
        )
        return float(found), None, int(how.iterations)

    def _slope(self, cell: int) -> tuple[Callable[[float], float], Callable[[float], float]]:
        """Return the slope in a cell and its derivative."""
        first = min(max(cell - NEIGHBOURS // 2 + 1, 0), N_POINTS - NEIGHBOURS)
        near = slice(first, first + NEIGHBOURS)
        values = np.stack([self._d1[near], self._d2[near]], axis=1).ravel()
        polynomial = scipy.interpolate.KroghInterpolator(
            np.repeat(LOG_CONCENTRATIONS[near], 2), values
        )
        return lambda t: float(polynomial(t)), lambda t: float(polynomial.derivative(t))
