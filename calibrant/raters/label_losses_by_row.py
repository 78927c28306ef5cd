"""Losses under label uncertainty by row: their sums over predictions, and their common options."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.accumulators.label_uncertainty import MOMENTS, ONE_RATING, SEVERAL
from calibrant.core.arrays import Floats
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.documents import Extra
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.inference.intervals import JACKKNIFE, ratio_interval
from calibrant.inference.replication import MIN_FILLED, MIN_UNITS

Interval = tuple[tuple[float, float] | None, Extra]
SINGLE_VOTE = Option(
    "single_vote",
    "exclude",
    "Predictions with one rating: left out of statistics that need two ratings, or included without correction, which biases upwards.",
    allowed=("exclude", "keep"),
)
LOSS_WEIGHT = Option(
    "loss_weight", "1", "Weight of a prediction: one, or its number of ratings.", allowed=("1", "n")
)


@dataclass(frozen=True)
class Choice:
    """Options of these losses.

    Parameters
    ----------
    keep_one_rating : include predictions with one rating, uncorrected
    by_ratings : weight each prediction by its number of ratings instead of one
    """

    keep_one_rating: bool
    by_ratings: bool

    @classmethod
    def of(cls, view: View) -> Choice:
        """Read the choice from a query's options `single_vote` and `loss_weight`.

        Raises
        ------
        CalibrationInputError
            An option has an unknown value.
        """
        return cls(
            SINGLE_VOTE.of(view.pane_query) == "keep", LOSS_WEIGHT.of(view.pane_query) == "n"
        )

    @property
    def named(self) -> dict[str, str]:
        """Options as named in a query."""
        return {
            "single_vote": "keep" if self.keep_one_rating else "exclude",
            "loss_weight": "n" if self.by_ratings else "1",
        }


@dataclass(frozen=True)
class RowLosses:
    """Sums over predictions by replicate, each float64 (64,), as in `label_rows.LabelRows`.

    The squared loss is (gap + spread) / weight, the epistemic one (gap - correction) / weight, the irreducible one
    (spread + correction) / weight.
    """

    weight: Floats
    squared_gap: Floats
    spread: Floats
    correction: Floats
    disagreement_loss: Floats

    @property
    def squared(self) -> Floats:
        return np.asarray(self.squared_gap + self.spread)

    @property
    def epistemic(self) -> Floats:
        return np.asarray(self.squared_gap - self.correction)

    @property
    def irreducible(self) -> Floats:
        """Irreducible loss; also the sum of the rows' disagreement: the probability that two ratings differ."""
        return np.asarray(self.spread + self.correction)

    def mean(self, sums: Floats) -> float:
        return float(sums.sum() / self.weight.sum())


def n_one_vote(view: View) -> int:
    """Return the number of labelled predictions with one rating."""
    return int(view.counts["n_one_rating"])


def row_losses(view: View, choice: Choice) -> RowLosses:
    """Return sums over all labelled predictions.

    Raises
    ------
    NoResultError
        The window contains plain histograms, or no ratings.
    """
    return _row_losses(view, choice.by_ratings, (ONE_RATING, SEVERAL))


def rows_with_spread(view: View, choice: Choice) -> RowLosses:
    """Return sums over the predictions for estimates of variation: those with several ratings, or all under `keep`.

    Raises
    ------
    NoResultError
        As `row_losses`, or no prediction has two ratings.
    """
    reject_single_ratings(view)
    return _row_losses(
        view, choice.by_ratings, (ONE_RATING, SEVERAL) if choice.keep_one_rating else (SEVERAL,)
    )


def rows_with_several(view: View, choice: Choice) -> RowLosses:
    """Return sums over the predictions with several ratings, for any `single_vote`: disagreement needs two.

    Raises
    ------
    NoResultError
        As `rows_with_spread`.
    """
    reject_single_ratings(view)
    return _row_losses(view, choice.by_ratings, (SEVERAL,))


def reject_single_ratings(view: View) -> None:
    """Raise if there are labelled predictions and none has two ratings."""
    view.reject_histograms()
    reject_empty(view)
    if view.counts["n_labelled"] == n_one_vote(view):
        detail = "every prediction has one rating; the variation of a label distribution needs two or more"
        raise NoResultError("one_vote", detail)


def _row_losses(view: View, by_ratings: bool, groups: tuple[int, ...]) -> RowLosses:
    view.reject_histograms()
    reject_empty(view)
    sums = view.pane["label_uncertainty"].blocks["sums"].sums
    table = sums.reshape(2, len(MOMENTS), N_REPLICATES, 2)[int(by_ratings)]
    rows = RowLosses(*table[:, :, list(groups)].sum(axis=2))
    reject_weightless(rows.weight)
    return rows


def reject_weightless(weight: Floats) -> None:
    """Raise if none of the requested predictions has weight."""
    if not weight.sum() > 0:
        raise NoResultError("no_data", "no prediction with as many ratings as needed has weight")


def reject_empty(view: View) -> None:
    """Raise if there is no label, or none with weight."""
    if not view.counts["n_labelled"]:
        raise NoResultError("no_data", "no prediction of the window has a label")
    if not view.pane.weight:
        raise NoResultError("no_data", "no labelled prediction of the window has weight")


def row_interval(view: View, numerator: Floats, rows: RowLosses) -> Interval:
    """Return the interval of a mean over predictions with its method, or the reason why there is none."""
    filled = rows.weight > 0
    if view.counts["n_units"] < MIN_UNITS or filled.sum() < MIN_FILLED:
        return None, {"interval_reason": "too_few_units"}
    bounds = ratio_interval(numerator[filled], rows.weight[filled], view.pane_query.ci)
    return bounds, {"interval_method": JACKKNIFE}
