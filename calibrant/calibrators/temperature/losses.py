"""Losses at given temperatures: of two classes from log odds of any origin, of more from rows.

A histogram of class 1's probability determines the effect of a scalar temperature of two classes: softmax(z / T) is
the sigmoid of logit(p) / T. With one temperature per class it does not, since softmax loses what is common to both
logits. From a histogram or from cells, log-probabilities replace logits, as in networks that end in a log-softmax.
On the diagonal the two agree. From rows with logits both are exact.

Source
------
Kock, Thielke et al., section 2.3 and appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.cells import Cells
from calibrant.core.errors import CalibrationInputError
from calibrant.core.logits import relative_logits
from calibrant.core.query import policy_index
from calibrant.segmentation.confidence_histogram import ConfidenceHistogram
from calibrant.segmentation.histogram_tables import BINS, DENOMINATORS, LEAST

OBJECTIVES = ("nll", "brier", "ece")
# Replaces the logarithm of 0: divided by any temperature it still gives a probability of 0.
IMPOSSIBLE = -1e6
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EceOptions:
    """Definition of the top label's calibration error: coarse bins [lo, hi), smallest bin, denominator."""

    bins: int = BINS
    least: float = LEAST
    denominator: str = "kept"

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise CalibrationInputError.at(
                "/bins", "range", f"Received bins={self.bins}; expected at least 1."
            )
        if self.denominator not in DENOMINATORS:
            raise CalibrationInputError.at(
                "/denominator",
                "one_of",
                f"Received denominator {self.denominator!r}; expected one of {', '.join(DENOMINATORS)}.",
            )

    def error(self, confidence: Floats, mass: Floats, correct_ratings: Floats) -> float:
        """Return the calibration error of samples with masses; nan if no bin remains."""
        place = np.minimum((confidence * self.bins).astype(np.int64), self.bins - 1)
        total, expected, found = (
            np.bincount(place, v, self.bins) for v in (mass, mass * confidence, correct_ratings)
        )
        kept = (total >= self.least) & (total > 0)
        under = total.sum() if self.denominator == "full" else total[kept].sum()
        return float(np.abs(found - expected)[kept].sum() / under) if kept.any() else float("nan")


@dataclass(frozen=True)
class Losses:
    """NLL (nats, of ratings whose probability is not 0), Brier (sum over classes) and ECE; nan without mass."""

    nll: float
    brier: float
    ece: float


class TwoClassLosses:
    """Losses of two classes.

    Parameters
    ----------
    log_p : float64 (2, n), log-probabilities or logits of class 0 and of class 1
    wrong, right : float64 (n,), mass of ratings for class 0 and for class 1
    options : EceOptions

    Ratings of a class with probability 0 are excluded from NLL.
    """

    def __init__(self, log_p: Floats, wrong: Floats, right: Floats, options: EceOptions) -> None:
        possible = np.isfinite(log_p)
        self.log_p = np.where(possible, log_p, IMPOSSIBLE)
        self.wrong, self.right, self.options = wrong, right, options
        self.mass = wrong + right
        self._possible = np.where(possible, [wrong, right], 0.0)

    @classmethod
    def of_cells(cls, cells: Cells, options: EceOptions) -> TwoClassLosses:
        """Build from cells of class 1's probability, each at its mean."""
        return cls.of_scores(np.clip(cells.mean, 0.0, 1.0), cells.weight, cells.correct, options)

    @classmethod
    def of_scores(
        cls, score: Floats, weight: Floats, right: Floats, options: EceOptions
    ) -> TwoClassLosses:
        """Build from probabilities of class 1 with the weight of their ratings and of those for class 1, (n,) each."""
        with np.errstate(divide="ignore"):
            log_p = np.stack([np.log1p(-score), np.log(score)])
        return cls(log_p, np.maximum(weight - right, 0.0), right, options)

    @classmethod
    def of_rows(cls, rows: RowTemperatureLosses) -> TwoClassLosses:
        """Build from rows of two classes, with the same numbers.

        Raises
        ------
        CalibrationInputError
            Another number of classes.
        """
        reject_other_than_two(rows.n_classes)
        right = rows.right[:, 1]
        return cls(rows.logit.T, np.maximum(rows.mass - right, 0.0), right, rows.options)

    def at(self, temperatures: Floats) -> Losses:
        """Return losses at one temperature per class, float64 (2,)."""
        return Losses(*(self.loss(objective, temperatures) for objective in OBJECTIVES))

    def loss(self, objective: str, temperatures: Floats) -> float:
        """Return one of the losses at one temperature per class."""
        total = float(self.mass.sum())
        if not total:
            return float("nan")
        margin = self.log_p[1] / temperatures[1] - self.log_p[0] / temperatures[0]
        if objective == "nll":
            return self._nll(margin)
        score = sigmoid(margin)
        if objective == "brier":
            return 2.0 * (dot(self.right, (1.0 - score) ** 2) + dot(self.wrong, score**2)) / total
        correct_ratings = np.where(margin > 0, self.right, self.wrong)
        return self.options.error(np.maximum(score, 1.0 - score), self.mass, correct_ratings)

    def slope(self, objective: str, beta: float) -> float:
        """Return the derivative of NLL or Brier by the inverse temperature."""
        margin = self.log_p[1] - self.log_p[0]
        score = sigmoid(beta * margin)
        away = self.mass * score - self.right
        if objective == "nll":
            return dot(away, margin)
        score_slope = 4.0 * score * (1.0 - score) * margin
        return dot(self.right, (score - 1.0) * score_slope) + dot(self.wrong, score * score_slope)

    def _nll(self, margin: Floats) -> float:
        wrong, right = self._possible
        weight = float(wrong.sum() + right.sum())
        loss = dot(wrong + right, np.log1p(np.exp(-np.abs(margin))))
        loss += dot(right, np.maximum(-margin, 0.0)) + dot(wrong, np.maximum(margin, 0.0))
        return loss / weight if weight else float("nan")


