"""Comparison of each prediction with the distribution of its ratings: entropy, distance, order, rater disagreement.

A mean over predictions compares with the empirical label distribution. With few ratings, much of the
distance is sampling variation of the ratings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrant.core.arrays import Bools, Floats, Ints, over_classes, ratio


@dataclass(frozen=True)
class Comparisons:
    """Comparisons per prediction, (n,).

    Attributes
    ----------
    entropy_gap : float64, entropy of the ratings minus that of the prediction, in nats
    distance : float64, total variation distance of the two distributions
    same_order : bool, stable argsorts of both agree
    same_strict_order : bool, the prediction orders every two classes with different label counts in the same way
    untied : bool, no two classes have equal label counts
    disagreement : float64, share of pairs of raters that differ; nan with fewer than two ratings
    """

    entropy_gap: Floats
    distance: Floats
    same_order: Bools
    same_strict_order: Bools
    untied: Bools
    disagreement: Floats


def compare(
    probabilities: Floats, label_counts: Ints, own_entropy: Floats | None = None
) -> Comparisons:
    """Compare predictions with their ratings.

    Parameters
    ----------
    probabilities : float64 (n, n_classes)
    label_counts : int64 (n, n_classes), at least one rating per row
    own_entropy : float64 (n,), entropy of the probabilities if already known

    Returns
    -------
    Comparisons

    Source
    ------
    Baan, Aziz, Plank, Fernandez, Stop measuring calibration when humans disagree (EMNLP 2022); order with ties and
    disagreement: Mimori et al. (2021).

    Examples
    --------
    >>> found = compare(np.array([[0.1, 0.2, 0.7]]), np.array([[1, 0, 3]]))
    >>> round(float(found.distance[0]), 6), bool(found.same_order[0]), float(found.disagreement[0])
    (0.2, False, 0.5)
    """
    scores, ratings = np.ascontiguousarray(probabilities.T), np.ascontiguousarray(label_counts.T)
    total = ratings.sum(axis=0)
    shares = ratings / total
    pairs = total * (total - 1.0)
    agreeing = (ratings * (ratings - 1.0)).sum(axis=0)
    own = entropy_of_columns(scores) if own_entropy is None else own_entropy
    same_order, same_strict_order, untied = _orders(scores, ratings)
    return Comparisons(
        entropy_gap=entropy_of_columns(shares) - own,
        distance=over_classes(np.abs(shares - scores)) / 2.0,
        same_order=same_order,
        same_strict_order=same_strict_order,
        untied=untied,
        disagreement=ratio(pairs - agreeing, pairs, np.nan),
    )


def entropy(distribution: Floats) -> Floats:
    """Return the entropy of each row, in nats; (n, n_classes) to (n,)."""
    return entropy_of_columns(np.ascontiguousarray(distribution.T))


def entropy_of_columns(columns: Floats) -> Floats:
    """Return the entropy of distributions by class, (n_classes, n) to (n,).

    The result has the same bits for any other rows: cells depend on it, and a row is subtracted from the cell to
    which it was added.
    """
    terms = np.log(
        columns if columns.min(initial=1.0) > 0.0 else np.where(columns > 0.0, columns, 1.0)
    )
    terms *= columns
    return np.abs(over_classes(terms))


def _orders(scores: Floats, ratings: Ints) -> tuple[Bools, Bools, Bools]:
    """Return `same_order`, `same_strict_order` and `untied` of distributions by class, (n_classes, n).

    Comparing neighbouring classes, and classes with ratings against those without, decides most rows without sorting.
    """
    rising = ratings[1:] >= ratings[:-1]
    same_order = np.asarray(((scores[1:] >= scores[:-1]) == rising).all(axis=0))
    rated = ratings > 0
    n_rated = np.count_nonzero(rated, axis=0)
    strict = np.where(rated, -1.0, scores).max(axis=0) < np.where(rated, scores, 2.0).min(axis=0)
    one_level = ratings.max(axis=0) * n_rated == ratings.sum(axis=0)
    untied = n_rated >= len(ratings) - 1
    rows = np.flatnonzero(same_order | untied | (strict & ~one_level))
    if len(rows):
        own_ratings, own_scores = ratings[:, rows].T, scores[:, rows].T
        order = np.argsort(own_ratings, axis=1, kind="stable")
        sorted_ratings = np.take_along_axis(own_ratings, order, axis=1)
        sorted_scores = np.take_along_axis(own_scores, order, axis=1)
        step = sorted_ratings[:, 1:] > sorted_ratings[:, :-1]
        same_order[rows] = _is_stably_sorted(sorted_scores, order)
        strict[rows] = _separates(sorted_scores, step)
        untied[rows] = step.all(axis=1)
    return same_order, strict, untied


def _is_stably_sorted(values: Floats, order: Ints) -> Bools:
    """Return whether a stable sort of the rows gives this order: no value decreases, and equals keep their places."""
    before, after = values[:, :-1], values[:, 1:]
    return np.asarray(
        ((before < after) | ((before == after) & (order[:, :-1] < order[:, 1:]))).all(axis=1)
    )


def _separates(values: Floats, step: Bools) -> Bools:
    """Return whether at each marked step all values before are below all values after."""
    below = np.maximum.accumulate(values, axis=1)[:, :-1]
    above = np.minimum.accumulate(values[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return np.asarray(((below < above) | ~step).all(axis=1))
