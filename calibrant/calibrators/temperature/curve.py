"""Losses as functions of the inverse temperature, interpolated between the stored points of a profile.

NLL and Brier score with two derivatives are stored on a geometric grid of beta = 1 / T; a Hermite polynomial in log beta
through the six nearest points interpolates them. Panes of an older format have the first derivative of Brier alone. ECE is not
smooth: see `ece_interpolation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from calibrant.accumulators.temperature import (
    BETAS,
    CURVATURE_SUMS,
    CURVE_SUMS,
    N_BETAS,
    TABLE_BINS,
    TABLE_SUMS,
    UNIT_COUNTS,
    TemperatureProfile,
)
from calibrant.calibrators.temperature.ece_interpolation import moved_eces, stored_ece
from calibrant.calibrators.temperature.hermite import (
    LOG_BETAS,
    NODES,
    Hermite,
    Polynomial,
    Root,
    window,
)
from calibrant.core.arrays import Floats
from calibrant.core.label_policies import N_POLICIES, POLICIES

FEWER_NODES = (4, 5)
FLAT = 1e-12
CROSSING_NOISE = 0.25
# A second minimum this close to the lowest, as a share of its loss, is reported.
PLATEAU = 1e-3
# The error estimate is this many times the largest difference between six points and fewer, and the rounding of sums of float64.
_ESTIMATE, _ROUNDING = 3.0, 1e-8


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
    min_count : bins of the ECE with fewer samples (mass if predictions are weighted) are left out
    """

    method = "profile"

    def __init__(
        self, profile: TemperatureProfile, policy: int, bins: int, min_count: float = 0.0
    ) -> None:
        self.bins, self.min_count = bins, min_count
        block = profile.blocks["curve"]
        sums = block.sums.reshape(len(CURVE_SUMS), N_POLICIES, N_BETAS)[:, policy]
        self.sums = dict(zip(CURVE_SUMS, sums, strict=True))
        self.n = int(block.counts[0].reshape(N_POLICIES, N_BETAS)[policy, 0])
        self.n_zero_probability = int(block.counts[1].reshape(N_POLICIES, N_BETAS)[policy, 0])
        self.sums |= _curvature(profile, policy)
        self.unit_counts = _unit_counts(profile, policy)
        self.weight = float(self.sums["weight"][0])
        self.weight_all = float(self.sums["weight_all"][0])
        table = profile.blocks["tables"].sums.reshape(len(TABLE_SUMS), N_BETAS, TABLE_BINS)
        pooled = policy == 0
        correct_ratings = TABLE_SUMS.index(f"correct_{POLICIES[policy]}")
        self.tables = table[[0 if pooled else 1, 2 if pooled else 3, correct_ratings]]

    @cached_property
    def nll_points(self) -> Floats:
        """NLL and two derivatives in log beta at the stored points, (3, betas)."""
        value, d1, d2 = (self.sums[name] for name in ("nll", "nll_d1", "nll_d2"))
        return np.stack([value, BETAS * d1, BETAS**2 * d2 + BETAS * d1]) / self.weight

    @cached_property
    def brier_points(self) -> Floats:
        """Brier score and its known derivatives in log beta at the stored points, (1 to 3, betas); an older pane lacks the second."""
        points = [self.sums["brier"]]
        if "brier_d1" in self.sums:
            points.append(BETAS * self.sums["brier_d1"])
        if "brier_d2" in self.sums:
            points.append(BETAS**2 * self.sums["brier_d2"] + points[1])
        return np.stack(points) / self.weight_all

    @property
    def precision(self) -> str:
        """Derivatives of the Brier score that the minimum was found with."""
        return "second_derivative" if "brier_d2" in self.sums else "first_derivative"

    @cached_property
    def _nll(self) -> Hermite:
        return Hermite(lambda near: self.nll_points[:, near])

    @cached_property
    def _brier(self) -> Hermite:
        return Hermite(lambda near: self.brier_points[:, near])

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
                                       betas[mine], self.bins, self.min_count)  # fmt: skip
        for j in np.flatnonzero(np.isin(BETAS, betas)):
            result[betas == BETAS[j]] = self.ece_points[j]
        return result

    @cached_property
    def ece_points(self) -> Floats:
        """ECE at the stored points, (betas,); nan where no bin has the minimum count."""
        table = self.tables.reshape(3, N_BETAS, self.bins, -1).sum(axis=3)
        return stored_ece(table[0], table[2] - table[1], self.min_count)

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
                        BETAS[i : i + 1], self.bins, self.min_count)[0] - self.ece_points[i]
            for i in near
        ]  # fmt: skip
        moved = 2.0 * float(np.abs(missed).max()) if near else 1.0
        if not np.isfinite(moved):
            return 1.0
        return min(1.0, moved + CROSSING_NOISE / float(np.sqrt(self.n)))

    def minimum(self, objective: str) -> Minimum | None:
        """Return the lowest minimum of NLL or Brier; None if it does not depend on the temperature."""
        found = self.minima(objective)
        return found[0] if found else None

    def minima(self, objective: str) -> list[Minimum]:
        """Return every minimum of NLL or Brier, the lowest first. NLL is convex and has one."""
        sign = self._signs(objective)
        slopes = np.flatnonzero(sign)
        if not len(slopes):
            return []
        found = [
            Minimum(at.beta, None, at.iterations)
            for a, b in pairwise(slopes.tolist())
            for at in self._between(objective, a, b, bool(sign[a] < 0 < sign[b]))
        ]
        if sign[slopes[0]] > 0:
            found.append(Minimum(float(BETAS[0]), "upper"))
        if sign[slopes[-1]] < 0:
            found.append(Minimum(float(BETAS[-1]), "lower"))
        value = self.nll if objective == "nll" else self.brier
        return found if len(found) < 2 else sorted(found, key=lambda at: value(at.beta))

    def _signs(self, objective: str) -> Floats:
        """Return the sign of the slope at each stored point, (betas,); 0 where it is flat."""
        return signs((self.nll_points if objective == "nll" else self.brier_points)[1])

    def second_minimum(self, objective: str) -> Minimum | None:
        """Return another minimum whose loss is within `PLATEAU` of the lowest; None without one."""
        found = [] if objective == "nll" else self.minima(objective)[:2]
        if len(found) < 2:
            return None
        value = self.nll if objective == "nll" else self.brier
        lowest, second = (value(at.beta) for at in found)
        return found[1] if second <= lowest * (1.0 + PLATEAU) else None

    def _between(self, objective: str, a: int, b: int, rises: bool) -> list[Root]:
        """Return the minima between stored points `a` and `b`; the slopes at all points between them are 0."""
        if b > a + 1:
            return [Root(float(BETAS[(a + b) // 2]), 0)] if rises else []
        if objective == "nll":
            return [self._nll.root(a)] if rises else []
        return self._brier.minima(a)

    def root_error(self, objective: str, at: Minimum) -> float:
        """Estimate the relative error of a temperature, from the results of the nearest four and five points alone.

        By one of them alone it would be far too small where the two results agree by chance.
        """
        points = self.nll_points if objective == "nll" else self.brier_points
        j = int(np.searchsorted(BETAS, at.beta)) - 1
        if at.bound is not None or at.beta in BETAS or not points[1, j] < 0 < points[1, j + 1]:
            return 0.0
        roots = [self._of(objective).root(j, nodes).beta for nodes in FEWER_NODES]
        return _ESTIMATE * max(abs(beta / at.beta - 1.0) for beta in roots) + _ROUNDING

    def slope(self, objective: str, beta: float) -> float:
        """Return the derivative of the mean NLL or Brier score in log beta."""
        return self._of(objective)(np.log(beta), 1)

    def curvature(self, beta: float) -> float:
        """Return the second derivative of the mean NLL in beta."""
        in_log = np.log(beta)
        return (self._nll(in_log, 2) - self._nll(in_log, 1)) / beta**2

    def total(self, objective: str, beta: float) -> float:
        """Return the sum of NLL or of the Brier score over the ratings, interpolated."""
        weight = self.weight if objective == "nll" else self.weight_all
        return self._of(objective)(np.log(beta)) * weight

    def unit_losses(self, beta: float, n_units: int) -> float:
        """Return the sum over units of a unit's mean NLL; a profile has it for units of equal weight."""
        return self.nll(beta) * n_units

    def total_curvature(self, objective: str, beta: float) -> float:
        """Return the second derivative of `total` in beta."""
        if objective == "nll":
            return self.curvature(beta) * self.weight
        at = np.log(beta)
        return (self._brier(at, 2) - self._brier(at, 1)) / beta**2 * self.weight_all

    def squares(self, objective: str, beta: float) -> float | None:
        """Return the sum over units of the squared derivative of `total` in beta; None if the profile does not store its terms."""
        name = f"{objective}_d1_squared"
        return _between_points(self.sums[name], beta) if name in self.sums else None

    def variance(self, objective: str, beta: float) -> float | None:
        """Return the sandwich variance of the fitted beta by unit; None if the profile does not store its terms."""
        squares = self.squares(objective, beta)
        curvature = self.total_curvature(objective, beta)
        return None if squares is None or curvature <= 0.0 else squares / curvature**2

    def squared_slope(self, beta: float) -> float:
        """Return `squares` of NLL."""
        return _between_points(self.sums["nll_d1_squared"], beta)


def signs(slopes: Floats) -> Floats:
    """Return the signs of slopes, 0 of flat ones."""
    return np.where(np.abs(slopes) < FLAT, 0.0, np.sign(slopes))


def _between_points(squares: Floats, beta: float) -> float:
    """Return a sum of squared slopes at `beta`: a polynomial in log beta interpolates beta² times the sum, which has no unit."""
    near = window(np.log(beta), NODES)
    scaled = (BETAS**2 * squares)[near]
    found = Polynomial(LOG_BETAS[near], scaled[None]).derivatives(float(np.log(beta)))[0]
    if found <= 0.0:
        found = float(np.interp(np.log(beta), LOG_BETAS[near], scaled))
    return max(found, 0.0) / beta**2


def _curvature(profile: TemperatureProfile, policy: int) -> dict[str, Floats]:
    """Return the columns of the block `curvature` under a policy; none of an older pane."""
    if "curvature" not in profile.blocks:
        return {}
    sums = profile.blocks["curvature"].sums.reshape(len(CURVATURE_SUMS), N_POLICIES, N_BETAS)
    return dict(zip(CURVATURE_SUMS, sums[:, policy], strict=True))


def _unit_counts(profile: TemperatureProfile, policy: int) -> dict[str, int]:
    """Return the columns of the block `units` under a policy; none of an older pane."""
    if "units" not in profile.blocks:
        return {}
    return dict(zip(UNIT_COUNTS, profile.blocks["units"].counts[:, policy].tolist(), strict=True))
