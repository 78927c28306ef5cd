"""Rows and their ratings as input of temperature losses, and those losses with their slopes, at any temperature."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch_sums import BatchSums
from calibrant.core.logits import relative_logits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass
class LossRows:
    """Some rows: relative logits by class, their ratings with each policy's weights, and the terms of their tables."""

    n: int
    logit: Floats  # (n_classes, n), at most 0; minus infinity for probability 0
    finite: Floats  # the same with 0 for minus infinity
    score: Floats  # (n,), as sent: the score at beta 1
    row: Ints  # entries
    entry_logit: Floats
    weight: Floats  # (policies, entries), 0 where the probability is 0
    weight_all: Floats
    n_zero: Ints  # (policies,)
    unit: Ints
    is_binary: bool
    constant: int | None
    table_weights: tuple[Floats, Floats]
    table_correct: list[Floats]

    def by_row(self, values: Floats) -> Floats:
        return np.stack([np.bincount(self.row, column, self.n) for column in values])

    @cached_property
    def row_weight(self) -> Floats:
        """Weight of each row's ratings of positive probability, (policies, n)."""
        return self.by_row(self.weight)

    @cached_property
    def row_weight_all(self) -> Floats:
        return self.by_row(self.weight_all) if self.n_zero.any() else self.row_weight

    @cached_property
    def row_logit(self) -> Floats:
        """Weighted sum of z over each row's ratings, (policies, n)."""
        return self.by_row(self.weight * self.entry_logit)


def rows_of(batch_sums: BatchSums, rows: slice) -> LossRows:
    """Return the terms of the losses of some rows, at any temperature."""
    batch, correct_ratings = batch_sums.batch, batch_sums.correct_ratings
    first, last = np.searchsorted(correct_ratings.row, [rows.start, rows.stop])
    row, class_index = (
        correct_ratings.row[first:last] - rows.start,
        correct_ratings.class_index[first:last],
    )
    scores = np.ascontiguousarray(batch.scores[rows].T)
    weight_all = batch_sums.policy_weights[:, first:last]
    if batch.is_logits:
        logit = relative_logits(scores, axis=0)
    else:
        with np.errstate(divide="ignore"):
            logit = np.log(scores / scores.max(axis=0))
    finite = np.where(np.isfinite(logit), logit, 0.0)
    zero = logit[class_index, row] == -np.inf
    chosen = (
        correct_ratings.ratings,
        correct_ratings.ratings,
        correct_ratings.majority,
        correct_ratings.single,
    )
    score_correct = batch_sums.score_correct
    begin, end = np.searchsorted(score_correct.row, [rows.start, rows.stop])
    at = score_correct.row[begin:end] - rows.start
    weights = batch_sums.weights[rows]
    n = rows.stop - rows.start
    columns = (
        score_correct.ratings,
        score_correct.share,
        score_correct.majority,
        score_correct.single,
    )
    return LossRows(
        n=n,
        logit=logit,
        finite=finite,
        score=batch_sums.score[rows],
        row=row,
        entry_logit=finite[class_index, row],
        weight=np.where(zero, 0.0, weight_all) if zero.any() else weight_all,
        weight_all=weight_all,
        n_zero=np.array([int((zero * ratings[first:last]).sum()) for ratings in chosen], np.int64),
        unit=batch_sums.unit_index[rows],
        is_binary=batch.task == "binary",
        constant=batch_sums.constant_ratings,
        table_weights=(weights * batch_sums.n_ratings[rows], weights),
        table_correct=[
            np.bincount(at, weights[at] * column[begin:end], n).astype(np.float64)
            for column in columns
        ],
    )


def spread(part: LossRows, beta: float) -> tuple[Floats, Floats, Floats]:
    """Return normaliser, mean and variance of z under softmax(beta z), by row."""
    power = np.exp(beta * part.logit)
    total = power.sum(axis=0)
    mean = np.einsum("kn,kn->n", power, part.finite) / total
    centred = part.finite - mean
    return total, mean, np.einsum("kn,kn,kn->n", power, centred, centred) / total


def nll(part: LossRows, policy: int, beta: float) -> tuple[float, float, float]:
    """Return the sum of NLL and its two derivatives in beta."""
    total, mean, variance = spread(part, beta)
    weight = part.by_row(part.weight[policy : policy + 1])[0]
    logit = float(part.weight[policy] @ part.entry_logit)
    return (
        float(weight @ np.log(total)) - beta * logit,
        float(weight @ mean) - logit,
        float(weight @ variance),
    )


def nll_by_row(part: LossRows, policy: int, beta: float) -> tuple[Floats, Floats]:
    """Return the sum of NLL over each row's ratings, and their weight."""
    weight, logit = part.by_row(
        np.stack([part.weight[policy], part.weight[policy] * part.entry_logit])
    )
    return weight * np.log(spread(part, beta)[0]) - beta * logit, weight


def nll_slopes(part: LossRows, policy: int, beta: float) -> Floats:
    mean = spread(part, beta)[1]
    weight, logit = part.by_row(
        np.stack([part.weight[policy], part.weight[policy] * part.entry_logit])
    )
    return np.asarray(weight * mean - logit)


def brier_parts(part: LossRows, policy: int, beta: float) -> tuple[Floats, Floats]:
    """Return Brier and its derivative in beta, by row."""
    power = np.exp(beta * part.logit)
    total = power.sum(axis=0)
    mean = np.einsum("kn,kn->n", power, part.finite) / total
    squares = np.einsum("kn,kn->n", power, power) / total**2
    squares_logit = np.einsum("kn,kn,kn->n", power, power, part.finite) / total**2
    entry = np.exp(beta * part.entry_logit) / total[part.row]
    entry[(part.weight_all > part.weight).any(axis=0)] = 0.0
    weight_all = part.weight_all[policy]
    columns = np.stack(
        [weight_all, weight_all * entry, weight_all * entry * (part.entry_logit - mean[part.row])]
    )
    weight, chosen, slope = part.by_row(columns)
    value = weight * (1.0 + squares) - 2.0 * chosen
    return value, 2.0 * (weight * (squares_logit - squares * mean) - slope)


def brier(part: LossRows, policy: int, beta: float) -> tuple[float, float]:
    value, slope = brier_parts(part, policy, beta)
    return float(value.sum()), float(slope.sum())


def brier_slopes(part: LossRows, policy: int, beta: float) -> Floats:
    return brier_parts(part, policy, beta)[1]
