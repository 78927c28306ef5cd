"""Interval and null reference of a statistic of gaps over a value's own bins, from the state of a pane."""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.cells import Table
from calibrant.core.documents import Extra, Result
from calibrant.core.grid import equal_width_bin
from calibrant.core.label_policies import POLICIES
from calibrant.core.view import NoResultError, View
from calibrant.inference.bin_noise import DesignEffect, Draws, design_effect, noisy_gaps
from calibrant.inference.gap_tables import GapForm, GapTables, gap_tables, replicates_of
from calibrant.inference.intervals import (
    INTERVAL_METHOD,
    INTERVAL_OF,
    RANGE_CAUTION,
    ResampledGaps,
    gap_interval,
)
from calibrant.inference.largest_gap import largest_gap_null
from calibrant.inference.null_reference import ASSUMPTION, N_DRAWS, NullReference, gap_null
from calibrant.inference.replication import reject_if_thin, tables_for
from calibrant.inference.unit_null import (
    BY_UNITS,
    PROMISED_FROM,
    RETURNED_FROM,
    null_effect,
    unit_gaps,
    unit_null,
)

MIN_EFFECTIVE = 50.0
MIN_BIN_UNITS = 5.0
_MIN_UNITS_OF_RANGE = 12
_MIN_EFFECT_OF_SHARES = 0.05
_MAX_SHARED = 1 << 16
Bounds = tuple[float, float]


def gap_uncertainty(
    view: View, form: GapForm, seed: int
) -> tuple[Bounds | None, NullReference | None, Extra]:
    """Return interval, null reference, and what they are from or why there are none.

    Parameters
    ----------
    view : View
    form : the value's statistic and bins
    seed : of draws and resamples
    """
    null, about = _null(view, form, seed)
    try:
        gaps, found = value_gaps(view, form, seed)
    except NoResultError as rejection:
        spread = _range(view, form, seed) if rejection.reason == "too_few_units" else {}
        return None, null, about | {"interval_reason": rejection.reason} | spread
    interval = gap_interval(form.statistic, form.of_truth, gaps, view.pane_query.ci)
    low, high = interval.bounds
    if null is not None and null.limit is not None and form.observed <= null.limit:
        # What chance alone explains does not exclude a calibrated model.
        low = min(low, 0.0)
    of_interval: Extra = {"interval_method": INTERVAL_METHOD, "interval_of": INTERVAL_OF}
    return (low, high), null, about | of_interval | found | interval.correction(form.observed)


def has_named_units(view: View) -> bool:
    """Whether predictions share units."""
    return view.counts["n_units"] < view.counts["n_labelled"]


def worst_case(null: NullReference) -> Result:
    """Return the reference with fully dependent units under its own name."""
    return {"null_worst_case": {"mean": null.mean, "q95": null.q95, "assumption": ASSUMPTION}}


def fine_gaps(view: View, bins: int, seed: int) -> tuple[ResampledGaps, float]:
    """Return simulated gaps of the replicates' own bins of the view's scope, and the effective number of samples.

    Raises
    ------
    NoResultError
        As `replication.tables_for`, or too few effective samples.
    """
    replicates = tables_for(view, view.scope, bins)
    cells = view.cells_of(view.scope)
    grouped = cells.grouped(
        equal_width_bin((cells.lower + cells.upper) / 2.0, replicates.bins), replicates.bins
    )
    table = Table(grouped, np.arange(replicates.bins + 1) / replicates.bins, 0.0)
    moments = gap_tables((view.scope,), "equal_width", replicates.bins, [table]).moments
    effect = design_effect(replicates, moments, _least_effect(view))
    _reject_few(effect)
    draws = Draws.of(len(replicates.weight), moments.weight.shape, seed)
    return noisy_gaps(replicates, moments, effect, draws), effect.n


def class_gaps(view: View, bins: int, seed: int) -> ResampledGaps:
    """Return simulated gaps of equal-width bins of every class.

    Raises
    ------
    NoResultError
        As `replication.class_tables`, or too few effective samples.
    """
    scopes = tuple(f"class:{k}" for k in range(view.spec.n_classes))
    tables = gap_tables(scopes, "equal_width", bins, view.binned_classes("equal_width", bins))
    return _noisy(view, tables, seed)[0]


