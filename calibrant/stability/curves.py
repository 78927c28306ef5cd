"""Stability of a calibration error as data shrink: its curve by fraction of the data, and the curve's variation.

Replicates are drawn from stored state, units from raw rows. Several raters are compared with one reference label on the
same draws, so that their ratio is paired. The ratio depends on the raters' disagreement, which is also returned. A report adds the values
under each label policy and of single raters; these are returned for any metric, also without a curve.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.accumulators.distribution_gaps import SUMS
from calibrant.core.arrays import Floats
from calibrant.core.documents import Result
from calibrant.core.errors import check_one_of, check_range
from calibrant.core.view import NoResultError, View
from calibrant.inference.seeds import SEED
from calibrant.metrics import chosen
from calibrant.stability.curve_sources import curves_of
from calibrant.stability.rater_baselines import by_policy, under
from calibrant.stability.subsets import FRACTIONS, SUBSETS, CurveSource, Draws, draws_of

N_BOOTSTRAPS = 100
# Of a report: rows and classes of curves whose resamples are computed together from rows.
MAX_ROWS, MAX_CLASSES = 1000, 10
# The same for equal-width bins of every class.
MAX_BINNED_CLASSES = 20
REFERENCES = ("majority", "single")
COVERS = "other units with their ratings, sampled as these were"


def stability(
    view: View,
    slug: str,
    *,
    subsets: str = "nested",
    source: str | None = None,
    n_bootstraps: int = N_BOOTSTRAPS,
    seed: int = SEED,
    one_by_one: bool = True,
) -> Result:
    """Return the stability curve of a calibration error under several raters and under one reference label.

    Parameters
    ----------
    view : of a pane, with its raw rows if available: then the curve is exact
    slug : the metric; it must be computed from scores and correct labels
    source : of stored state "replicates" or "sample"; default: replicates, or the sample if they do not carry
        the metric
    subsets : "nested" (each a part of the next) or "independent"
    n_bootstraps : resamples of the units
    seed : seed of all draws
    one_by_one : also resample units for metrics that are computed again for each subset: 4 to 30 seconds for thousands of them

    Returns
    -------
    dict with `fractions`, for each policy in `raters` its `curve`, `full` and `tv` (mean absolute step; also `signed`
    as the paper prints it, `relative` to the full estimate, `per_cent`, `sum` not divided by the steps) and
    `bootstrap` (mean and sd of the mean absolute step; None without resamples); `ratio` of each reference to the
    several raters (its value is None without resamples, with the reason `too_many_subsets`);
    `disagreement`; `source`, `n_drawn`, `exact` (whether curves are of the metric itself) and, from replicates, `bins`.
    JSON-able.

    Raises
    ------
    CalibrationInputError
        An unknown metric, kind of subset, or fewer than 2 bootstraps.
    NoResultError
        The state does not support this metric on parts of the data.

    Source
    ------
    Riera-Marin et al., eq. 6, figures 1 and 3, table 1.
    """
    metric = chosen([slug])[0]
    check_one_of("subsets", subsets, SUBSETS)
    check_range("n_bootstraps", n_bootstraps, 2, 10_000)
    drawn_of, curves = curves_of(view, metric, source)
    rng = np.random.default_rng(seed)
    once = draws_of(curves.n, 0, 1, subsets, rng)
    many = None
    if one_by_one or not curves.one_by_one:
        many = draws_of(curves.n, n_bootstraps, curves.n_orders, subsets, rng)
    several = view.pane_query.raters
    policies = (several, *(policy for policy in REFERENCES if policy != several))
    found = {
        policy: _one_policy(under(drawn_of, policy), curves, once, many) for policy in policies
    }
    return {
        "metric": slug,
        **curves.about,
        "subsets": subsets,
        "fractions": FRACTIONS.tolist(),
        "raters": {policy: about for policy, (about, _) in found.items()},
        "ratio": {
            policy: _ratio(found[several], found[policy], view.pane_query.ci)
            for policy in policies[1:]
        },
        "disagreement": disagreement(view),
    }


def total_variation(curve: Floats) -> dict[str, float | None]:
    """Return the total variation of a curve over its steps, in the variants that the paper allows.

    Parameters
    ----------
    curve : float64 (n_fractions,), from the smallest fraction to the complete data

    Examples
    --------
    >>> total_variation(np.array([0.5, 0.25, 0.375]))["absolute"]
    0.1875
    """
    steps = np.diff(curve)
    absolute = float(np.abs(steps).mean())
    return {
        "absolute": absolute,
        "signed": float(steps.mean()),
        "relative": absolute / float(curve[-1]) if curve[-1] else None,
        "per_cent": 100.0 * absolute,
        "sum": float(np.abs(steps).sum()),
    }


def disagreement(view: View) -> float | None:
    """Return the mean share of pairs of raters that differ, over predictions with at least two ratings, or None.

    Raises
    ------
    NoResultError
        As `View.reject_histograms`.
    """
    view.reject_histograms()
    sums = dict(
        zip(SUMS, view.pane["label_distribution"].blocks["sums"].sums.sum(axis=1), strict=True)
    )
    return float(sums["disagreement"] / sums["weight_of_two"]) if sums["weight_of_two"] else None


def _one_policy(
    view: View, source: CurveSource, once: Draws, many: Draws | None
) -> tuple[Result, Floats | None]:
    """Return the result of a policy, and its mean absolute step by resample and order, if there are resamples."""
    curve = source.curves(view, once)[0]
    about: Result = {
        "curve": curve.tolist(),
        "full": float(curve[-1]),
        "tv": total_variation(curve),
        "bootstrap": None,
    }
    if many is None:
        return about, None
    steps = np.abs(np.diff(source.curves(view, many), axis=1)).mean(axis=1)
    about["bootstrap"] = {
        "n": len(steps) // source.n_orders,
        "orders": source.n_orders,
        "mean": float(steps.mean()),
        "sd": float(steps.std(ddof=1)),
    }
    return about, steps.reshape(-1, source.n_orders)


def _ratio(
    several: tuple[Result, Floats | None], single: tuple[Result, Floats | None], ci: float
) -> Result:
    """Return the ratio of mean variations with its interval."""
    below, above = several[1], single[1]
    if below is None or above is None:
        return {"value": None, "reason": "too_many_subsets"}
    if not below.mean() > 0.0:
        return {"value": None, "reason": "no_variation"}
    value = float(above.mean() / below.mean())
    error = ratio_error(below, above)
    reach = float(scipy.special.ndtri(0.5 + ci / 2.0)) * error
    full, reference = several[0]["full"], single[0]["full"]
    return {
        "value": value,
        "standard_error": error,
        "interval": [value - reach, value + reach],
        "interval_covers": COVERS,
        "relative": value * full / reference if reference else None,
    }


def ratio_error(below: Floats, above: Floats) -> float:
    """Return the standard error of a ratio of mean variations over samples of units.

    Parameters
    ----------
    below, above : float64 (n_resamples, n_orders), on the same draws

    Notes
    -----
    By the delta method: resamples vary like samples, and by the orders of their units. The contribution of the orders is
    estimated within resamples and subtracted, but at most three quarters of the variance, because the difference of two
    estimates may be zero by chance. With one order it is not subtracted.
    """
    residual = above - above.mean() / below.mean() * below
    by_resample = residual.mean(axis=1).var(ddof=1)
    n_orders = residual.shape[1]
    by_order = residual.var(axis=1, ddof=1).mean() / n_orders if n_orders > 1 else 0.0
    return float(np.sqrt(max(by_resample - by_order, by_resample / 4.0)) / below.mean())


def stability_report(
    view: View,
    slug: str,
    *,
    subsets: str = "nested",
    source: str | None = None,
    seed: int = SEED,
    max_ratings: int | None = None,
    one_by_one: bool = True,
) -> Result:
    """Curves, total variation and its ratios, and baselines.

    Parameters
    ----------
    view, slug, subsets, source, seed, one_by_one : as in `stability`
    max_ratings : maximum of ratings of raw rows in a service, to bound the time: for curves of equal-width bins; other
        curves have at most `MAX_ROWS` rows

    Returns
    -------
    dict as `stability`, with scope, n, n_ratings, `baselines` and `n_majority_ties`; `raters` is None, with a `reason`,
    where there are no curves: baselines and `disagreement` are returned all the same

    Raises
    ------
    CalibrationInputError
        As `stability`.
    """
    found: Result = {"metric": slug, "subsets": subsets, "reason": None}
    try:
        _reject_costly(view, slug, max_ratings)
        found |= stability(
            view,
            slug,
            subsets=subsets,
            source=source,
            n_bootstraps=N_BOOTSTRAPS,
            seed=seed,
            one_by_one=one_by_one,
        )
    except NoResultError as rejection:
        found |= {
            "raters": None,
            "ratio": None,
            "reason": rejection.reason,
            "detail": rejection.detail,
        }
        found["disagreement"] = _disagreement(view)
    return {
        **found,
        "scope": view.scope,
        "n": view.counts["n_labelled"],
        "n_ratings": view.counts["n_ratings"],
        "baselines": by_policy(view, slug, seed),
        "n_majority_ties": view.counts["n_majority_ties"],
    }


def _disagreement(view: View) -> float | None:
    try:
        return disagreement(view)
    except NoResultError:
        return None


def _reject_costly(view: View, slug: str, max_ratings: int | None) -> None:
    metric = chosen([slug])[0]
    if metric.equal_bins(view.pane_query) is not None:
        if metric.is_of_classes:
            _reject_more(view.spec.n_classes, MAX_BINNED_CLASSES, "classes", slug)
        if view.is_raw and max_ratings is not None:
            _reject_more(view.counts["n_ratings"], max_ratings, "ratings", slug)
        return
    if "classes" in metric.needs:
        _reject_more(view.spec.n_classes, MAX_CLASSES, "classes", slug)
    if view.batch_sums is not None and max_ratings is not None and "cases" not in metric.needs:
        copies = view.spec.n_classes if view.scope == "all" else 1
        _reject_more(view.batch_sums.n * copies, MAX_ROWS, "rows", slug)


def _reject_more(size: int, most: int, things: str, slug: str) -> None:
    if size > most:
        detail = f"curves of {slug} of {size} {things} take too long here: {most} are the most, and the library has no such limit"
        raise NoResultError(f"too_many_{things}", detail)
