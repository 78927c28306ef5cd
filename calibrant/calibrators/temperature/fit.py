"""Temperature scaling: the T for which softmax(z / T) fits the labels best, from a pane or from raw rows.

NLL and Brier are minimised over T in [1/32, 32], ECE over [0.5, 10] in steps of .005. If the optimum is at an
end or the data cannot determine it, the result says so explicitly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.accumulators.counts import Counts
from calibrant.accumulators.temperature import BETAS, TABLE_BINS, TemperatureProfile
from calibrant.calibrators.temperature.curve import Curve, Minimum
from calibrant.calibrators.temperature.ece_fit import ECE_TEMPERATURES, fitted_by_ece
from calibrant.calibrators.temperature.interval import METHOD, at_most, interval_of, why_none
from calibrant.calibrators.temperature.row_curve import RowCurve
from calibrant.calibrators.temperature.verdicts import verdict_of, without_temperature
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import Filling
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import NoResultError, View

OBJECTIVES = ("nll", "brier", "ece")
# Above this number of rows the interpolation error of the profile (relative, below 2e-5) is under a thousandth of the standard
# error of T, and a fit to the rows takes a tenth of a second.
MAX_EXACT_ROWS = 1500
PROOF = ("gradient_norm", "iterations", "objective_before", "objective_after")


def fit_temperature(
    pane: Pane,
    *,
    objective: str = "nll",
    raters: str = "pooled",
    ci: float = 0.95,
    bins: int = 15,
    min_count: float = 0.0,
    rows_if_complete: bool = False,
) -> dict[str, Any]:
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
    about = _about(pane.spec, pane.counts, objective, raters, ci, bins, min_count, "profile")
    try:
        view.reject_histograms()
    except NoResultError as error:
        reason = {"reason": error.reason, "verdict": error.reason, "detail": error.detail}
        return about | _nothing() | reason | {"n_excluded": error.n_excluded}
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
    found = _result(
        about, lambda: Curve(profile, view.policy, bins, min_count), profile, view.policy
    )
    return found | (_limit(view, ci) if found["at_most"] is not None else {})


def _limit(view: View, ci: float) -> dict[str, Any]:
    """Return `at_most` where units may differ in weight: that of the stored sample's units, whose labels are some of the window's.

    The profile has the mean loss by weight alone, from which the sum of the units' losses follows only if they weigh alike.
    """
    pane = view.pane
    if _weigh_alike(view):
        return {}
    if "sample" not in pane.names or not pane.sample.n:
        return {"at_most": None, "at_most_reason": "unequal_units"}
    filling = Filling(pane.sample.batch())
    profile = TemperatureProfile(pane.spec)
    profile.fill(filling)
    curve = RowCurve(profile, filling, view.policy, 1)
    limit = at_most(curve, n_units=filling.n_units, ci=ci)
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


def fit_temperature_exact(
    batch: Batch,
    *,
    objective: str = "nll",
    raters: str = "pooled",
    ci: float = 0.95,
    bins: int = 15,
    min_count: float = 0.0,
) -> dict[str, Any]:
    """Fit a temperature to raw rows: NLL and Brier by an exact solve, ECE by exhaustive search in steps of .005.

    Parameters
    ----------
    batch : Batch
    objective, raters, ci : as in `fit_temperature`
    bins, min_count : equal-width bins (right edges) of the ECE, any number; bins with fewer samples are left out

    Returns
    -------
    dict, in the shape of `fit_temperature`; `method` is "raw", and `standard_error` is given for "brier" as well.

    Raises
    ------
    CalibrationInputError
        An option outside its range.
    """
    _check(objective, bins, None)
    spec = PaneSpec(batch.task, batch.n_classes)
    pane_query = PaneQuery(raters=raters, ci=ci).check(spec)
    filling = Filling(batch)
    profile, counts = TemperatureProfile(spec), Counts(spec)
    profile.fill(filling)
    counts.fill(filling)
    policy = View(Pane(spec), pane_query).policy
    about = _about(spec, counts.named(), objective, raters, ci, bins, min_count, "raw")
    return _result(
        about, lambda: RowCurve(profile, filling, policy, bins, min_count), profile, policy
    )


def check_ece_bins(bins: int) -> None:
    """Check that a profile's tables give the ECE with so many bins.

    Raises
    ------
    CalibrationInputError
        They do not.
    """
    _check("ece", bins, TABLE_BINS)


def _check(objective: str, bins: int, multiple: int | None) -> None:
    if objective not in OBJECTIVES:
        detail = f"Received objective {objective!r}; expected one of {', '.join(OBJECTIVES)}."
        raise CalibrationInputError.at("/objective", "one_of", detail)
    if bins < 1:
        raise CalibrationInputError.at(
            "/bins", "range", f"Received bins={bins}; expected at least 1."
        )
    if multiple is not None and multiple % bins:
        exact = ", ".join(str(m) for m in range(1, multiple + 1) if multiple % m == 0)
        detail = f"Received bins={bins}; a profile's tables give the ECE with {exact} bins."
        raise CalibrationInputError.at("/bins", "bins_not_exact", detail)


def _about(
    spec: PaneSpec,
    counts: dict[str, int],
    objective: str,
    raters: str,
    ci: float,
    bins: int,
    min_count: float,
    method: str,
) -> dict[str, Any]:
    low, high = float(1.0 / BETAS[-1]), float(1.0 / BETAS[0])
    if objective == "ece":
        low, high = float(ECE_TEMPERATURES[0]), float(ECE_TEMPERATURES[-1])
    return {
        "objective": objective,
        "raters": raters,
        "method": method,
        "scope": spec.default_scope,
        "bins": bins,
        "min_count": min_count,
        "edges": "right",
        "ci": ci,
        "range": [low, high],
        "n": counts["n_labelled"],
        "n_predictions": counts["n_predictions"],
        "n_ratings": counts["n_ratings"],
        "n_units": counts["n_units"],
        "n_zero_probability": 0,
        "n_incorrect_units": None,
    }


def _nothing() -> dict[str, Any]:
    return {
        "temperature": None,
        "inverse_temperature": None,
        "standard_error": None,
        "interval": None,
        "at_bound": False,
        "bound": None,
        "before": None,
        "after": None,
        "curve": None,
        "plateau": None,
        "at_most": None,
        "precision": None,
        "error_estimate": None,
        **dict.fromkeys(PROOF),
    }


def _result(
    about: dict[str, Any], make: Any, profile: TemperatureProfile, policy: int
) -> dict[str, Any]:
    if not about["n"]:
        return about | _nothing() | without_temperature("no_labels")
    probe = Curve(profile, policy, 1)
    about |= {
        "n_zero_probability": probe.n_zero_probability,
        "n_incorrect_units": probe.unit_counts.get("incorrect_units"),
    }
    if not probe.weight_all > 0.0:
        return about | _nothing() | without_temperature("no_labels")
    if not probe.weight > 0.0:
        return about | _nothing() | without_temperature("all_zero_probability")
    curve: Curve = make()
    before = _losses(curve, 1.0)
    known: dict[str, Any] = {"before": before, "curve": _points(curve)}
    if about["objective"] == "ece":
        fitted = fitted_by_ece(curve)
    else:
        fitted = _fitted(curve, probe, about)
    if fitted is None:
        return about | _nothing() | known | without_temperature("flat")
    if "reason" in fitted:
        return about | _nothing() | known | fitted
    beta = fitted["inverse_temperature"]
    after = _losses(curve, beta)
    result = about | _nothing() | known | {"after": after} | fitted
    result["objective_before"] = before[about["objective"]]
    result["objective_after"] = after[about["objective"]]
    result["error_estimate"] = {
        "temperature": fitted["error_estimate"],
        "ece": curve.ece_error(beta),
    }
    return result | verdict_of(result)


def _losses(curve: Curve, beta: float) -> dict[str, float | None]:
    ece = curve.ece(beta)
    return {
        "nll": curve.nll(beta),
        "brier": curve.brier(beta),
        "ece": ece if np.isfinite(ece) else None,
    }


def _points(curve: Curve) -> dict[str, list[float | None]]:
    """Return the losses at the stored temperatures, smallest first; None for an ECE without bins."""
    ece = curve.ece_points[::-1]
    return {
        "temperature": (1.0 / BETAS[::-1]).tolist(),
        "nll": curve.nll_points[0, ::-1].tolist(),
        "brier": curve.brier_points[0, ::-1].tolist(),
        "ece": [value if np.isfinite(value) else None for value in ece.tolist()],
    }


def _fitted(curve: Curve, profile: Curve, about: dict[str, Any]) -> dict[str, Any] | None:
    """Fit by NLL or Brier; the interval always comes from the profile."""
    objective = about["objective"]
    at = curve.minimum(objective)
    if at is None:
        return None
    if at.bound == "lower" and _is_separable(curve, about):
        limit = at_most(curve, n_units=about["n_units"], ci=about["ci"])
        return without_temperature("separable") | {
            "at_bound": True,
            "bound": at.bound,
            "at_most": limit,
            "interval_reason": "separable",
            "standard_error_reason": "separable",
        }
    second = curve.second_minimum(objective)
    fitted: dict[str, Any] = {
        "temperature": 1.0 / at.beta,
        "inverse_temperature": at.beta,
        "at_bound": at.bound is not None,
        "bound": at.bound,
        "gradient_norm": 0.0 if at.bound else abs(curve.slope(objective, at.beta)),
        "iterations": at.iterations,
        "error_estimate": curve.root_error(objective, at),
        "plateau": None if second is None else sorted([1.0 / at.beta, 1.0 / second.beta]),
        "precision": curve.precision if objective == "brier" else None,
    }
    return fitted | _uncertainty(curve, profile, at, about)


def _is_separable(curve: Curve, about: dict[str, Any]) -> bool:
    """Return whether no rating is of another than the most probable class; of older panes, whether NLL falls to the end."""
    incorrect = about["n_incorrect_units"]
    return bool(about["objective"] == "nll" if incorrect is None else incorrect == 0)


def _uncertainty(
    curve: Curve, profile: Curve, at: Minimum, about: dict[str, Any]
) -> dict[str, Any]:
    """Return standard error and interval, or the reason why there are none."""
    objective = about["objective"]
    reason = "at_bound" if at.bound is not None else why_none(about)
    if reason is None and curve.squares(objective, at.beta) is None:
        reason = "not_kept"
    if reason is None and not curve.total_curvature(objective, at.beta) > 0.0:
        reason = "flat"
    if reason is None and not curve.squares(objective, at.beta):
        reason = "no_variation"
    if reason is not None:
        return {"standard_error_reason": reason, "interval_reason": reason}
    variance = curve.variance(objective, at.beta)
    assert variance is not None
    interval = interval_of(profile, objective, at.beta, n_units=about["n_units"], ci=about["ci"])
    return {
        "standard_error": float(np.sqrt(variance)) / at.beta**2,
        "standard_error_method": "sandwich by unit, delta method",
        "interval": interval,
        "interval_method": METHOD,
    }
