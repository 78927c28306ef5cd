"""How often raters agree: each with the others, and two by two, as kappa and as Dice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, Ints, ratio
from calibrant.core.documents import Result

# Of fewer common predictions, kappa says nothing.
MIN_COMMON = 20
MAX_PAIRED_RATERS = 16


def agreement_with_others(
    given: Ints, label_counts: Ints, weight: Floats | None = None
) -> float | None:
    """Return the share of pairs of a rater's rating and another rater's rating of the same prediction that are equal.

    Parameters
    ----------
    given : int64 (n,), the rater's class of each prediction, negative where they gave none
    label_counts : int64 (n, n_classes), ratings by class of all raters, this one included
    weight : float64 (n,), how often each row occurs. Default: once.

    Returns
    -------
    float in [0, 1]; None if no other rater rated one of the predictions

    Examples
    --------
    >>> agreement_with_others(np.array([0, 1, -1]), np.array([[3, 0], [1, 1], [2, 0]]))
    0.6666666666666666
    """
    equal, pairs = (_total(each, weight) for each in pairs_of(given, label_counts))
    return equal / pairs if pairs else None


def pairs_of(given: Ints, label_counts: Ints) -> tuple[Ints, Ints]:
    """Return by row how many other ratings equal the rater's, and how many others there are; 0 without the rater's.

    Parameters
    ----------
    given, label_counts : as in `agreement_with_others`
    """
    rates = given >= 0
    own = label_counts[np.arange(len(given)), np.maximum(given, 0)]
    return np.where(rates, own - 1, 0), np.where(rates, label_counts.sum(axis=1) - 1, 0)


def cohen_kappa(one: Ints, two: Ints, weight: Floats | None = None) -> float | None:
    """Return Cohen's kappa of two raters over the predictions that both rated.

    Parameters
    ----------
    one, two : int64 (n,), the class of each prediction, negative where there is none
    weight : as in `agreement_with_others`

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
    own = None if weight is None else weight[both]
    n = _total(both, weight)
    if n < MIN_COMMON:
        return None
    one, two = one[both], two[both]
    k = int(max(one.max(), two.max())) + 1
    by_chance = float(np.bincount(one, own, k) @ np.bincount(two, own, k)) / n**2
    if by_chance >= 1.0:
        return None
    return (_total(one == two, own) / n - by_chance) / (1.0 - by_chance)


def dice_over_cases(
    one: Ints, two: Ints, case: Ints, n_classes: int, weight: Floats | None = None
) -> float | None:
    """Return the Dice of two raters, over the predictions that both rated, as the mean over cases of the mean over classes.

    Class 0, the background, does not count, nor does a class in a case to which neither gave it.

    Parameters
    ----------
    one, two, weight : as in `cohen_kappa`
    case : int64 (n,), from 0; negative where none is named

    Returns
    -------
    float in [0, 1]; None if no case has a class

    Source
    ------
    Dice (Ecology 1945).

    Examples
    --------
    >>> dice_over_cases(np.array([1, 1, 0, 1]), np.array([1, 0, 0, 1]), np.array([0, 0, 0, 1]), 2)
    0.8333333333333333
    """
    used = np.flatnonzero((one >= 0) & (two >= 0) & (case >= 0))
    own = np.ones(len(used)) if weight is None else weight[used]
    size = (int(case.max(initial=-1)) + 1, n_classes)

    def total(classes: Ints, share: Floats) -> Floats:
        key = case[used] * n_classes + classes[used]
        return np.asarray(
            np.bincount(key, share, size[0] * size[1]).reshape(size)[:, 1:], np.float64
        )

    both = total(one, own * (one[used] == two[used]))
    dice = ratio(2.0 * both, total(one, own) + total(two, own), np.nan)
    classes = np.isfinite(dice).sum(axis=1)
    by_case = np.nansum(dice, axis=1)[classes > 0] / classes[classes > 0]
    return float(by_case.mean()) if len(by_case) else None


def places_of(names: Iterable[Any] | None) -> Ints | None:
    """Return the case of each row as a number from 0, -1 where none is named; None if no row names one.

    >>> places_of(["b", None, "a", "b"]).tolist()
    [0, -1, 1, 0]
    """
    if names is None:
        return None
    known: dict[Any, int] = {None: -1}
    return np.array([known.setdefault(each, len(known) - 1) for each in names], np.int64)


def agreements(
    raters: Mapping[str, Ints],
    label_counts: Ints,
    case: Ints | None = None,
    weight: Floats | None = None,
) -> dict[str, Result]:
    """Return `agreement` of each rater with all others, and `kappa` with each of the first `MAX_PAIRED_RATERS`; `dice` with named cases.

    Parameters
    ----------
    raters : each rater's class of each prediction, int64 (n,), negative where they gave none
    label_counts : int64 (n, n_classes), ratings by class of all raters
    case, weight : as in `dice_over_cases`; None if no case is named
    """
    first, n_classes = list(raters)[:MAX_PAIRED_RATERS], label_counts.shape[1]
    found: dict[str, Result] = {}
    for name, given in raters.items():
        others = {each: raters[each] for each in first if each != name}
        found[name] = {
            "agreement": agreement_with_others(given, label_counts, weight),
            "kappa": {each: cohen_kappa(given, two, weight) for each, two in others.items()},
        }
        if case is not None:
            found[name]["dice"] = {
                each: dice_over_cases(given, two, case, n_classes, weight)
                for each, two in others.items()
            }
    return found


def _total(values: NDArray[Any], weight: Floats | None) -> float:
    """Return the sum of numbers of rows, each as often as the row occurs."""
    return float(values.sum() if weight is None else values @ weight)
