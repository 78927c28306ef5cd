"""Losses of two classes at given temperatures, from log odds of any origin.

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

from calibrant.calibrators.cell_fits import logistic
from calibrant.core.arrays import Floats
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.errors import CalibrationInputError, check_one_of
from calibrant.core.logits import relative_logits
from calibrant.core.query import policy_index
from calibrant.segmentation.class_histograms import ConfidenceHistogram
from calibrant.segmentation.histogram_tables import BINS, DENOMINATORS, LEAST

OBJECTIVES = ("nll", "brier", "ece")
# Replaces the logarithm of 0: divided by any temperature it still gives a probability of 0.
IMPOSSIBLE = -1e6


@dataclass(frozen=True)
class EceOptions:
    """Definition of the top label's calibration error: coarse bins [lo, hi), smallest bin, denominator."""

    bins: int = BINS
    least: float = LEAST
    denominator: str = "kept"

    def __post_init__(self) -> None:
        if self.bins < 1:
            detail = f"Received bins={self.bins}; expected at least 1."
            raise CalibrationInputError.at("/bins", "range", detail)
        check_one_of("denominator", self.denominator, DENOMINATORS)

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

    def named(self) -> dict[str, float | None]:
        """Return the losses by name, None if there is no number."""
        return {name: number_of(getattr(self, name)) for name in OBJECTIVES}


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
    def of_batch(cls, batch: Batch, options: EceOptions, raters: str = "pooled") -> TwoClassLosses:
        """Build from rows of two classes; probabilities are used as log-probabilities.

        Raises
        ------
        CalibrationInputError
            Another number of classes.
        """
        reject_other_than_two(batch.n_classes)
        policy, batch_sums = policy_index(raters), BatchSums(batch)
        correct_ratings, scores = batch_sums.correct_ratings, batch_sums.batch.scores
        rated = np.zeros((batch_sums.n, 2))
        rated[correct_ratings.row, correct_ratings.class_index] = batch_sums.policy_weights[policy]
        mass = batch_sums.weights * (batch_sums.n_ratings if policy == 0 else 1)
        right = rated[:, 1]
        with np.errstate(divide="ignore"):
            # As sent: a temperature per class distinguishes logits that a common temperature does not.
            logits = _masked(scores) if batch.is_logits else np.log(scores)
        return cls(logits.T, np.maximum(mass - right, 0.0), right, options)

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
        score = logistic(margin)
        if objective == "brier":
            return 2.0 * (dot(self.right, (1.0 - score) ** 2) + dot(self.wrong, score**2)) / total
        correct_ratings = np.where(margin > 0, self.right, self.wrong)
        return self.options.error(np.maximum(score, 1.0 - score), self.mass, correct_ratings)

    @property
    def odds(self) -> Floats:
        """Log odds of class 1 at temperature 1, (n,)."""
        return np.asarray(self.log_p[1] - self.log_p[0])

    def brier_slope(self, beta: float) -> float:
        """Return the derivative of the sum of Brier scores by the inverse temperature."""
        score = logistic(beta * self.odds)
        slope = 4.0 * score * (1.0 - score) * self.odds
        return dot(self.right, (score - 1.0) * slope) + dot(self.wrong, score * slope)

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


def number_of(value: float) -> float | None:
    """Return a number as JSON has it; None if it is not finite."""
    return float(value) if np.isfinite(value) else None


def reject_other_than_two(n_classes: int) -> None:
    """Raise unless there are two classes, so two temperatures."""
    if n_classes != 2:
        detail = "a surface is of two temperatures, so of two classes"
        raise CalibrationInputError.at("/classes", "n_classes", detail)


def dot(one: Floats, other: Floats) -> float:
    """Return the dot product without BLAS, whose threads cost more than they save at these lengths."""
    return float((one * other).sum())


def _masked(logits: Floats) -> Floats:
    """Return logits with minus infinity for classes that count as impossible."""
    return np.where(np.isfinite(relative_logits(logits, axis=1)), logits, -np.inf)
