"""How often raters agree: each with the others, and two by two beyond chance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calibrant.core.arrays import Ints
from calibrant.core.documents import Result

# Of fewer common predictions, kappa says nothing.
MIN_COMMON = 20
MAX_PAIRED_RATERS = 16


def agreement_with_others(given: Ints, label_counts: Ints) -> float | None:
    """Return the share of pairs of a rater's rating and another rater's rating of the same prediction that are equal.

    Parameters
    ----------
    given : int64 (n,), the rater's class of each prediction, negative where they gave none
    label_counts : int64 (n, n_classes), ratings by class of all raters, this one included

    Returns
    -------
    float in [0, 1]; None if no other rater rated one of the predictions

    Examples
    --------
    >>> agreement_with_others(np.array([0, 1, -1]), np.array([[3, 0], [1, 1], [2, 0]]))
    0.6666666666666666
    """
    equal, pairs = pairs_of(given, label_counts)
    n_pairs = pairs.sum()
    return float(equal.sum() / n_pairs) if n_pairs else None


def pairs_of(given: Ints, label_counts: Ints) -> tuple[Ints, Ints]:
    """Return by row how many other ratings equal the rater's, and how many others there are; 0 without the rater's.

    Parameters
    ----------
    given, label_counts : as in `agreement_with_others`
    """
    rates = given >= 0
    own = label_counts[np.arange(len(given)), np.maximum(given, 0)]
    return np.where(rates, own - 1, 0), np.where(rates, label_counts.sum(axis=1) - 1, 0)


def cohen_kappa(one: Ints, two: Ints) -> float | None:
    """Return Cohen's kappa of two raters over the predictions that both rated.

    Parameters
    ----------
    one, two : int64 (n,), the class of each prediction, negative where there is none

    Returns
    -------
    float, 1 for complete agreement and 0 for that of chance; None below `MIN_COMMON` common predictions, or if both always gave one class

    Source
    ------
    Cohen (Educational and Psychological Measurement 1960).

    Examples
    --------
    >>> cohen_kappa(np.repeat([0, 0, 1, 1], 10), np.repeat([0, 1, 1, 1], 10))
    0.5
    """
    both = (one >= 0) & (two >= 0)
    n = int(both.sum())
    if n < MIN_COMMON:
        return None
    one, two = one[both], two[both]
    k = int(max(one.max(), two.max())) + 1
    by_chance = float(np.bincount(one, minlength=k) @ np.bincount(two, minlength=k)) / n**2
    if by_chance >= 1.0:
        return None
    return (float((one == two).mean()) - by_chance) / (1.0 - by_chance)


def agreements(raters: Mapping[str, Ints], label_counts: Ints) -> dict[str, Result]:
    """Return `agreement` of each rater with all others, and `kappa` with each of the first `MAX_PAIRED_RATERS`.

    Parameters
    ----------
    raters : each rater's class of each prediction, int64 (n,), negative where they gave none
    label_counts : int64 (n, n_classes), ratings by class of all raters
    """
    first = list(raters)[:MAX_PAIRED_RATERS]
    return {
        name: {
            "agreement": agreement_with_others(given, label_counts),
            "kappa": {each: cohen_kappa(given, raters[each]) for each in first if each != name},
        }
        for name, given in raters.items()
    }