class HistogramLosses(TwoClassLosses):
    """Losses of a model of two classes from the label histogram of class 1.

    Raises
    ------
    CalibrationInputError
        More than two classes: a histogram of single probabilities lacks what a temperature needs.
    """

    def __init__(self, histogram: ConfidenceHistogram, options: EceOptions) -> None:
        if histogram.n_classes != 2:
            detail = "temperatures come from histograms of two classes only; for more classes use rows or a pane's profile"
            raise CalibrationInputError.at("/classes", "n_classes", detail)
        filled = np.flatnonzero(histogram.label[1].sum(axis=0))
        centres = histogram.centres[filled]
        log_p = np.stack([np.log1p(-centres), np.log(centres)])
        wrong, right = histogram.label[1][:, filled]
        super().__init__(log_p, wrong, right, options)


class RowTemperatureLosses:
    """Losses of raw rows, any number of classes; probabilities are used as log-probabilities.

    Parameters
    ----------
    batch : Batch
    options : EceOptions
    raters : label policy
    """

    def __init__(self, batch: Batch, options: EceOptions, raters: str = "pooled") -> None:
        policy, batch_sums = policy_index(raters), BatchSums(batch)
        self.options, self.n_classes, self.n = options, batch.n_classes, batch_sums.n
        correct_ratings = batch_sums.correct_ratings
        self.mass = batch_sums.weights * (batch_sums.n_ratings if policy == 0 else 1)
        self.right = np.zeros((batch_sums.n, batch.n_classes))
        self.right[correct_ratings.row, correct_ratings.class_index] = batch_sums.policy_weights[
            policy
        ]
        with np.errstate(divide="ignore"):
            scores = batch_sums.batch.scores
            # As sent: a temperature per class distinguishes logits that a common temperature does not.
            self.logit = _masked(scores) if batch.is_logits else np.log(scores)

    def at(self, temperatures: Floats) -> Losses:
        """Return losses at one temperature per class, float64 (n_classes,)."""
        total = float(self.mass.sum())
        if not total:
            return Losses(np.nan, np.nan, np.nan)
        logit = self.logit / temperatures
        log_p = logit - logit.max(axis=1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
        p = np.exp(log_p)
        finite = np.isfinite(log_p)
        weight = float(self.right[finite].sum())
        nll = (
            -float((self.right * np.where(finite, log_p, 0.0)).sum()) / weight if weight else np.nan
        )
        squares = dot(self.mass, (p**2).sum(axis=1))
        brier = (squares - 2.0 * float((self.right * p).sum()) + float(self.right.sum())) / total
        top = p.argmax(axis=1)
        rows = np.arange(self.n)
        return Losses(
            nll, brier, self.options.error(p[rows, top], self.mass, self.right[rows, top])
        )


def reject_other_than_two(n_classes: int) -> None:
    """Raise unless there are two classes, so two temperatures."""
    if n_classes != 2:
        detail = "a surface is of two temperatures, so of two classes"
        raise CalibrationInputError.at("/classes", "n_classes", detail)


def dot(one: Floats, other: Floats) -> float:
    """Return the dot product without BLAS, whose threads cost more than they save at these lengths."""
    return float((one * other).sum())


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def _masked(logits: Floats) -> Floats:
    """Return logits with minus infinity for classes that count as impossible."""
    return np.where(np.isfinite(relative_logits(logits, axis=1)), logits, -np.inf)
