"""Interval of a mean over predictions: Brier score, negative log-likelihood, accuracy.

The jackknife over unit replicates describes a mean to which many units contribute. It is too short where few units decide: a few heavy
weights, or a few errors of a very accurate model. Then there is no interval, except that of an accuracy whose predictions are
independent: it is exact for any number of errors.

Source: Clopper, Pearson (Biometrika 1934) for the exact interval; Korn, Graubard (Survey Methodology 1998) for its use with
an effective sample size; Kish (Survey Sampling, 1965) for the effective size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from calibrant.core.arrays import Floats
from calibrant.core.documents import Extra
from calibrant.core.view import NoResultError, View
from calibrant.inference.bin_noise import kish
from calibrant.inference.gap_uncertainty import has_named_units
from calibrant.inference.intervals import JACKKNIFE, RATIO_OF, ratio_interval

Bounds = tuple[float, float]
EXACT = "Clopper-Pearson with Kish's effective number of samples"
# Measured: intervals of means contain the truth in .93 of runs from here; with fewer and uneven weights, in .78 to .92.
MIN_EFFECTIVE = 120.0
_UNEVEN = 2.0
# Fewer errors than this: a jackknife that saw none or one knows nothing of the next. Five independent errors have about 4.7.
MIN_ERRORS = 4.5
_ROUNDING = 1e-9


def mean_interval(
    view: View,
    sums: Callable[[View], dict[str, Floats]],
    column: str,
    weight: str,
    limits: tuple[float | None, float | None],
) -> tuple[Bounds | None, Extra]:
    """Return the interval of a mean and how it was made, or why there is none.

    Parameters
    ----------
    view : View
    sums : returns score sums by replicate, as `replication.score_columns`
    column, weight : names of the sums, numerator and denominator
    limits : lowest and highest possible value, None where unbounded
    """
    try:
        columns = sums(view)
        if not np.all(columns[weight].sum() - columns[weight] > 0):
            raise NoResultError("too_few_units", "one replicate holds all the weight")
        reject_uneven(view)
        if column == "correct" and has_few_errors(columns) and not has_named_units(view):
            share = float(columns["correct"].sum() / columns["weight"].sum())
            bounds, method = exact_interval(share, effective_size(view), view.pane_query.ci), EXACT
        else:
            reject_few_errors(columns)
            bounds = ratio_interval(columns[column], columns[weight], view.pane_query.ci)
            method = JACKKNIFE
    except NoResultError as rejection:
        return None, {"interval_reason": rejection.reason}
    lowest, highest = limits
    low = bounds[0] if lowest is None else max(bounds[0], lowest)
    high = bounds[1] if highest is None else min(bounds[1], highest)
    return (low, high), {"interval_method": method, "interval_of": RATIO_OF}


def reject_uneven(view: View) -> None:
    """Raise if a few units have most of the weight.

    Raises
    ------
    NoResultError
        Fewer than 120 effective samples, and less than half as many as there are units.
    """
    size = effective_size(view)
    if size < MIN_EFFECTIVE and size * _UNEVEN < view.counts["n_units"]:
        raise NoResultError(
            "too_few_units",
            f"the weights leave {size:.0f} effective samples; intervals of means need {MIN_EFFECTIVE:.0f}",
        )


def reject_few_errors(columns: dict[str, Floats]) -> None:
    """Raise if a few replicates hold all errors, or all correct predictions; `columns` as `score_columns`.

    Raises
    ------
    NoResultError
        Fewer than about five independent errors or correct predictions.
    """
    if has_few_errors(columns):
        raise few_errors()


def few_errors() -> NoResultError:
    """Return the error of too few outcomes of one kind."""
    return NoResultError("few_errors", "fewer than five independent errors, or correct predictions")


def has_few_errors(columns: dict[str, Floats]) -> bool:
    """Return whether the errors, or the correct predictions, are in few replicates."""
    correct, weight = columns["correct"], columns["weight"]
    both = np.stack([correct, weight - correct], axis=1)
    return bool(effective_outcomes(both, _ROUNDING * float(weight.sum())).min() < MIN_ERRORS)


def effective_outcomes(sums: Floats, least: float) -> Floats:
    """Return the effective number of replicates with outcomes of each kind, (n_replicates, n_kinds) to (n_kinds,).

    Sums up to `least` are none.
    """
    return kish(np.where(sums > least, sums, 0.0))


def effective_size(view: View) -> float:
    """Return Kish's effective number of samples of the window: squared weight over the sum of squared weights."""
    cells = view.grid_cells_of(view.spec.default_scope)
    squares = float(cells.weight_squared.sum())
    return float(cells.weight.sum()) ** 2 / squares if squares > 0 else 0.0


def exact_interval(share: float, size: float, ci: float) -> Bounds:
    """Return the Clopper-Pearson interval of a share of independent samples.

    Parameters
    ----------
    share : of `size` samples, which need not be whole
    size : effective number of samples
    ci : nominal coverage

    Examples
    --------
    >>> [round(bound, 4) for bound in exact_interval(1.0, 300.0, 0.95)]
    [0.9878, 1.0]
    """
    tail = (1.0 - ci) / 2.0
    hits, misses = share * size, (1.0 - share) * size
    low = float(scipy.special.betaincinv(hits, misses + 1.0, tail)) if hits > 0 else 0.0
    high = float(scipy.special.betaincinv(hits + 1.0, misses, 1.0 - tail)) if misses > 0 else 1.0
    return low, high
