"""Losses as functions of the inverse temperature, from raw rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.temperature import BETAS, TemperatureProfile
from calibrant.calibrators.temperature.curve import Curve, Minimum
from calibrant.calibrators.temperature.ece_interpolation import stored_ece
from calibrant.calibrators.temperature.hermite import LOG_BETAS, Root, quintic, root
from calibrant.calibrators.temperature.tempered_rows import (
    brier,
    brier_slopes,
    nll,
    nll_by_row,
    nll_slopes,
    rows_of,
    spread,
)
from calibrant.core.batch_sums import BatchSums
from calibrant.core.grid import equal_width_bin

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ROOT_WIDTH = 1e-2
ROW_STEPS_PER_OCTAVE = 8
MAX_SCORES = 1 << 21


class RowCurve(Curve):
    """Losses from raw rows: exact at any beta; the profile only narrows the search.

    Parameters
    ----------
    profile : TemperatureProfile that was filled with `batch_sums`
    batch_sums : BatchSums
    policy, bins, min_count : as in `Curve`; any number of bins
    """

    method = "raw"

    def __init__(
        self,
        profile: TemperatureProfile,
        batch_sums: BatchSums,
        policy: int,
        bins: int,
        min_count: float = 0.0,
    ) -> None:
        super().__init__(profile, policy, bins, min_count)
        self.policy, self.batch_sums = policy, batch_sums
        step = max(256, (1 << 18) // batch_sums.batch.n_classes)
        self.parts = [
            rows_of(batch_sums, slice(start, min(start + step, batch_sums.n)))
            for start in range(0, batch_sums.n, step)
        ]

    def nll(self, beta: float) -> float:
        return sum(nll(part, self.policy, beta)[0] for part in self.parts) / self.weight

    def brier(self, beta: float) -> float:
        return sum(brier(part, self.policy, beta)[0] for part in self.parts) / self.weight_all

    def slope(self, objective: str, beta: float) -> float:
        total = self.weight if objective == "nll" else self.weight_all
        return beta * self._slope(objective, beta) / total

    def curvature(self, beta: float) -> float:
        return sum(nll(part, self.policy, beta)[2] for part in self.parts) / self.weight

    def total_curvature(self, objective: str, beta: float) -> float:
        if objective == "nll":
            return self.curvature(beta) * self.weight
        high, low = beta * (1.0 + 1e-4), beta * (1.0 - 1e-4)
        return (self._slope("brier", high) - self._slope("brier", low)) / (high - low)

    def squares(self, objective: str, beta: float) -> float | None:
        return float((self._unit_slopes(objective, beta) ** 2).sum())

    def unit_losses(self, beta: float, n_units: int) -> float:
        loss, weight = np.zeros((2, self.batch_sums.n_units))
        for part in self.parts:
            by_row = nll_by_row(part, self.policy, beta)
            loss += np.bincount(part.unit, by_row[0], len(loss))
            weight += np.bincount(part.unit, by_row[1], len(loss))
        return float(np.divide(loss, weight, out=np.zeros_like(loss), where=weight > 0).sum())

    def _slope(self, objective: str, beta: float) -> float:
        if objective == "nll":
            return float(sum(nll(part, self.policy, beta)[1] for part in self.parts))
        return float(sum(brier(part, self.policy, beta)[1] for part in self.parts))

    def _unit_slopes(self, objective: str, beta: float) -> Floats:
        losses = nll_slopes if objective == "nll" else brier_slopes
        total = np.zeros(self.batch_sums.n_units)
        for part in self.parts:
            total += np.bincount(part.unit, losses(part, self.policy, beta), len(total))
        return total

    def _between(self, objective: str, a: int, b: int, rises: bool) -> list[Root]:
        def slope(log_beta: float) -> float:
            return self._slope(objective, float(np.exp(log_beta)))

        found = []
        for start in super()._between(objective, a, b, rises):
            low, high = np.log(start.beta) - ROOT_WIDTH, np.log(start.beta) + ROOT_WIDTH
            if not slope(low) < 0.0 < slope(high):
                low, high = LOG_BETAS[a], LOG_BETAS[b]
            found.append(root(slope, low, high))
        return found

    @property
    def precision(self) -> str:
        return "rows"

    def root_error(self, objective: str, at: Minimum) -> float:
        return 0.0

    def ece_error(self, beta: float) -> float:
        return 0.0

    @cached_property
    def ece_points(self) -> Floats:
        return self.eces(BETAS)

    def eces(self, betas: Floats) -> Floats:
        """Return the ECE at each beta of an increasing array.

        For many betas, each row's log normaliser is interpolated between closely spaced points.
        """
        weight, correct_ratings = self._row_weights
        result = np.empty(len(betas))
        for chosen, scores in self._scores(betas):
            place = equal_width_bin(scores, self.bins) + self.bins * np.arange(len(scores))[:, None]
            gap, count = (
                np.bincount(place.ravel(), values.ravel(), len(scores) * self.bins)
                .reshape(-1, self.bins)
                .astype(np.float64)
                for values in (
                    correct_ratings - weight * scores,
                    np.broadcast_to(weight, scores.shape),
                )
            )
            result[chosen] = stored_ece(count, gap, self.min_count)
        return result

    @cached_property
    def _row_weights(self) -> tuple[Floats, Floats]:
        """Weight and weighted correct ratings of each row's score under the policy."""
        weights = [part.table_weights[0 if self.policy == 0 else 1] for part in self.parts]
        return np.concatenate(weights), np.concatenate(
            [part.table_correct[self.policy] for part in self.parts]
        )

    def _scores(self, betas: Floats) -> Iterator[tuple[slice | Ints, Floats]]:
        """Yield places in `betas` with the rows' scores there, (places, n), a few at a time."""
        few = max(1, MAX_SCORES // max(self.batch_sums.n, self.bins))
        if len(betas) <= 4 * ROW_STEPS_PER_OCTAVE:
            for i, beta in enumerate(betas):
                total = np.concatenate(
                    [np.exp(beta * part.logit).sum(axis=0) for part in self.parts]
                )
                yield slice(i, i + 1), self._score(betas[i : i + 1], np.log(total)[None])
            return
        first, last = np.log(betas[0]), np.log(betas[-1])
        n_nodes = int(np.ceil((last - first) / np.log(2.0) * ROW_STEPS_PER_OCTAVE)) + 1
        nodes = np.linspace(first, last, n_nodes)
        left = np.clip(np.searchsorted(nodes, np.log(betas), "right") - 1, 0, n_nodes - 2)
        after = self._log_total(nodes[0])
        for j in range(n_nodes - 1):
            before, after = after, self._log_total(nodes[j + 1])
            places = np.flatnonzero(left == j)
            for start in range(0, len(places), few):
                chosen = places[start : start + few]
                basis = quintic(nodes[j], nodes[j + 1], np.log(betas[chosen]))
                yield chosen, self._score(betas[chosen], basis @ np.concatenate([before, after]))

    def _score(self, betas: Floats, log_total: Floats) -> Floats:
        """Return scores at each beta. At beta 1 they are the scores as sent, so that a score on an edge stays there."""
        log_score = -log_total
        if self.batch_sums.batch.task == "binary":
            log_score += betas[:, None] * np.concatenate([part.logit[1] for part in self.parts])
        score = np.minimum(np.exp(log_score), 1.0)
        score[betas == 1.0] = self.batch_sums.score
        return score

    def _log_total(self, log_beta: float) -> Floats:
        """Return each row's log normaliser with two derivatives in log beta, (3, n)."""
        beta = float(np.exp(log_beta))
        columns = []
        for part in self.parts:
            total, mean, variance = spread(part, beta)
            columns.append(np.stack([np.log(total), beta * mean, beta**2 * variance + beta * mean]))
        return np.concatenate(columns, axis=1)
