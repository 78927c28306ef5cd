"""Temperature scaling: the T for which softmax(z / T) fits the labels best, from a pane or from raw rows.

From state, NLL and Brier are minimised over T in [1/32, 32]; from rows, over as wide a range as their logits need. ECE is searched in
[0.5, 10] in steps of .005. If the optimum is at an end or the data cannot determine it, the result says so explicitly.
"""

from __future__ import annotations

from typing import Any

from calibrant.accumulators.temperature import TABLE_BINS, TemperatureProfile
from calibrant.calibrators.temperature.beyond_grid import beyond_grid
from calibrant.calibrators.temperature.curve import Curve
from calibrant.calibrators.temperature.fit_result import about_fit, curve_points, nothing, result_of
from calibrant.calibrators.temperature.interval import at_most
from calibrant.calibrators.temperature.row_curve import RowCurve, counts_of
from calibrant.calibrators.temperature.scaled_rows import fit_scaled
from calibrant.calibrators.temperature.verdicts import NOT_FITTED, without_temperature
from calibrant.core.batch import Batch
from calibrant.core.documents import Result
from calibrant.core.errors import CalibrationInputError, check_one_of, check_range
from calibrant.core.pane import Pane
from calibrant.core.query import MAX_BINS, PaneQuery, policy_index
from calibrant.core.spec import PaneSpec
from calibrant.core.view import NoResultError, View

OBJECTIVES = ("nll", "brier", "ece")
# Above this number of rows the interpolation error of the profile (relative, below 2e-5) is under a thousandth of the standard
# error of T, and a fit to the rows takes a tenth of a second.
MAX_EXACT_ROWS = 1500


def fit_temperature(
    pane: Pane,
    *,
    objective: str = "nll",
    raters: str = "pooled",
    ci: float = 0.95,
    bins: int = 15,
    min_count: float = 0.0,
    rows_if_complete: bool = False,
) -> Result:
    """Fit a temperature to a pane's stored profile, without raw rows.

    Parameters
    ----------
    pane : Pane with the accumulators `counts`, `histograms` and `temperature`
    objective : "nll" (recommended), "brier" or "ece"
    raters : label policy of the fit; T depends on it
    ci : nominal coverage of the interval, in [0.5, 1)
    bins : equal-width bins (right edges) of the ECE; a divisor of 60
    min_count : bins of the ECE with fewer samples (mass if predictions are weighted) are left out
    rows_if_complete : fit to the rows of the stored sample if it has every labelled prediction, and they are at most 1,500;
        `method` is "sample"

    Returns
    -------
    dict of plain values. `temperature` is None with a `reason` if there is none; `verdict` is a code of `VERDICTS`,
    `detail` its sentence. `interval` has the temperatures whose loss is not too far above the minimum, by the likelihood ratio
    scaled by unit (`interval.interval_of`). It is None with an `interval_reason` for fewer than 30 units, or fewer than 5 with a
    rating other than the most probable class. `standard_error` is T's by the delta method from the sandwich
    sum (d loss)^2 / (sum d2 loss)^2 over units, None where there is no interval. If every rating is of the most probable class,
    `temperature` is None (`separable`) and `at_most` is the one-sided upper limit of T at level `ci`; of a profile of units that may
    differ in weight it is that of the stored sample (`at_most_of`), or None (`at_most_reason`). `before` is at T = 1
    and `after` at the fitted T, by the same `bins`, `edges`, `scope` and `method`. `gradient_norm` is the derivative of the
    mean loss in log T at the fit (0 at a bound, None for ECE, which is searched), `iterations` the number of steps or of
    temperatures tried. `curve` is at the stored temperatures.
    `error_estimate` has the relative error of T and the error of `after.ece`, both estimates of the interpolation error.
    `plateau` are the temperatures whose ECE is as low within that error; for Brier the two lowest minima, where the second is within
    .1 % of the first. `precision` of Brier names the stored derivatives: panes of an older format have the first alone.

    Raises
    ------
    CalibrationInputError
        An option outside its range.

    Source
    ------
    Guo et al. (ICML 2017); Kock et al. for the objectives; sandwich: White (Econometrica 1982).

    Examples
    --------
    >>> columns = {"confidences": [0.9] * 10 + [0.1] * 10, "labels": [1] * 8 + [0] * 10 + [1] * 2}
    >>> pane = Pane(PaneSpec("binary", 2))
    >>> pane.fill_batch(Batch.from_columns(columns).batch)
    >>> round(fit_temperature(pane)["temperature"], 3)
    1.585
    """
    _check(objective, bins, TABLE_BINS)
    view = View(pane, PaneQuery(bins=1, raters=raters, ci=ci, scope=pane.spec.default_scope))
    about = about_fit(pane.spec, pane.counts, objective, raters, ci, bins, min_count, "profile")
    try:
        view.reject_histograms()
    except NoResultError as error:
        reason = {"reason": error.reason, "verdict": error.reason, "detail": error.detail}
        return about | nothing() | reason | {"n_excluded": error.n_excluded}
    if rows_if_complete and _is_complete(pane):
        exact = fit_temperature_exact(
            pane.sample.batch(),
            objective=objective,
            raters=raters,
            ci=ci,
            bins=bins,
            min_count=min_count,
        )
        counted = {name: about[name] for name in ("n", "n_predictions", "n_ratings", "n_units")}
        return exact | counted | {"method": "sample"}
    profile = pane["temperature"]
    assert isinstance(profile, TemperatureProfile)
    if not about["n"]:
        return about | nothing() | without_temperature("no_labels")
    curve = Curve(profile, view.policy, bins, min_count)
    found = result_of(about, curve) | {"curve": curve_points(curve)}
    if found["at_bound"] and objective != "ece" and found["temperature"] is not None:
        beyond = beyond_grid(curve, found["bound"], pane.spec.n_classes, found["n_units"])
        return found | NOT_FITTED | beyond
    return found | (_limit(view, ci) if found["at_most"] is not None else {})


