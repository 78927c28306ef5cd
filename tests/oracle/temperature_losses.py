"""Losses of labelled rows, and their derivatives, at every inverse temperature of the grid: what `temperature.py` stores, filled by numpy.

The probabilities are softmax(beta z) of logits z, from two exponentials and repeated squaring. With p a row's softmax at beta,
its NLL is log sum exp(beta z) minus beta times the z of its ratings. Derivatives are means of z and z^2 under p. The Brier loss
needs sums of p^2, and of p and p z over the ratings. Ratings are represented as *lanes*: a few classes of each row, so that
nothing is collected by index. Policies differ by one weight per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.temperature import BETAS, N_BETAS, STEPS_PER_OCTAVE
from calibrant.core.batch_sums import BatchSums
from calibrant.core.logits import relative_logits
from tests.oracle.rating_lanes import ALL, MAJORITY, SINGLE, Lane, Policies
from tests.oracle.squaring import even_steps, powers, squarings

LOGS_AT_ONCE = 16
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class TemperedRows:
    """Some labelled rows at every beta of the grid."""

    logit: Floats  # (n_classes, n), at most 0; minus infinity for probability 0
    finite: Floats  # the same with 0 for minus infinity
    score: Floats  # (n,), as sent
    is_binary: bool
    lanes: list[Lane]
    policies: Policies

    @property
    def n(self) -> int:
        return int(self.logit.shape[1])

    @cached_property
    def moments(self) -> Moments:
        return _moments(self)

    @cached_property
    def row_weight(self) -> Floats:
        """Weight of each row's ratings of positive probability, (computed policies, n)."""
        policies = zip(self.policies.lanes, self.policies.weights, strict=True)
        return np.stack([weight * self.lanes[lane].total_possible for lane, weight in policies])

    @cached_property
    def row_weight_all(self) -> Floats:
        """The same with ratings of probability 0."""
        if all(lane.possible.all() for lane in self.lanes):
            return self.row_weight
        policies = zip(self.policies.lanes, self.policies.weights, strict=True)
        return np.stack([weight * self.lanes[lane].total for lane, weight in policies])

    @cached_property
    def row_logit(self) -> Floats:
        """Weighted sum of z over each row's ratings, (computed policies, n)."""
        policies = zip(self.policies.lanes, self.policies.weights, strict=True)
        return np.stack([weight * self.lanes[lane].logit_sum for lane, weight in policies])

    @property
    def n_zero(self) -> Ints:
        """Ratings of a class at probability 0, (4,): all ratings for the first two policies."""
        zero = [int((lane.ratings * ~lane.possible).sum()) for lane in self.lanes]
        lanes = (ALL, ALL, MAJORITY, SINGLE)
        return np.array([zero[lane if lane < len(zero) else ALL] for lane in lanes], np.int64)

    def losses(self) -> tuple[Floats, ...]:
        """Return sums over rows for the four policies.

        Returns
        -------
        weight (4, 1), nll, nll_d1, nll_d2 (4, betas), weight of all ratings (4, 1), brier, brier_d1, brier_d2 (4, betas)
        """
        at, weight, weight_all = self.moments, self.row_weight, self.row_weight_all
        logit = self.row_logit.sum(axis=1, keepdims=True)
        squares = self._summed(weight_all, at.squares)
        slope = self._summed(weight_all, at.squares_slope)
        curvature = self._summed(weight_all, at.squares_curvature)
        chosen, chosen_slope, chosen_curvature = self._rated()
        total_all = weight_all.sum(axis=1, keepdims=True)
        columns = (
            weight.sum(axis=1, keepdims=True),
            self._summed_logs(weight) - logit * BETAS,
            self._summed(weight, at.mean) - logit,
            self._summed(weight, at.variance),
            total_all,
            total_all + squares - 2.0 * chosen,
            2.0 * (slope - chosen_slope),
            2.0 * (curvature - chosen_curvature),
        )
        return tuple(map(self.policies.all_four, columns))

    def squared_gradient(self) -> Floats:
        """Return the sum over rows of the squared derivative of a row's NLL, expanded; (4, betas)."""
        weight, logit, mean = self.row_weight, self.row_logit, self.moments.mean
        crossed = weight**2 @ (mean**2).T - 2.0 * (weight * logit) @ mean.T
        result = np.maximum(crossed + (logit**2).sum(axis=1, keepdims=True), 0.0)
        return self.policies.all_four(result, power=2)

    def squared_brier_gradient(self) -> Floats:
        """Return the sum over rows of the squared derivative of a row's Brier score; (4, betas)."""
        squared = [np.einsum("bn,bn->b", each, each) for each in self.brier_gradients()]
        return self.policies.all_four(np.stack(squared), power=2)

    def gradients(self) -> Iterator[Floats]:
        """Yield the derivative of each row's NLL under each computed policy, (betas, n)."""
        for weight, logit in zip(self.row_weight, self.row_logit, strict=True):
            yield weight * self.moments.mean - logit

    def brier_gradients(self) -> Iterator[Floats]:
        """Yield the derivative of each row's Brier score under each computed policy, (betas, n)."""
        policies = zip(self.policies.lanes, self.policies.weights, strict=True)
        for weight_all, (lane, weight) in zip(self.row_weight_all, policies, strict=True):
            gradient = weight_all * self.moments.squares_slope
            gradient -= weight * self._lane_terms[lane][1]
            gradient *= 2.0
            yield gradient

    @cached_property
    def _lane_terms(self) -> list[tuple[Floats, Floats, Floats]]:
        """Sums over each lane's ratings of p and its two derivatives in beta, by row, (betas, n)."""
        at = self.moments
        terms = []
        for lane in self.lanes:
            chosen, slope, curvature = lane.sums(at.inverse)
            # p'' = p ((z - mean)^2 - variance), and p' = p (z - mean).
            curvature -= 2.0 * at.mean * slope
            curvature += (at.mean**2 - at.variance) * chosen
            slope -= at.mean * chosen
            terms.append((chosen, slope, curvature))
        return terms

    def _rated(self) -> tuple[Floats, Floats, Floats]:
        """Return weighted sums over all ratings of p and its two derivatives; (computed policies, betas)."""
        chosen, slope, curvature = np.empty((3, len(self.policies.lanes), N_BETAS))
        for number, terms in enumerate(self._lane_terms):
            own = [i for i, each in enumerate(self.policies.lanes) if each == number]
            weights = np.stack([self.policies.weights[i] for i in own])
            for result, values in zip((chosen, slope, curvature), terms, strict=True):
                result[own] = weights @ values.T
        return chosen, slope, curvature

    def _summed(self, weight: Floats, values: Floats) -> Floats:
        """Return the weighted sum over rows of (betas, n); where all weights are equal, once for all policies."""
        if (
            self.policies.even
            and weight is self.row_weight
            and self.row_weight is self.row_weight_all
        ):
            return np.asarray(weight[:, :1] * values.sum(axis=1))
        return np.asarray(weight @ values.T)

    def _summed_logs(self, weight: Floats) -> Floats:
        """Return the weighted sum of the normalisers' logarithms; of products of several rows where all weights are equal."""
        total, n = self.moments.total, self.n
        if n < LOGS_AT_ONCE or (weight != weight[:, :1]).any():
            return np.asarray(weight @ np.log(total).T)
        even = n - n % LOGS_AT_ONCE
        products = total[:, :even].reshape(N_BETAS, LOGS_AT_ONCE, -1).prod(axis=1)
        logs = np.log(products).sum(axis=1) + np.log(total[:, even:]).sum(axis=1)
        return np.asarray(weight[:, :1] * logs)


