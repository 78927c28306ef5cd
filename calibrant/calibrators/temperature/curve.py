"""Losses as functions of the inverse temperature, interpolated between the stored points of a profile.

NLL, its first and second derivative are stored on a geometric grid of beta = 1 / T, Brier with its first; a Hermite
polynomial in log beta through the six nearest points interpolates them. ECE is not smooth: see `ece_interpolation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.accumulators.temperature import (
    BETAS,
    CURVE_SUMS,
    N_BETAS,
    TABLE_BINS,
    TABLE_SUMS,
    TemperatureProfile,
)
from calibrant.calibrators.temperature.ece_interpolation import moved_eces
from calibrant.calibrators.temperature.hermite import LOG_BETAS, NODES, Hermite, Root, window
from calibrant.core.label_policies import N_POLICIES, POLICIES

Floats = NDArray[np.float64]
FEWER_NODES = 4
FLAT = 1e-12
CROSSING_NOISE = 0.25


@dataclass(frozen=True)
class Minimum:
    """Minimum of a loss: beta, whether that is an end of the stored range ("lower" and "upper" in T), number of steps."""

    beta: float
    bound: str | None
    iterations: int = 0


class Curve:
    """A profile's losses under one label policy, per unit of weight.

    Parameters
    ----------
    profile : TemperatureProfile
    policy : int, place in `POLICIES`
    bins : int, equal-width bins (right edges) of the ECE; a divisor of 60 where tables are read
    """

    method = "profile"

    def __init__(self, profile: TemperatureProfile, policy: int, bins: int) -> None:
        self.bins = bins
        block = profile.blocks["curve"]
        sums = block.sums.reshape(len(CURVE_SUMS), N_POLICIES, N_BETAS)[:, policy]
        self.kept = dict(zip(CURVE_SUMS, sums, strict=True))
        self.n = int(block.counts[0].reshape(N_POLICIES, N_BETAS)[policy, 0])
        self.n_zero_probability = int(block.counts[1].reshape(N_POLICIES, N_BETAS)[policy, 0])
        self.weight = float(self.kept["weight"][0])
        self.weight_all = float(self.kept["weight_all"][0])
        table = profile.blocks["tables"].sums.reshape(len(TABLE_SUMS), N_BETAS, TABLE_BINS)
        pooled = policy == 0
        hits = TABLE_SUMS.index(f"correct_{POLICIES[policy]}")
        self.tables = table[[0 if pooled else 1, 2 if pooled else 3, hits]]

    @cached_property
    def nll_points(self) -> Floats:
        """NLL and two derivatives in log beta at the stored points, (3, betas)."""
        value, d1, d2 = (self.kept[name] for name in ("nll", "nll_d1", "nll_d2"))
        return np.stack([value, BETAS * d1, BETAS**2 * d2 + BETAS * d1]) / self.weight

    @cached_property
    def brier_points(self) -> Floats:
        """Brier score and its derivative in log beta at the stored points, (2, betas)."""
        return np.stack([self.kept["brier"], BETAS * self.kept["brier_d1"]]) / self.weight_all

    @cached_property
    def _nll(self) -> Hermite:
        return Hermite(self.nll_points)

    @cached_property
    def _brier(self) -> Hermite:
        return Hermite(self.brier_points)

    def _of(self, objective: str) -> Hermite:
        return self._nll if objective == "nll" else self._brier

    def nll(self, beta: float) -> float:
        return self._nll(np.log(beta))

    def brier(self, beta: float) -> float:
        return self._brier(np.log(beta))

    def ece(self, beta: float) -> float:
        return float(self.eces(np.array([beta]))[0])

    def eces(self, betas: Floats) -> Floats:
        """Return the ECE at each beta of an increasing array; exact at stored points."""
        result = np.empty(len(betas))
        left = np.clip(np.searchsorted(BETAS, betas, "right") - 1, 0, N_BETAS - 2)
        for j in np.unique(left):
            mine = left == j
            result[mine] = moved_eces(self.tables[:, j], self.tables[:, j + 1], BETAS[j], BETAS[j + 1],
                                       betas[mine], self.bins)  # fmt: skip
        for j in np.flatnonzero(np.isin(BETAS, betas)):
            result[betas == BETAS[j]] = self.ece_points[j]
        return result

    @cached_property
    def ece_points(self) -> Floats:
        """ECE at the stored points, (betas,)."""
        table = self.tables.reshape(3, N_BETAS, self.bins, -1).sum(axis=3)
        return np.asarray(np.abs(table[2] - table[1]).sum(axis=1) / table[0].sum(axis=1))

    def ece_error(self, beta: float) -> float:
        """Estimate how far the interpolated table may be off.

        Twice the largest error at the nearest stored points when those are left out, and the noise of single predictions
        that cross an edge before or after their quantile.
        """
        if beta in BETAS:
            return 0.0
        j = int(np.searchsorted(BETAS, beta))
        near = [i for i in (j - 1, j) if 0 < i < N_BETAS - 1]
        missed = [
            moved_eces(self.tables[:, i - 1], self.tables[:, i + 1], BETAS[i - 1], BETAS[i + 1],
                        BETAS[i : i + 1], self.bins)[0] - self.ece_points[i]
            for i in near
        ]  # fmt: skip
        moved = 2.0 * float(np.abs(missed).max()) if near else 1.0
        return min(1.0, moved + CROSSING_NOISE / float(np.sqrt(self.n)))

    def minimum(self, objective: str) -> Minimum | None:
        """Return the minimum of NLL or Brier; None if it does not depend on the temperature."""
        points = self.nll_points if objective == "nll" else self.brier_points
        sign = np.where(np.abs(points[1]) < FLAT, 0.0, np.sign(points[1]))
        slopes = np.flatnonzero(sign)
        if not len(slopes):
            return None
        found = [
            Minimum(between.beta, None, between.iterations)
            for a, b in pairwise(slopes)
            if sign[a] < 0 < sign[b]
            and (between := self._between(points, objective, int(a), int(b)))
        ]
        if sign[slopes[0]] > 0:
            found.append(Minimum(float(BETAS[0]), "upper"))
        if sign[slopes[-1]] < 0:
            found.append(Minimum(float(BETAS[-1]), "lower"))
        if len(found) == 1:
            return found[0]
        value = self.nll if objective == "nll" else self.brier
        return min(found, key=lambda at: value(at.beta))

    def _between(self, points: Floats, objective: str, a: int, b: int) -> Root:
        """Return the root of the slope between two stored points if it changes its sign."""
        if b > a + 1:
            return Root(float(BETAS[(a + b) // 2]), 0)
        return self._of(objective).root(a)

    def root_error(self, objective: str, at: Minimum) -> float:
        """Bound the relative error of a temperature by the result of the nearest four points alone."""
        points = self.nll_points if objective == "nll" else self.brier_points
        j = int(np.searchsorted(BETAS, at.beta)) - 1
        if at.bound is not None or at.beta in BETAS or not points[1, j] < 0 < points[1, j + 1]:
            return 0.0
        return abs(self._of(objective).root(j, FEWER_NODES).beta / at.beta - 1.0)

    def slope(self, objective: str, beta: float) -> float:
        """Return the derivative of the mean NLL or Brier score in log beta."""
        return self._of(objective)(np.log(beta), 1)

    def curvature(self, beta: float) -> float:
        """Return the second derivative of the mean NLL in beta."""
        in_log = np.log(beta)
        return (self._nll(in_log, 2) - self._nll(in_log, 1)) / beta**2

    def variance(self, objective: str, beta: float) -> float | None:
        """Return the sandwich variance of the fitted beta by unit; None if the profile does not store its terms."""
        bend = self.curvature(beta)
        if objective != "nll" or bend <= 0.0:
            return None
        return self.squared_slope(beta) / (self.weight * bend) ** 2

    def squared_slope(self, beta: float) -> float:
        """Return the sum by unit of the squared slope: polynomial in log beta of what is free of beta's unit."""
        near = window(np.log(beta), NODES)
        scaled = (BETAS**2 * self.kept["nll_d1_squared"])[near]
        found = float(scipy.interpolate.KroghInterpolator(LOG_BETAS[near], scaled)(np.log(beta)))
        if found <= 0.0:
            found = float(np.interp(np.log(beta), LOG_BETAS[near], scaled))
        return max(found, 0.0) / beta**2
