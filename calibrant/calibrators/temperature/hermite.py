"""Polynomials through values and derivatives at the stored inverse temperatures, in log beta."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import NamedTuple, TypeVar

import numpy as np
import scipy

from calibrant.accumulators.temperature import BETAS, N_BETAS
from calibrant.core.arrays import Floats

Places = TypeVar("Places", float, Floats)
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
    read : stored points to float64 (n_derivatives, n_points), value first
    """

    def __init__(self, read: Callable[[slice], Floats]) -> None:
        self._read = read
        self._interpolants: dict[tuple[int, int], Polynomial] = {}

    def __call__(self, log_beta: float, order: int = 0) -> float:
        """Return the interpolant or its derivative of that order."""
        near = window(log_beta, NODES)
        at = float(log_beta - LOG_BETAS[near.start])
        return self._polynomial(near).derivatives(at)[order]

    def root(self, left: int, nodes: int = NODES) -> Root:
        """Return the root of the slope between two stored points, by the nearest nodes."""
        slope = self._slope(window(LOG_BETAS[left], nodes))
        return root(slope, float(LOG_BETAS[left]), float(LOG_BETAS[left + 1]))

    def minima(self, left: int) -> list[Root]:
        """Return every place between two stored points where the slope rises through 0."""
        near = window(LOG_BETAS[left], NODES)
        places = np.linspace(LOG_BETAS[left], LOG_BETAS[left + 1], STEPS + 1)
        slopes = self._polynomial(near).derivatives(places - LOG_BETAS[near.start])[1]
        # The ends are stored, so that neighbouring intervals agree on their sign.
        slopes[[0, -1]] = self._read(slice(left, left + 2))[1]
        rising = np.flatnonzero((slopes[:-1] < 0.0) & (slopes[1:] > 0.0))
        slope = self._slope(near)
        return [root(slope, float(places[i]), float(places[i + 1])) for i in rising]

    def _slope(self, near: slice) -> Callable[[float], float]:
        """Return the slope of the polynomial through some stored points, as a function of log beta."""
        polynomial, start = self._polynomial(near), float(LOG_BETAS[near.start])
        return lambda log_beta: polynomial.derivatives(log_beta - start)[1]

    def _polynomial(self, near: slice) -> Polynomial:
        """Return the polynomial through some stored points, in log beta relative to the first."""
        name = near.start, near.stop
        if name not in self._interpolants:
            nodes = LOG_BETAS[near] - LOG_BETAS[near.start]
            self._interpolants[name] = Polynomial(nodes, self._read(near))
        return self._interpolants[name]


class Polynomial:
    """Polynomial with given values and derivatives at its nodes, in Newton's form.

    scipy's `KroghInterpolator` computes the same polynomial. At one place, where a search asks for it, it takes more than 100 times as long.

    Parameters
    ----------
    nodes : float64 (n_nodes,), increasing
    points : float64 (n_derivatives, n_nodes), value first
    """

    def __init__(self, nodes: Floats, points: Floats) -> None:
        n_derivatives, n_nodes = points.shape
        n = n_derivatives * n_nodes
        x: list[float] = np.repeat(nodes, n_derivatives).tolist()
        given: list[list[float]] = points.T.tolist()
        differences = [given[i // n_derivatives][0] for i in range(n)]
        self._coefficients = [differences[0]]
        for order in range(1, n):
            differences = [
                given[i // n_derivatives][order] / factorial(order)
                if order < n_derivatives and x[i] == x[i + order]
                else (differences[i + 1] - differences[i]) / (x[i + order] - x[i])
                for i in range(n - order)
            ]
            self._coefficients.append(differences[0])
        self._terms = list(zip(self._coefficients[-2::-1], x[-2::-1], strict=True))

    def derivatives(self, at: Places) -> tuple[Places, Places, Places]:
        """Return value, slope and second derivative."""
        value, slope, half_curvature = self._coefficients[-1] + 0.0 * at, 0.0 * at, 0.0 * at
        for coefficient, node in self._terms:
            step = at - node
            half_curvature = half_curvature * step + slope
            slope = slope * step + value
            value = value * step + coefficient
        return value, slope, 2.0 * half_curvature


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