@dataclass(frozen=True)
class Moments:
    """Per beta and row: normaliser, its inverse, mean and variance of z under softmax(beta z), sum of p^2.

    With it the first derivative of half that sum in beta (`squares_slope`), and the first of that (`squares_curvature`).
    """

    total: Floats
    inverse: Floats
    mean: Floats
    variance: Floats
    squares: Floats
    squares_slope: Floats
    squares_curvature: Floats
    score: Floats


def _moments(part: TemperedRows) -> Moments:
    """Compute the moments, with two steps past the grid for the squares."""
    steps = N_BETAS + STEPS_PER_OCTAVE
    total, first, second, score = (
        _sums_of_two(part, steps) if len(part.logit) == 2 else _sums(part, steps)
    )
    inverse = 1.0 / total[:N_BETAS]
    square = inverse * inverse
    score = score * inverse if part.is_binary else inverse.copy()
    score[N_BETAS // 2] = part.score
    mean = first[:N_BETAS] * inverse
    variance = second[:N_BETAS] * inverse - mean**2
    squares, squares_logit, squares_logit_logit = (
        sums[STEPS_PER_OCTAVE:] * square for sums in (total, first, second)
    )
    squares_slope = squares_logit - squares * mean
    # sum p^2 (2 (z - mean)^2 - variance)
    squares_curvature = 2.0 * (squares_logit_logit - mean * (squares_logit + squares_slope))
    squares_curvature -= variance * squares
    return Moments(
        total=total[:N_BETAS],
        inverse=inverse,
        mean=mean,
        variance=variance,
        squares=squares,
        squares_slope=squares_slope,
        squares_curvature=squares_curvature,
        score=score,
    )


def _sums(part: TemperedRows, steps: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return sums over classes of exp(beta z), with z and with z^2, and the second class's own."""
    total, first, second = np.empty((3, even_steps(steps), part.n))
    squared, score = part.finite**2, np.empty((0, part.n))
    for at, power in squarings(part.logit, steps):
        np.add.reduce(power, axis=1, out=total[at])
        np.einsum("jkn,kn->jn", power, part.finite, out=first[at])
        np.einsum("jkn,kn->jn", power, squared, out=second[at])
    return total[:steps], first[:steps], second[:steps], score


def _sums_of_two(part: TemperedRows, steps: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return sums as `_sums`, of two classes: the likelier one adds one, and only the other is computed."""
    other = powers(part.logit.min(axis=0), steps)
    finite = part.finite.min(axis=0)
    first = other * finite
    score = np.where(part.logit[1] < 0.0, other[:N_BETAS], 1.0)
    return 1.0 + other, first, first * finite, score


class RatingLanes:
    """A batch's ratings as lanes, divided into parts of some rows."""

    def __init__(self, batch_sums: BatchSums) -> None:
        self.batch_sums = batch_sums
        correct_ratings, batch = batch_sums.correct_ratings, batch_sums.batch
        constant = batch_sums.constant_ratings
        self.scores = np.ascontiguousarray(batch.scores.T)
        self.majority, self.single = batch.majority[0], batch.chosen_rating
        entries = np.bincount(correct_ratings.row, minlength=batch_sums.n)
        self.slot = (
            np.arange(len(correct_ratings.row))
            - (np.cumsum(entries) - entries)[correct_ratings.row]
        )
        weights, divisor = batch_sums.weights, [1, constant or 1, 1, 1]
        if constant == 1:
            self.of_policy, self.source = [(ALL, weights)], (0, 0, 0, 0)
        elif constant is not None:
            self.of_policy = [(ALL, weights), (MAJORITY, weights), (SINGLE, weights)]
            self.source = (0, 0, 1, 2)
        else:
            shared = weights / batch_sums.n_ratings
            self.of_policy = [(ALL, weights), (ALL, shared), (MAJORITY, weights), (SINGLE, weights)]
            self.source = (0, 1, 2, 3)
        self.divisor = np.array(divisor, np.float64)

    def part(self, rows: slice) -> TemperedRows:
        """Return some rows."""
        batch_sums = self.batch_sums
        scores = np.ascontiguousarray(self.scores[:, rows])
        if batch_sums.batch.is_logits:
            logit = relative_logits(scores, axis=0)
        else:
            with np.errstate(divide="ignore"):
                logit = np.log(scores / scores.max(axis=0))
        finite = (
            logit if logit.min(initial=0.0) > -np.inf else np.where(np.isfinite(logit), logit, 0.0)
        )
        return TemperedRows(
            logit,
            finite,
            batch_sums.score[rows],
            batch_sums.batch.task == "binary",
            self._lanes(rows, logit),
            Policies(
                tuple(lane for lane, _ in self.of_policy),
                tuple(weight[rows] for _, weight in self.of_policy),
                self.source,
                self.divisor,
                batch_sums.constant_ratings is not None,
            ),
        )

    def _lanes(self, rows: slice, logit: Floats) -> list[Lane]:
        correct_ratings, n = self.batch_sums.correct_ratings, rows.stop - rows.start
        first, last = np.searchsorted(correct_ratings.row, [rows.start, rows.stop])
        row, class_index = (
            correct_ratings.row[first:last] - rows.start,
            correct_ratings.class_index[first:last],
        )
        one = np.ones((1, n))
        if self.batch_sums.constant_ratings == 1:
            return [Lane(logit[class_index, np.arange(n)][None], one)]
        slot = self.slot[first:last]
        shape = (int(slot.max()) + 1, n)
        of_slot, ratings = np.zeros(shape), np.zeros(shape)
        of_slot[slot, row] = logit[class_index, row]
        ratings[slot, row] = correct_ratings.ratings[first:last]
        every = np.arange(n)
        return [
            Lane(of_slot, ratings),
            Lane(logit[self.majority[rows], every][None], one),
            Lane(logit[self.single[rows], every][None], one),
        ]
