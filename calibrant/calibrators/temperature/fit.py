"""Temperature scaling: the T for which softmax(z / T) fits the labels best, from a pane or from raw rows.

NLL and Brier are minimised over T in [1/32, 32], ECE over [0.5, 10] in steps of .005. If the optimum is at an
end or the data cannot determine it, the result says so explicitly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.accumulators.counts import Counts
from calibrant.accumulators.temperature import BETAS, TABLE_BINS, TemperatureProfile
from calibrant.calibrators.temperature.curve import Curve, Minimum
from calibrant.calibrators.temperature.row_curve import RowCurve
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import Filling
from calibrant.core.errors import CalibrationInputError
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.spec import PaneSpec
from calibrant.core.view import NotAnswerable, View

Floats = NDArray[np.float64]
OBJECTIVES = ("nll", "brier", "ece")
NEEDS = ("counts", "histograms", "temperature")
ECE_TEMPERATURES = np.arange(100, 2001) / 200.0
PROOF = ("gradient_norm", "iterations", "objective_before", "objective_after")
MIN_UNITS = 20
ROW_PLATEAU = 1e-3
FLAT_ECE = 1e-8
VERDICTS = {
    "ok": "the data determine the temperature",
    "at_lower_bound": "the loss still decreases at the smallest temperature: the most probable class is (nearly) always "
    "correct, so no sharpness is too much for these labels",
    "at_upper_bound": "the loss still decreases at the largest temperature: the labels look unrelated to the "
    "probabilities",
    "flat": "the loss does not depend on the temperature: every prediction is uniform, or certain",
    "unsettled": "the interval covers every temperature considered: the data do not determine one",
    "few_units": f"fewer than {MIN_UNITS} independent units: the interval is not reliable",
    "no_labels": "no labelled prediction has weight here",
    "all_zero_probability": "every rating is of a class with probability 0, which no temperature changes",
}


def fit_temperature(
    pane: Pane,
    *,
    objective: str = "nll",
    raters: str = "pooled",
    ci: float = 0.95,
    bins: int = 15,
    rows_if_complete: bool = False,
) -> dict[str, Any]:
    """Fit a temperature to a pane's stored profile, without raw rows.

    Parameters
    ----------
    pane : Pane with the accumulators in `NEEDS`
    objective : "nll" (recommended), "brier" or "ece"
    raters : label policy of the fit; T depends on it
    ci : nominal coverage of the interval, in [0.5, 1)
    bins : equal-width bins (right edges) of the ECE; a divisor of 60
    rows_if_complete : fit to the rows of the stored sample if it has every labelled prediction; `method` is "sample"

    Returns
    -------
    dict of plain values. `temperature` is None with a `reason` if there is none; `verdict` is a code of `VERDICTS`,
    `detail` its sentence. `interval` is a Wald interval of log T; `standard_error` is T's by the delta method from the
    sandwich sum (d NLL)^2 / (sum d2 NLL)^2 over units, or None with a `standard_error_reason`: a pane does not store
    the terms for Brier and ECE. `before` is at T = 1 and `after` at the fitted T, by the same `bins`, `edges`, `scope`
    and `method`. `gradient_norm` is the derivative of the mean loss in log T at the fit (0 at a bound, None for ECE, which
    is searched), `iterations` the number of steps or of temperatures tried. `curve` is at the stored temperatures.
    `error_bound` estimates the interpolation error: the relative error of T and the error of `after.ece`;
    `plateau` are the temperatures whose ECE is as low within that error.

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
    about = _about(pane.spec, pane.counts, objective, raters, ci, bins, "profile")
    try:
        view.refuse_histograms()
    except NotAnswerable as fault:
        reason = {"reason": fault.reason, "verdict": fault.reason, "detail": fault.detail}
        return about | _nothing() | reason | {"n_excluded": fault.n_excluded}
    if rows_if_complete and _is_complete(pane):
        exact = fit_temperature_exact(
            pane.sample.batch(), objective=objective, raters=raters, ci=ci, bins=bins
        )
        counted = {name: about[name] for name in ("n", "n_predictions", "n_ratings", "n_units")}
        return exact | counted | {"method": "sample"}
    profile = pane["temperature"]
    assert isinstance(profile, TemperatureProfile)
    return _answer(about, lambda: Curve(profile, view.policy, bins), profile, view.policy)


