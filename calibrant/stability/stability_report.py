"""Stability report: a calibration error as data shrink, and under each label policy.

It includes the baselines of single raters, with which several raters are compared. They are returned for any metric, also
without a curve.
"""

from __future__ import annotations

from calibrant.core.documents import Result
from calibrant.core.view import NoResultError, View
from calibrant.inference.seeds import SEED
from calibrant.metrics import chosen
from calibrant.metrics.metric import ClasswiseGapMetric
from calibrant.stability.curves import N_BOOTSTRAPS, disagreement, stability
from calibrant.stability.rater_baselines import by_policy
from calibrant.stability.replicate_curves import binned_statistic

# Of curves whose resamples are computed together from rows.
MAX_ROWS, MAX_CLASSES = 1000, 10
# The same for equal-width bins of every class.
MAX_BINNED_CLASSES = 20


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
    if binned_statistic(view, metric) is not None:
        if isinstance(metric, ClasswiseGapMetric):
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