def design_effect_of(view: View) -> float:
    """Return the design effect of the view's own bins: the larger of within bins and over all of them.

    Raises
    ------
    NoResultError
        As `replication.tables_for`.
    """
    pane_query = view.pane_query
    tables = gap_tables((view.scope,), pane_query.binning, pane_query.bins, [view.table()])
    reject_if_thin(view)
    effect = _effect(view, tables)
    return max(effect.within, effect.total)


def _range(view: View, form: GapForm, seed: int) -> Extra:
    """Return the spread of resampled units where there are too few for an interval, but at least 12."""
    if view.counts["n_units"] < _MIN_UNITS_OF_RANGE or form.by_bin:
        return {}
    try:
        replicates, _ = replicates_of(view, form.tables)
    except NoResultError:
        return {}
    draws = Draws.of(len(replicates.weight), form.tables.weight.shape, seed)
    gaps = noisy_gaps(replicates, form.tables.moments, _effect(view, form.tables), draws)
    found = gap_interval(form.statistic, form.of_truth, gaps, view.pane_query.ci)
    return {"range": list(found.bounds), "range_caution": RANGE_CAUTION}


def value_gaps(
    view: View, form: GapForm, seed: int, draws: Draws | None = None
) -> tuple[ResampledGaps, Extra]:
    """Return simulated gaps of a value's bins, and what they are from.

    Parameters
    ----------
    view, form, seed : as in `gap_uncertainty`
    draws : of the replicates; None: those of the seed

    Raises
    ------
    NoResultError
        As `replication.tables_for`, too few effective samples, no bin with enough units, or certain scores that are all right.
    """
    gaps, effect = _noisy(view, form.tables, seed, draws)
    about: Extra = {"interval_bins": form.tables.weight.shape[1], "n_effective": effect.n}
    if form.by_bin:
        gaps, left_out = _full_bins(gaps, form.tables, effect)
        about |= {"interval_min_units": MIN_BIN_UNITS, "interval_bins_left_out": left_out}
    return gaps, about


def _noisy(
    view: View, tables: GapTables, seed: int, draws: Draws | None = None
) -> tuple[ResampledGaps, DesignEffect]:
    if tables.scopes == (view.spec.default_scope,):
        reject_if_thin(view)  # what follows takes most of the time of a few rows
    replicates, _ = replicates_of(view, tables)
    reject_if_thin(view)
    effect = _effect(view, tables)
    _reject_few(effect)
    _reject_certain(tables)
    if draws is not None:
        return noisy_gaps(replicates, tables.moments, effect, draws), effect
    key = ("noisy", *tables.key, seed)
    draws = Draws.of(len(replicates.weight), tables.weight.shape, seed)
    return view.once(key, lambda: noisy_gaps(replicates, tables.moments, effect, draws)), effect


def _effect(view: View, tables: GapTables) -> DesignEffect:
    return view.once(
        ("effect", *tables.key),
        lambda: design_effect(replicates_of(view, tables)[0], tables.moments, _least_effect(view)),
    )


def _least_effect(view: View) -> float:
    """Return the lower limit of the design effect: labels that are shares of several ratings vary less than one rating."""
    several = view.counts["n_ratings"] > view.counts["n_labelled"]
    return _MIN_EFFECT_OF_SHARES if POLICIES[view.policy] == "mean" and several else 1.0


def _reject_few(effect: DesignEffect) -> None:
    if effect.size < MIN_EFFECTIVE:
        raise NoResultError(
            "too_few_units",
            f"The weights leave {effect.size:.0f} effective samples; an interval needs {MIN_EFFECTIVE:.0f}.",
        )


def _reject_certain(tables: GapTables) -> None:
    """Reject scores of 0 and 1 that are all right: neither scores nor labels show by how much such values vary."""
    if not tables.variance.any() and not tables.gap.any():
        raise NoResultError("few_errors", "All scores are 0 or 1, and no label contradicts one.")