def _limit(view: View, ci: float) -> Result:
    """Return `at_most` where units may differ in weight: that of the stored sample's units, whose labels are some of the window's.

    The profile has the mean loss by weight alone, from which the sum of the units' losses follows only if they weigh alike.
    """
    pane = view.pane
    if _weigh_alike(view):
        return {}
    if "sample" not in pane.names or not pane.sample.n:
        return {"at_most": None, "at_most_reason": "unequal_units"}
    curve = RowCurve(pane.sample.batch(), view.policy, 1)
    limit = at_most(curve, n_units=counts_of(curve.batch)["n_units"], ci=ci)
    if limit is None:
        return {"at_most": None, "at_most_reason": "unequal_units"}
    return {"at_most": limit, "at_most_of": "sample"}


def _weigh_alike(view: View) -> bool:
    """Return whether the stored sums show that every prediction is a unit and all have the same weight."""
    counts, scope = view.counts, view.spec.default_scope
    if counts["n_units"] != counts["n_labelled"] or scope not in view.pane.names:
        return False
    cells = view.cells()
    total, squares = float(cells.weight.sum()), float(cells.weight_squared.sum())
    # Cauchy and Schwarz: equal if and only if all weights are.
    return abs(total**2 - float(cells.predictions.sum()) * squares) <= 1e-9 * total**2


def _is_complete(pane: Pane) -> bool:
    """Return whether the stored sample is every labelled prediction, each as it was sent, and they are few."""
    if not pane.keeps("sample") or pane.counts["n_labelled"] > MAX_EXACT_ROWS:
        return False
    sample = pane.sample
    return 0 < sample.n == pane.counts["n_labelled"] and sample.is_plain


def fit_temperature_exact(batch: Batch, **options: Any) -> Result:
    """Fit a temperature to raw rows, as `fit_rows`, with the curve of the losses.

    Parameters
    ----------
    batch : Batch
    options : as of `fit_rows`

    Returns
    -------
    dict, in the shape of `fit_temperature`; `method` is "raw", and `standard_error` is given for "brier" as well.
    """
    found, curve = fit_rows(batch, **options)
    return found | {"curve": curve_points(curve)}


def fit_rows(
    batch: Batch,
    *,
    objective: str = "nll",
    raters: str = "pooled",
    ci: float = 0.95,
    bins: int = 15,
    min_count: float = 0.0,
) -> tuple[Result, RowCurve | None]:
    """Fit a temperature to raw rows: NLL and Brier by an exact solve, ECE by exhaustive search in steps of .005.

    Parameters
    ----------
    batch : Batch
    objective, raters, ci : as in `fit_temperature`
    bins, min_count : equal-width bins (right edges) of the ECE, any number; bins with fewer samples are left out

    Returns
    -------
    found : the fit; its curve is not computed
    curve : the losses of the rows, from which `curve_points` computes it; None without labels

    Raises
    ------
    CalibrationInputError
        An option outside its range.
    """
    _check(objective, bins, None)
    spec = PaneSpec(batch.task, batch.n_classes)
    PaneQuery(raters=raters, ci=ci).check(spec)
    counts = counts_of(batch)
    about = about_fit(spec, counts, objective, raters, ci, bins, min_count, "raw")
    if not about["n"]:
        return about | nothing() | without_temperature("no_labels"), None
    curve = RowCurve(batch, policy_index(raters), bins, min_count, objective)
    found = result_of(about, curve)
    if objective != "ece" and found["at_bound"] and found["temperature"] is not None:
        found = fit_scaled(curve, found, lambda scaled: result_of(about, scaled))
    return found, curve


def check_ece_bins(bins: int) -> None:
    """Check that a profile's tables give the ECE with so many bins.

    Raises
    ------
    CalibrationInputError
        They do not.
    """
    _check("ece", bins, TABLE_BINS)


def _check(objective: str, bins: int, multiple: int | None) -> None:
    check_one_of("objective", objective, OBJECTIVES)
    check_range("bins", bins, 1, MAX_BINS)
    if multiple is not None and multiple % bins:
        exact = ", ".join(str(m) for m in range(1, multiple + 1) if multiple % m == 0)
        detail = f"Received bins={bins}; a profile's tables give the ECE with {exact} bins."
        raise CalibrationInputError.at("/bins", "bins_not_exact", detail)
