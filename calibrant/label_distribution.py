"""Each prediction against the distribution of its ratings: entropy, distance, order, and how far raters disagree.

A mean over predictions of these compares with the label distribution as it was voted; with few votes much of the
distance is the votes' own chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.summing import over_classes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Comparisons:
    """Prediction by prediction, (n,).

    Attributes
    ----------
    entropy_gap : float64, entropy of the ratings less that of the prediction, in nats
    distance : float64, total variation distance of the two distributions
    same_order : bool, stable argsorts of both agree
    same_strict_order : bool, every two classes that votes tell apart are told apart the same way by the prediction
    untied : bool, no two classes have equally many votes
    disagreement : float64, share of pairs of raters that differ; nan with fewer than two ratings
    """

    entropy_gap: Floats
    distance: Floats
    same_order: Bools
    same_strict_order: Bools
    untied: Bools
    disagreement: Floats


def compare(probabilities: Floats, label_counts: Ints) -> Comparisons:
    """Compare predictions with their ratings.

    Parameters
    ----------
    probabilities : float64 (n, n_classes)
    label_counts : int64 (n, n_classes), at least one rating a row

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
    total = label_counts.sum(axis=1)
    shares = label_counts / total[:, None]
    order = np.argsort(label_counts, axis=1, kind="stable")
    votes = np.take_along_axis(label_counts, order, axis=1)
    sorted_by_votes = np.take_along_axis(probabilities, order, axis=1)
    step = votes[:, 1:] > votes[:, :-1]
    pairs = total * (total - 1.0)
    agreeing = (label_counts * (label_counts - 1.0)).sum(axis=1)
    return Comparisons(
        entropy_gap=entropy(shares) - entropy(probabilities),
        distance=over_classes(np.ascontiguousarray(np.abs(shares - probabilities).T)) / 2.0,
        same_order=_is_stably_sorted(sorted_by_votes, order),
        same_strict_order=_separates(sorted_by_votes, step),
        untied=np.asarray(step.all(axis=1)),
        disagreement=np.divide(pairs - agreeing, pairs, out=np.full(len(total), np.nan), where=pairs > 0),
    )


def entropy(distribution: Floats) -> Floats:
    """Entropy of each row, in nats; (n, n_classes) to (n,).

    The same to the last bit whatever the other rows are: cells rest on it, and a row is taken out of the cell that it
    was put into.
    """
    rows = np.ascontiguousarray(distribution)
    terms = np.log(rows, where=rows > 0, out=np.zeros(rows.shape))
    terms *= rows
    return np.abs(over_classes(np.ascontiguousarray(terms.T)))


def _is_stably_sorted(values: Floats, order: Ints) -> Bools:
    """Whether a stable sort of the rows would give this very order: none falls, and equals keep their places."""
    before, after = values[:, :-1], values[:, 1:]
    return np.asarray(((before < after) | ((before == after) & (order[:, :-1] < order[:, 1:]))).all(axis=1))


def _separates(values: Floats, step: Bools) -> Bools:
    """Whether at each marked step all values before lie below all values after."""
    below = np.maximum.accumulate(values, axis=1)[:, :-1]
    above = np.minimum.accumulate(values[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return np.asarray(((below < above) | ~step).all(axis=1))