def _is_complete(pane: Pane) -> bool:
    """Return whether the stored sample is every labelled prediction, each as it was sent."""
    if not pane.keeps("sample"):
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
) -> dict[str, Any]:
    """Fit a temperature to raw rows: NLL and Brier by an exact solve, ECE by exhaustive search in steps of .005.

    Parameters
    ----------
    batch : Batch
    objective, raters, ci : as in `fit_temperature`
    bins : equal-width bins (right edges) of the ECE, any number

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
    question = PaneQuery(raters=raters, ci=ci).check(spec)
    filling = Filling(batch)
    profile, counts = TemperatureProfile(spec), Counts(spec)
    profile.fill(filling)
    counts.fill(filling)
    policy = View(Pane(spec), question).policy
    about = _about(spec, counts.named(), objective, raters, ci, bins, "raw")
    return _answer(about, lambda: RowCurve(profile, filling, policy, bins), profile, policy)


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
        "edges": "right",
        "ci": ci,
        "range": [low, high],
        "n": counts["n_labelled"],
        "n_predictions": counts["n_predictions"],
        "n_ratings": counts["n_ratings"],
        "n_units": counts["n_units"],
        "n_zero_probability": 0,
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
        "error_bound": None,
        **dict.fromkeys(PROOF),
    }


def _answer(
    about: dict[str, Any], make: Any, profile: TemperatureProfile, policy: int
) -> dict[str, Any]:
    if not about["n"]:
        return about | _nothing() | _said("no_labels")
    probe = Curve(profile, policy, 1)
    about |= {"n_zero_probability": probe.n_zero_probability}
    if not probe.weight_all > 0.0:
        return about | _nothing() | _said("no_labels")
    if not probe.weight > 0.0:
        return about | _nothing() | _said("all_zero_probability")
    curve: Curve = make()
    before = _losses(curve, 1.0)
    known: dict[str, Any] = {"before": before, "curve": _points(curve)}
    fitted = _fitted_by_ece(curve) if about["objective"] == "ece" else _fitted(curve, about)
    if fitted is None:
        return about | _nothing() | known | _said("flat")
    beta = fitted["inverse_temperature"]
    after = _losses(curve, beta)
    result = about | _nothing() | known | {"after": after} | fitted
    result["objective_before"] = before[about["objective"]]
    result["objective_after"] = after[about["objective"]]
    result["error_bound"] = {"temperature": fitted["error_bound"], "ece": curve.ece_error(beta)}
    return result | _verdict(result)


def _said(word: str) -> dict[str, Any]:
    return {"verdict": word, "reason": word, "detail": VERDICTS[word]}


def _verdict(result: dict[str, Any]) -> dict[str, Any]:
    word = "ok"
    low, high = result["range"]
    if result["at_bound"]:
        word = f"at_{result['bound']}_bound"
    elif result["interval"] and result["interval"][0] <= low and result["interval"][1] >= high:
        word = "unsettled"
    elif result["n_units"] < MIN_UNITS:
        word = "few_units"
    return {"verdict": word, "reason": None, "detail": VERDICTS[word]}


def _losses(curve: Curve, beta: float) -> dict[str, float]:
    return {"nll": curve.nll(beta), "brier": curve.brier(beta), "ece": curve.ece(beta)}


def _points(curve: Curve) -> dict[str, list[float]]:
    """Return the losses at the stored temperatures, smallest first."""
    return {
        "temperature": (1.0 / BETAS[::-1]).tolist(),
        "nll": curve.nll_points[0, ::-1].tolist(),
        "brier": curve.brier_points[0, ::-1].tolist(),
        "ece": curve.ece_points[::-1].tolist(),
    }


def _fitted(curve: Curve, about: dict[str, Any]) -> dict[str, Any] | None:
    """Fit by NLL or Brier."""
    at = curve.minimum(about["objective"])
    if at is None:
        return None
    fitted: dict[str, Any] = {
        "temperature": 1.0 / at.beta,
        "inverse_temperature": at.beta,
        "at_bound": at.bound is not None,
        "bound": at.bound,
        "gradient_norm": 0.0 if at.bound else abs(curve.slope(about["objective"], at.beta)),
        "iterations": at.iterations,
        "error_bound": curve.root_error(about["objective"], at),
    }
    return fitted | _spread(curve, at, about)


def _spread(curve: Curve, at: Minimum, about: dict[str, Any]) -> dict[str, Any]:
    """Return standard error and interval, or the reason why there are none."""
    if at.bound is not None:
        return {"standard_error_reason": "at_bound"}
    variance = curve.variance(about["objective"], at.beta)
    if variance is None:
        kept = about["objective"] == "nll" or about["method"] == "raw"
        return {"standard_error_reason": "flat" if kept else "not_kept"}
    if not variance > 0.0:
        return {"standard_error_reason": "no_variation"}
    relative = float(np.sqrt(variance)) / at.beta
    reach = float(np.exp(min(-scipy.special.ndtri((1.0 - about["ci"]) / 2.0) * relative, 700.0)))
    return {
        "standard_error": relative / at.beta,
        "standard_error_method": "sandwich by unit, delta method",
        "interval": [1.0 / at.beta / reach, 1.0 / at.beta * reach],
        "interval_method": "wald, log temperature",
    }


def _fitted_by_ece(curve: Curve) -> dict[str, Any] | None:
    """Return the minimal ECE on the grid of temperatures, with the temperatures around it that equal it within the error."""
    ece = curve.eces(1.0 / ECE_TEMPERATURES[::-1])[::-1]
    if not np.ptp(ece) > FLAT_ECE:
        return None
    best = int(np.argmin(ece))
    temperature = float(ECE_TEMPERATURES[best])
    tolerance = max(curve.ece_error(1.0 / temperature), ROW_PLATEAU)
    worse = np.flatnonzero(ece > ece[best] + tolerance)
    low = worse[worse < best].max(initial=-1) + 1
    high = worse[worse > best].min(initial=len(ece)) - 1
    ends = {0: "lower", len(ece) - 1: "upper"}
    return {
        "temperature": temperature,
        "inverse_temperature": 1.0 / temperature,
        "standard_error_reason": "not_smooth",
        "at_bound": best in ends,
        "bound": ends.get(best),
        "iterations": len(ece),
        "plateau": [float(ECE_TEMPERATURES[low]), float(ECE_TEMPERATURES[high])],
        "plateau_tolerance": tolerance,
        "error_bound": None if curve.method == "profile" else 0.0,
    }
