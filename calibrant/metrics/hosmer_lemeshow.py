"""Hosmer and Lemeshow's test: squared differences of outcomes and scores in groups of equal mass, divided by their variance.

For a model scored on data that it was not fitted to, the degrees of freedom are the number of groups; on its own training data two
fewer. Where a unit has several ratings or predictions, each group's variance is scaled by the stored design effect.

With few outcomes of either kind in a group, the statistic is above the chi-square's 95 % limit in more than 10 % of calibrated models. The
reference and the p-value of fresh data are then of drawn labels, and the p-value is never below 1 / (1 + number of draws) = 1/2,001.

Group j ends with the first score at which j / M of the mass is reached, and ties stay together. Where M does not divide n,
`numpy.array_split` has the same sizes in another order, and so another statistic.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.core.arrays import Floats, Ints, ratio
from calibrant.core.cells import Cells, cuts_inside, equal_mass_groups
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.inference.null_reference import (
    N_DRAWS,
    NullReference,
    drawn_correct,
    few,
    independent,
    piecewise,
    quantiles_of,
)
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    MetricValue,
    bounded,
    each_division,
    scored_cells,
)

# The usual rule of chi-square tests, for the variance of outcomes of a group.
_ENOUGH = 5.0
_SEED = 0
DATA = Option(
    "data",
    "fresh",
    "Data that the model was not fitted to (degrees of freedom: groups), or its training data (two fewer).",
    allowed=("fresh", "training"),
)


def chi_square(difference: Floats, variance: Floats) -> float:
    """Return the sum over groups of squared difference over variance. Groups without variance must have no difference.

    Source
    ------
    Hosmer, Lemeshow, Goodness of fit tests for the multiple logistic regression model (1980).

    Examples
    --------
    >>> chi_square(np.array([2.0, -1.0]), np.array([4.0, 0.5]))
    3.0
    """
    impossible = (variance <= 0.0) & (np.abs(difference) > 1e-9)
    if impossible.any():
        return float("inf")
    quotient = np.zeros(len(variance))
    with np.errstate(over="ignore"):  # An infinite sum is reported as an impossible outcome.
        np.divide(difference**2, variance, out=quotient, where=variance > 0)
    return float(quotient.sum())


def _groups(cells: Cells, bins: int) -> tuple[Ints, Cells, Floats]:
    """Return the group of each cell, the groups, and the variance of their correct ratings."""
    group = equal_mass_groups(cells.weight, bins)
    n_groups = int(group[-1]) + 1
    groups = cells.grouped(group, n_groups)
    variance = groups.weight * groups.mean * (1.0 - groups.mean)
    single = np.bincount(group, cells.weight * cells.mean * (1.0 - cells.mean), n_groups)
    effect = ratio(groups.null_variance, single, 1.0)
    return group, groups, variance * effect


def of_cells(view: View, cells: Cells) -> float:
    """Return the value from cells."""
    _, groups, variance = _groups(cells, view.pane_query.bins)
    return chi_square(groups.correct - groups.confidence, variance)


def read(view: View) -> MetricValue | None:
    cells = scored_cells(view)
    if not len(cells):
        return None
    if _unequal(cells):
        raise NoResultError(
            "unequal_weights",
            "the test's chi-square distribution needs predictions of equal weight",
        )
    bins = view.pane_query.bins
    group, groups, variance = _groups(cells, bins)
    n_groups = len(groups)
    value = chi_square(groups.correct - groups.confidence, variance)
    freedom = n_groups - (0 if DATA.of(view.pane_query) == "fresh" else 2)
    if not np.isfinite(value):
        raise NoResultError(
            "impossible_outcome", "a group whose scores are all 0 or all 1 has the opposite outcome"
        )
    if freedom < 1:
        raise NoResultError("too_few_groups", f"{n_groups} groups leave no degree of freedom")
    extra = {
        "degrees_of_freedom": freedom,
        "groups": n_groups,
        "p_value": _p_value(view, value, freedom),
        DATA.name: DATA.of(view.pane_query),
    }
    if not view.is_raw:
        extra |= bounded(
            error_bound(cells, bins, group, groups, variance), "cuts_not_told_by_cells"
        )
    return MetricValue(value, extra)


def _unequal(cells: Cells) -> bool:
    """Return whether samples differ in weight: squared weights sum to more than those of equal weights."""
    squared = float(cells.weight_squared.sum()) * float(cells.count.sum())
    return squared > float(cells.weight.sum()) ** 2 * (1.0 + 1e-9)


def error_bound(
    cells: Cells, bins: int, group: Ints, groups: Cells, variance: Floats
) -> float | None:
    """Bound the change when each cut may be anywhere inside its cell; None where a cell contains several cuts.

    A part that changes sides takes its difference with it, and its own variance and distance from the group's mean.
    """
    cuts = cuts_inside(cells, bins)
    if (cuts > 1).any():
        return None
    shift, moved = np.zeros(len(groups)), np.zeros(len(groups))
    largest = np.maximum(*cells.largest_shift)
    for place in np.flatnonzero(cuts):
        for side in {int(group[place]), min(int(group[place]) + 1, len(groups) - 1)}:
            shift[side] += largest[place]
            distance = (cells.mean[place] - groups.mean[side]) ** 2
            moved[side] += cells.null_variance[place] + cells.weight[place] * distance
    if (moved >= variance).any():
        return None
    size = np.abs(groups.correct - groups.confidence)
    high = (size + shift) ** 2 / (variance - moved) - size**2 / variance
    low = size**2 / variance - np.maximum(size - shift, 0.0) ** 2 / (variance + moved)
    # The design effect divides by the cells' own variance, which differs from the scores' by their variation inside.
    inside = np.maximum((cells.upper - cells.mean) * (cells.mean - cells.lower), 0.0) * (
        cells.predictions > 1
    )
    spread = np.bincount(group, cells.weight * inside, len(groups))
    own = np.bincount(group, cells.weight * cells.mean * (1.0 - cells.mean), len(groups))
    return float(
        (
            np.maximum(high, low) + size**2 / variance * spread / np.maximum(own - spread, spread)
        ).sum()
    )


def _drawn(view: View) -> Floats | None:
    """Return values of calibrated models by drawn labels, (n_draws,); None where the chi-square distribution describes them."""
    cells = scored_cells(view)
    _, groups, variance = _groups(cells, view.pane_query.bins)
    size = variance * (groups.count / groups.weight) ** 2
    if DATA.of(view.pane_query) != "fresh" or size.min() >= _ENOUGH:
        return None
    cells = few(independent(cells))
    group, groups, variance = _groups(cells, view.pane_query.bins)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    scale = ratio(1.0, variance)
    return piecewise(
        lambda some: (np.add.reduceat(some, first, axis=1) - groups.confidence) ** 2 @ scale,
        drawn_correct(cells, N_DRAWS, _SEED),
    )


def _draws(view: View) -> Floats | None:
    key = ("hosmer_lemeshow", view.scope, view.pane_query.bins, DATA.of(view.pane_query))
    return view.once(key, lambda: _drawn(view))


def _p_value(view: View, value: float, freedom: int) -> float:
    drawn = _draws(view)
    if drawn is None:
        return float(scipy.special.chdtrc(freedom, value))
    return float((1.0 + np.count_nonzero(drawn >= value * (1.0 - 1e-12))) / (1.0 + len(drawn)))


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return mean and quantile of the chi-square distribution, or of drawn labels where groups have few outcomes."""
    drawn = _draws(view)
    if drawn is not None:
        return quantiles_of(drawn)
    freedom = reading.extra["degrees_of_freedom"]
    return NullReference(float(freedom), float(scipy.special.chdtri(freedom, 0.05)), 0.0)


METRIC = FormulaMetric(
    slug="hosmer_lemeshow",
    title="Hosmer-Lemeshow chi-square",
    unit="chi-square",
    range=(0.0, None),
    formula="Σ_m (O_m - E_m)^2 / V_m; p_value of drawn labels, at least 1/2,001, where a group expects fewer than 5 outcomes of a kind",
    search_words={"HL test": "", "Hosmer-Lemeshow test": ""},
    source="Hosmer, Lemeshow (1980); degrees of freedom of fresh data",
    options=("bins", "scope"),
    own_options=(DATA,),
    read=read,
    of_cells=each_division(of_cells),
    no_interval="test_statistic",
    null=null,
    null_of_units=True,
)
