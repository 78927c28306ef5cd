"""Losses under label uncertainty by bin: gaps between ratings and probabilities of every class, and the sampling bias of their squares."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.label_bins import LABEL_GRID
from calibrant.accumulators.label_bins import SUMS as BIN_SUMS
from calibrant.accumulators.replicates import CLASS_BINS
from calibrant.core.arrays import Floats, ratio
from calibrant.core.view import NoResultError, View
from calibrant.inference.gap_uncertainty import class_gaps
from calibrant.inference.intervals import INTERVAL_METHOD, gap_interval
from calibrant.inference.replication import nearest_divisor
from calibrant.raters.label_losses_by_row import Choice, Interval, n_one_vote, reject_empty

BOOTSTRAP = "bootstrap of 64 unit replicates, inverted along the observed gaps"


@dataclass(frozen=True)
class ClassBins:
    """Bins of every class's probability, each array (n_classes, bins).

    Attributes
    ----------
    count : predictions
    weight : their weight
    gap : mean share of ratings minus mean probability
    variance : estimated variance of the bin's mean share. Of one prediction it is not known: the squared gap takes its place, so that
        the bin adds nothing to the debiased loss
    residual_variance : the same of the gap itself, None if the state does not have it
    """

    count: NDArray[np.int64]
    weight: Floats
    gap: Floats
    variance: Floats
    residual_variance: Floats | None

    @property
    def plugin_by_class(self) -> Floats:
        return np.asarray((share(self.weight) * self.gap**2).sum(axis=1))

    @property
    def by_class(self) -> Floats:
        return np.asarray(self.plugin_by_class - (share(self.weight) * self.variance).sum(axis=1))

    @property
    def plugin(self) -> float:
        return float(self.plugin_by_class.sum())

    @property
    def debiased(self) -> float:
        return float(self.by_class.sum())

    @property
    def residual_debiased(self) -> float | None:
        """Debiased loss minus the variance of share minus probability: unbiased also if probabilities vary inside a bin."""
        if self.residual_variance is None:
            return None
        return self.plugin - float((share(self.weight) * self.residual_variance).sum())

    @property
    def n_single(self) -> int:
        """Number of bins with one prediction, which add nothing to the debiased loss."""
        return int((self.count == 1).sum())


def class_bins(
    view: View, choice: Choice, *, several_only: bool = False, bins: int | None = None
) -> ClassBins:
    """Return equal-width bins of the classes' probabilities.

    Parameters
    ----------
    view, choice : the pane with its query, and the options
    several_only : leave out predictions with one rating
    bins : Default: the query's.

    Raises
    ------
    NoResultError
        Plain histograms, no labels, classes that are not stored, or bins that the state does not have: leaving
        single ratings out of a mixed window and weights by ratings are stored for divisors of 60.
    """
    view.reject_histograms()
    reject_empty(view)
    bins = bins or view.pane_query.bins
    several_only = several_only and n_one_vote(view) > 0
    key = ("class_bins", choice.by_ratings, several_only, bins)
    return view.once(key, lambda: _class_bins(view, choice.by_ratings, several_only, bins))


def _class_bins(view: View, by_ratings: bool, several_only: bool, bins: int) -> ClassBins:
    twin = under_policy(view, "pooled" if by_ratings else "mean")
    tables = [
        twin.binned(f"class:{k}", "equal_width", bins).cells for k in range(view.spec.n_classes)
    ]
    at = {
        name: np.stack([getattr(cells, name) for cells in tables])
        for name in (
            "predictions",
            "weight",
            "confidence",
            "correct",
            "correct_squared",
            "weight_squared",
        )
    }
    # Rows of a model of many classes have class bins, although its panes store no label bins.
    stored = view.pane.keeps("label_bins")
    is_exact = stored and LABEL_GRID.cells % bins == 0
    if not stored and (by_ratings or several_only):
        detail = "weights by ratings and mixed windows need the classes' label bins, which panes of this model do not store"
        raise NoResultError("class_not_kept", detail)
    if not is_exact and (by_ratings or several_only):
        exact = ", ".join(map(str, LABEL_GRID.exact_bins))
        detail = f"Received bins={bins}; weights by ratings and mixed windows are stored for {exact} bins."
        raise NoResultError("bins_not_exact", detail)
    own = _own_bins(view, bins) if is_exact else {}
    if several_only:
        at = _without_one_rating(at, own)
    gap = ratio(at["correct"] - at["confidence"], at["weight"])
    if by_ratings:
        moments: tuple[Floats, ...] = (
            own["ratings_squared"],
            own["correct_ratings_squared"],
            own["correct_squared_ratings_squared"],
        )
        if several_only:
            one = (
                own["one_weight_squared"],
                own["one_correct_weight_squared"],
                own["one_correct_weight_squared"],
            )
            moments = tuple(moment - part for moment, part in zip(moments, one, strict=True))
        second = squares_about(ratio(at["confidence"], at["weight"]), moments)
        variance = mean_variance(at["weight"], gap, moments[0], second, at["predictions"])
    else:
        variance = share_variance(at)
    variance = known_variance(variance, gap, at["predictions"])
    residual = None
    if is_exact and not by_ratings and not several_only:
        squares, second = at["weight_squared"], own["residual_squared"]
        residual = mean_variance(at["weight"], gap, squares, second, at["predictions"])
        residual = known_variance(residual, gap, at["predictions"])
    return ClassBins(at["predictions"], at["weight"], gap, variance, residual)


def under_policy(view: View, raters: str) -> View:
    """Return the same pane under another label policy, without a minimum count."""
    pane_query = replace(view.pane_query, raters=raters, min_count=0)
    return view.with_query(pane_query)


def _own_bins(view: View, bins: int) -> dict[str, Floats]:
    """Return sums of the label bins, and of predictions with one rating, each (n_classes, bins)."""
    block = view.pane["label_bins"].blocks["bins"]
    place = LABEL_GRID.bins(bins, view.pane_query.edges)
    columns = (*block.sums, block.counts[1].astype(np.float64))
    shape = (view.spec.n_classes, LABEL_GRID.n_positions)
    grouped = [
        np.stack([np.bincount(place, row, bins) for row in column.reshape(shape)]).astype(float)
        for column in columns
    ]
    return dict(zip((*BIN_SUMS, "one_vote"), grouped, strict=True))


def _without_one_rating(at: dict[str, Floats], own: dict[str, Floats]) -> dict[str, Floats]:
    rest = {
        "predictions": at["predictions"] - np.round(own["one_vote"]).astype(np.int64),
        "weight": at["weight"] - own["one_weight"],
        "confidence": at["confidence"] - own["one_confidence"],
        "correct": at["correct"] - own["one_correct"],
        "correct_squared": at["correct_squared"] - own["one_correct"],
        "weight_squared": at["weight_squared"] - own["one_weight_squared"],
    }
    empty = rest["predictions"] == 0
    return {name: np.where(empty, 0, values) for name, values in rest.items()}


def known_variance(variance: Floats, gap: Floats, predictions: Floats) -> Floats:
    """Return variances of bins; of one prediction the squared gap, so that its debiased square is 0.

    One prediction does not show how far its share is from its expectation. Kept, its squared gap would be counted as miscalibration.
    """
    return np.where(predictions < 1.5, gap**2, variance)


def share_variance(at: dict[str, Floats]) -> Floats:
    """Return the variance of the mean share of each bin: the shares' variance divided by their number minus one.

    For weighted predictions the number is the effective one. 0 if a bin has fewer than two.
    """
    number = ratio(at["weight"] ** 2, at["weight_squared"])
    enough = (at["predictions"] >= 2) & (number > 1.0 + 1e-9)
    mean = ratio(at["correct"], at["weight"])
    spread = np.maximum(ratio(at["correct_squared"], at["weight"]) - mean**2, 0.0)
    return np.where(enough, spread / np.where(enough, number - 1.0, 1.0), 0.0)


def mean_variance(
    weight: Floats, mean: Floats, squares: Floats, second: Floats, count: NDArray[np.int64]
) -> Floats:
    """Return the variance of weighted means whose terms may have unequal variances.

    Unbiased for any weights and variances if the terms are independent and have one expectation: the squared
    mean minus it is the weighted mean of products x_i x_j over all pairs of different terms. By chance it may be
    negative if weights are unequal; with equal weights it is the population variance of x over count - 1.

    Parameters
    ----------
    weight, mean : sums of weights and weighted means of x
    squares, second : sums of w^2 and of (w x)^2
    count : number of terms; fewer than two give 0

    Returns
    -------
    float64, the same shape
    """
    left = weight**2 - squares
    enough = (count >= 2) & (left > 1e-9 * weight**2)
    return np.divide(second - mean**2 * squares, left, out=np.zeros_like(left), where=enough)


def squares_about(origin: Floats, moments: tuple[Floats, ...]) -> Floats:
    """Return the sum of (w (x - origin))^2 from the sums of w^2, w^2 x and (w x)^2."""
    squares, first, second = moments
    return np.asarray(second - 2.0 * origin * first + origin**2 * squares)


def calibration_interval(view: View, choice: Choice, seed: int) -> Interval:
    """Return the interval of the calibration loss over all predictions, from the replicates' class tables."""
    try:
        twin = under_policy(view, "pooled" if choice.by_ratings else "mean")
        bins = nearest_divisor(CLASS_BINS, view.pane_query.bins)
        coarse = class_bins(view, choice, bins=bins)
        several = coarse.count >= 2
        if not several.any():
            raise NoResultError("sparse_bins", "no bin has two predictions")
        gaps = class_gaps(twin, bins, seed).within(several)
    except NoResultError as rejection:
        return None, {"interval_reason": rejection.reason}
    # The part of the weight that bins of several predictions have, of each class.
    part = (coarse.weight * several).sum(axis=1) / coarse.weight.sum(axis=1)
    bias = float((share(coarse.weight) * coarse.variance)[several].sum())

    def loss(weight: Floats, gap: Floats) -> Floats:
        return np.asarray(((share(weight) * gap**2).sum(axis=-1) * part).sum(axis=-1))

    bounds = gap_interval(lambda w, g: loss(w, g) - bias, loss, gaps, view.pane_query.ci).bounds
    return bounds, {"interval_method": INTERVAL_METHOD, "interval_bins": bins}


def share(weight: Floats) -> Floats:
    """Return weights divided by their total over bins as float64, 0 if there is none."""
    return ratio(weight, weight.sum(axis=-1, keepdims=True))
