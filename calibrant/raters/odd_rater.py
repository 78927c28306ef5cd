"""The one rater with whom the others agree less than with each other, beyond chance, if the data show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    """Return the one rater with whom the others agree less than with each other, if the data show it.

    Agreement is counted beyond chance (kappa): where most ratings are of one class, a rater who gives hardly any other agrees with everybody
    on most rows. For each rater, the others' kappa among themselves less that with this rater is tested against 0, by Student's t over
    units (both linearised), at 1 % divided by the number of raters.

    Parameters
    ----------
    raters : each rater's class of every row, int64 (n,), -1 without a rating
    unit : int64 (n,), from 0
    weight : float64 (n,), how often each row occurs. Default: once.

    Returns
    -------
    dict of `name`, `agreement` and `kappa` with the others, `agreement_of_others` and `kappa_of_others` among themselves, `p_value`, and
    the shares of the classes in the ratings of rows that this rater and another rated: `shares`, and `shares_of_others`.
    None with fewer than three raters or 20 units, or if nothing or more than one rater is found
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
    if len(found) != 1:
        return None
    return found[0] | _shares(raters[str(found[0]["name"])], counts, own)


def _contradicted(given: Ints, label_counts: Ints, unit: Ints, weight: Floats) -> Row | None:
    rest = label_counts.copy()
    rates = np.flatnonzero(given >= 0)
    rest[rates, given[rates]] -= 1
    own = _with_rater(given, label_counts, rest, weight)
    among = _among_others(rest, weight)
    if own is None or among is None:
        return None
    used = unit[(own.pairs > 0) | (among.pairs > 0)]
    error, n_units = _standard_error(among.residual - own.residual, used, unit)
    if n_units < MIN_UNITS or error == 0.0:
        return None
    p_value = scipy.special.stdtr(n_units - 1, -(among.kappa - own.kappa) / error)
    return {
        "agreement": own.agreement,
        "agreement_of_others": among.agreement,
        "kappa": own.kappa,
        "kappa_of_others": among.kappa,
        "p_value": float(p_value),
    }


def _shares(given: Ints, label_counts: Ints, weight: Floats) -> Row:
    """Return the shares of the classes in a rater's ratings, and in those of the others, of rows that both rated."""
    rows = np.flatnonzero((given >= 0) & (label_counts.sum(axis=1) > 1))
    own = np.bincount(given[rows], weight[rows], label_counts.shape[1])
    others = (label_counts[rows] * weight[rows, None]).sum(axis=0) - own
    return {
        "shares": (own / own.sum()).tolist(),
        "shares_of_others": (others / others.sum()).tolist(),
    }


@dataclass(frozen=True)
class _Agreement:
    """Agreement over pairs of ratings.

    Attributes
    ----------
    agreement : share of pairs that are equal
    kappa : agreement beyond chance, (agreement - expected) / (1 - expected)
    residual : float64 (n,), contribution of each row to the error of kappa
    pairs : float64 (n,), pairs of each row
    """

    agreement: float
    kappa: float
    residual: Floats
    pairs: Floats


def _with_rater(given: Ints, label_counts: Ints, rest: Ints, weight: Floats) -> _Agreement | None:
    """Return the agreement of a rater with the others; None without a pair, or where all gave one class."""
    equal, pairs = (weight * each for each in pairs_of(given, label_counts))
    if not pairs.sum():
        return None
    rows = np.maximum(given, 0)
    rated = rest * (weight * (given >= 0))[:, None]
    of_rater = np.bincount(rows, pairs, rest.shape[1]) / pairs.sum()
    of_others = rated.sum(axis=0) / pairs.sum()
    expected = pairs * of_others[rows] + rated @ of_rater
    return _beyond_chance(equal, pairs, float(of_rater @ of_others), expected)


def _among_others(rest: Ints, weight: Floats) -> _Agreement | None:
    """Return the agreement of the others among themselves."""
    others = rest.sum(axis=1)
    equal = weight * (rest * (rest - 1)).sum(axis=1)
    pairs = weight * (others * (others - 1))
    if not pairs.sum():
        return None
    partners = weight * (others - 1) * (others > 0)
    shares = (rest * partners[:, None]).sum(axis=0) / pairs.sum()
    expected = 2.0 * partners * (rest @ shares)
    return _beyond_chance(equal, pairs, float(shares @ shares), expected)


def _beyond_chance(
    equal: Floats, pairs: Floats, chance: float, expected: Floats
) -> _Agreement | None:
    """Return kappa with its linearised residuals; `expected` has twice each row's part of the chance, which is a product of two shares."""
    if chance >= 1.0:
        return None
    agreement = float(equal.sum() / pairs.sum())
    of_agreement = (equal - agreement * pairs) / pairs.sum()
    of_chance = (expected - 2.0 * chance * pairs) / pairs.sum()
    residual = of_agreement / (1.0 - chance) - (1.0 - agreement) / (1.0 - chance) ** 2 * of_chance
    return _Agreement(agreement, (agreement - chance) / (1.0 - chance), residual, pairs)


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