def _full_bins(
    gaps: ResampledGaps, tables: GapTables, effect: DesignEffect
) -> tuple[ResampledGaps, list[int]]:
    """Return the simulated gaps of bins with enough units, and the other bins with data.

    Raises
    ------
    NoResultError
        No bin has enough.
    """
    enough = tables.moments.units / max(effect.within, 1.0) >= MIN_BIN_UNITS
    if not enough.any():
        raise NoResultError("sparse_bins", f"no bin has {MIN_BIN_UNITS:.0f} independent samples")
    return gaps.within(enough), np.flatnonzero(((tables.weight > 0) & ~enough).any(axis=0)).tolist()


def _of_classes(view: View, tables: GapTables, null: NullReference) -> NullReference:
    if len(tables.scopes) > 1:
        return of_dependent_classes(null, effective_classes(tables.variance.sum(axis=1)))
    if tables.scopes[0] == "all":
        return of_dependent_classes(null, float(view.spec.n_classes))
    return null


def _null(view: View, form: GapForm, seed: int) -> tuple[NullReference | None, Extra]:
    ci, tables, closed = view.pane_query.ci, form.tables, form.closed
    if closed is None:
        worst = gap_null(form.statistic, tables.weight, tables.variance, seed, ci)
    else:
        worst = closed(tables.weight, tables.deviation, ci, tables.score, tables.moments.units)
    if closed is not largest_gap_null:
        worst = _of_classes(view, tables, worst)
    if not has_named_units(view):
        return worst, {"null_assumption": ASSUMPTION}
    about = worst_case(worst)
    try:
        replicates, shares = replicates_of(view, tables)
    except NoResultError as rejection:
        return None, about | {"null_reason": rejection.reason}
    n = len(replicates.weight)
    about["null_replicates"] = n
    if n < RETURNED_FROM:
        return None, about | {"null_reason": "too_few_units"}
    effect = null_effect(replicates.difference, tables.independent)
    missing = np.zeros_like(tables.weight)
    if not shares.nested:
        shown = (replicates.difference**2).sum(axis=0) * n / (n - 1.0)
        missing = np.maximum(effect * tables.independent - shown, 0.0)
    gaps = _unit_gaps(view, tables, replicates.difference, missing, seed)
    null = unit_null(form.statistic, tables.weight, gaps, ci)
    return null, about | {
        "null_assumption": BY_UNITS,
        "null_promised": n >= PROMISED_FROM,
        "design_effect": effect,
    }


def _unit_gaps(
    view: View, tables: GapTables, difference: Floats, missing: Floats, seed: int
) -> Floats:
    """Return drawn gaps of dependent units. Metrics of the same bins share those of few bins, of 0.5 MB at most."""

    def draw() -> Floats:
        return unit_gaps(tables.weight, difference, missing, seed)

    few = tables.weight.size * N_DRAWS <= _MAX_SHARED
    return view.once(("unit gaps", *tables.key, seed), draw) if few else draw()


_LEAST = 2.0


def effective_classes(variance: Floats) -> float:
    """Return how many classes that vary alike would concentrate the variance as much, at least 2.

    Parameters
    ----------
    variance : float64 (n_classes,), of the outcomes of each class

    Examples
    --------
    >>> effective_classes(np.array([1.0, 1.0, 1.0, 0.0]))
    3.0
    """
    squares = float((variance**2).sum())
    return max(float(variance.sum()) ** 2 / squares, _LEAST) if squares else _LEAST


def of_dependent_classes(null: NullReference, n_classes: float) -> NullReference:
    """Return the reference with its upper quantiles as far from the mean as for classes that depend on each other.

    Examples
    --------
    >>> round(of_dependent_classes(NullReference(0.05, 0.06, 0.0, 0.07), 2.0).q95, 4)
    0.0641
    """
    factor = float(np.sqrt(n_classes / (n_classes - 1.0)))
    limit = null.limit if null.limit is None else null.mean + factor * (null.limit - null.mean)
    error = null.q95_error if null.q95_error is None else factor * null.q95_error
    q95 = null.mean + factor * (null.q95 - null.mean)
    return null._replace(q95=q95, q95_error=error, limit=limit)
