"""The one rater whom the others contradict more often than each other, if the data show it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy

from calibrant.core.arrays import Floats, Ints
from calibrant.core.documents import Row
from calibrant.raters.agreement import pairs_of

# Of the test of all raters together, and the fewest units for it.
LEVEL, MIN_UNITS = 0.01, 20


def odd_rater(
    raters: Mapping[str, Ints], n_classes: int, unit: Ints, weight: Floats | None = None
) -> Row | None:
    """Return the one rater whom the others contradict more often than each other, if the data show it.

    For each rater, the others' agreement among themselves less their agreement with this rater is tested against 0, by Student's
    t over units (both shares linearised), at 1 % divided by the number of raters.

    Parameters
    ----------
    raters : each rater's class of every row, int64 (n,), -1 without a rating
    unit : int64 (n,), from 0
    weight : float64 (n,), how often each row occurs. Default: once.

    Returns
    -------
    dict of `name`, `agreement`, `agreement_of_others`, `p_value`; None with fewer than three raters or 20 units, or if nothing or
    more than one rater is found
    """
    if len(raters) < 3:
        return None
    counts = _ratings_by_class(raters, n_classes)
    own = np.ones(len(unit)) if weight is None else weight
    tests = {name: _contradicted(given, counts, unit, own) for name, given in raters.items()}
    found = [
        {"name": name, **test}
        for name, test in tests.items()
        if test is not None and test["p_value"] < LEVEL / len(raters)
    ]
    return found[0] if len(found) == 1 else None


def _contradicted(given: Ints, label_counts: Ints, unit: Ints, weight: Floats) -> Row | None:
    equal, pairs = (weight * each for each in pairs_of(given, label_counts))
    rest = label_counts.copy()
    rates = np.flatnonzero(given >= 0)
    rest[rates, given[rates]] -= 1
    others = rest.sum(axis=1)
    equal_others = weight * (rest * (rest - 1) // 2).sum(axis=1)
    pairs_others = weight * (others * (others - 1) // 2)
    if not pairs.sum() or not pairs_others.sum():
        return None
    own, among = equal.sum() / pairs.sum(), equal_others.sum() / pairs_others.sum()
    error, n_units = _standard_error(
        (equal_others - among * pairs_others) / pairs_others.sum()
        - (equal - own * pairs) / pairs.sum(),
        unit[(pairs > 0) | (pairs_others > 0)],
        unit,
    )
    if n_units < MIN_UNITS or error == 0.0:
        return None
    p_value = scipy.special.stdtr(n_units - 1, -(among - own) / error)
    return {"agreement": float(own), "agreement_of_others": float(among), "p_value": float(p_value)}


def _standard_error(residual: Floats, used: Ints, unit: Ints) -> tuple[float, int]:
    """Return the standard error of a sum of residuals by unit, and the number of units that have some."""
    n = len(np.unique(used))
    total = np.bincount(unit, residual)
    return float(np.sqrt((total**2).sum() * n / max(n - 1, 1))), n


def _ratings_by_class(raters: Mapping[str, Ints], n_classes: int) -> Ints:
    """Return the ratings by class of the named raters, int64 (n, n_classes)."""
    given = np.stack(list(raters.values()), axis=1)
    counts = np.zeros((len(given), n_classes), np.int64)
    row, rater = np.nonzero(given >= 0)
    np.add.at(counts, (row, given[row, rater]), 1)
    return counts
