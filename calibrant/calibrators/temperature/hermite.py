"""Polynomials through values and derivatives at the stored inverse temperatures, in log beta."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.accumulators.temperature import BETAS, N_BETAS

Floats = NDArray[np.float64]
LOG_BETAS = np.log(BETAS)
NODES = 6
# Parts of the interval between two stored points in which roots are searched.
STEPS = 16


class Root(NamedTuple):
    """Root of a slope, and the number of steps of its search."""

    beta: float
    iterations: int


class Hermite:
    """Function of log beta, known with some derivatives at the stored points and interpolated by polynomials through the nearest.

    Parameters
    ----------
    points : float64 (n_derivatives, betas), value first
    """

    def __init__(self, points: Floats) -> None:
        self.points = points
        self._interpolants: dict[tuple[int, int], scipy.interpolate.KroghInterpolator] = {}

    def __call__(self, log_beta: float, order: int = 0) -> float:
        """Return the interpolant or its derivative of that order."""
        near = window(log_beta, NODES)
        at, polynomial = log_beta - LOG_BETAS[near.start], self._polynomial(near)
        return float(polynomial(at) if order == 0 else polynomial.derivative(at, order))

    def root(self, left: int, nodes: int = NODES) -> Root:
        """Return the root of the slope between two stored points, by the nearest nodes."""
        near = window(LOG_BETAS[left], nodes)
        polynomial, start = self._polynomial(near), LOG_BETAS[near.start]

        def slope(log_beta: float) -> float:
            return float(polynomial.derivative(log_beta - start, 1))

        return root(slope, LOG_BETAS[left], LOG_BETAS[left + 1])

    def minima(self, left: int) -> list[Root]:
        """Return every place between two stored points where the slope rises through 0."""
        near = window(LOG_BETAS[left], NODES)
        polynomial, start = self._polynomial(near), LOG_BETAS[near.start]
        places = np.linspace(LOG_BETAS[left], LOG_BETAS[left + 1], STEPS + 1)
        slopes = np.asarray(polynomial.derivative(places - start, 1))
        # The ends are stored, so that neighbouring intervals agree on their sign.
        slopes[[0, -1]] = self.points[1, left : left + 2]
        rising = np.flatnonzero((slopes[:-1] < 0.0) & (slopes[1:] > 0.0))

        def slope(log_beta: float) -> float:
            return float(polynomial.derivative(log_beta - start, 1))

        return [root(slope, places[i], places[i + 1]) for i in rising]

    def _polynomial(self, near: slice) -> scipy.interpolate.KroghInterpolator:
        """Return the polynomial through some stored points, in log beta relative to the first."""
        name = near.start, near.stop
        if name not in self._interpolants:
            x = np.repeat(LOG_BETAS[near] - LOG_BETAS[near.start], len(self.points))
            self._interpolants[name] = scipy.interpolate.KroghInterpolator(
                x, self.points[:, near].T.ravel()
            )
        return self._interpolants[name]


def window(log_beta: float, nodes: int) -> slice:
    """Return the stored points nearest to a place between them."""
    j = min(max(int(np.searchsorted(LOG_BETAS, log_beta, "right")) - 1, 0), N_BETAS - 2)
    first = min(max(j + 1 - nodes // 2, 0), N_BETAS - nodes)
    return slice(first, first + nodes)


def root(slope: Callable[[float], float], low: float, high: float) -> Root:
    """Return beta at the root in log beta; the nearer end if rounding hides the change of sign."""
    ends = slope(low), slope(high)
    if not ends[0] < 0.0 < ends[1]:
        return Root(float(np.exp(low if abs(ends[0]) <= abs(ends[1]) else high)), 0)
    at, how = scipy.optimize.brentq(slope, low, high, xtol=1e-15, rtol=1e-14, full_output=True)
    return Root(float(np.exp(at)), int(how.iterations))


def quintic(left: float, right: float, at: Floats) -> Floats:
    """Return weights (len(at), 6) of value and two derivatives at both ends in the quintic Hermite polynomial."""
    h = right - left
    t = (at - left) / h
    s = 1.0 - t

    def end(u: Floats, v: Floats) -> list[Floats]:
        return [v**3 * (1.0 + 3.0 * u + 6.0 * u**2), u * v**3 * (1.0 + 3.0 * u), 0.5 * u**2 * v**3]

    first, last = end(t, s), end(s, t)
    return np.stack(
        [first[0], h * first[1], h**2 * first[2], last[0], -h * last[1], h**2 * last[2]], axis=1
    )
