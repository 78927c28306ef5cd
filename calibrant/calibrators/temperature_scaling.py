"""Temperature scaling as a map: log-probabilities divided by T; for binary models, the log odds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.accumulators.temperature import BETAS
from calibrant.calibrators.cell_fits import log_odds, logistic, probabilities_of, why_no_fit
from calibrant.calibrators.labelled_rows import about_sample
from calibrant.calibrators.logistic import fit_scale
from calibrant.calibrators.map_method import FitResult, MapMethod, Options
from calibrant.calibrators.temperature.fit import fit_rows, fit_temperature
from calibrant.calibrators.temperature.fit_result import PROOF
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells
from calibrant.core.view import NoResultError, View

REPORTED = (
    "standard_error",
    "interval",
    "at_most",
    "at_bound",
    "bound",
    "verdict",
    "n_zero_probability",
    *PROOF,
)


def solve(cells: Cells, options: Options) -> FitResult:
    """Fit T of two classes to cells of the positive class; used for held-out halves.

    Parameters
    ----------
    cells : Cells, non-empty
    options : not used

    Returns
    -------
    FitResult
    """
    reason = why_no_fit(cells)
    if reason == "no_labels":
        return FitResult(None, reason)
    inside = (cells.mean > 0.0) & (cells.mean < 1.0)
    odds, weight, correct = (
        log_odds(cells.mean)[inside],
        cells.weight[inside],
        cells.correct[inside],
    )
    if not np.abs(odds).max(initial=0.0) > 0.0:
        return FitResult(None, "flat")

    bounds = float(BETAS[0]), float(BETAS[-1])
    beta = fit_scale(odds, correct, weight, bounds)
    if beta in bounds:
        return FitResult({"temperature": 1.0 / beta}, None, {"at_bound": True}, ["at_bound"])
    return FitResult({"temperature": 1.0 / beta})


def solve_view(view: View, options: Options) -> FitResult:
    """Fit T by NLL to the pane's profile; to the stored sample if it is complete, or to raw rows if available.

    Separable if the most probable class is always correct: a T at the lower end of the range would make every probability
    0 or 1.

    Raises
    ------
    NoResultError
        The window contains plain histograms.
    """
    raters, ci = view.pane_query.raters, view.pane_query.ci
    if view.batch_sums is not None:
        result, _ = fit_rows(view.batch_sums.complete_batch, raters=raters, ci=ci)
    else:
        result = fit_temperature(view.pane, raters=raters, ci=ci, rows_if_complete=True)
    if result["reason"] == "not_in_histogram":
        raise NoResultError(result["reason"], result["detail"], result["n_excluded"])
    details = {name: result[name] for name in REPORTED}
    if result["temperature"] is None:
        return FitResult(None, result["reason"], details)
    if result["method"] == "sample":
        details |= {"fitted_to": "sample", "sample": about_sample(view.pane)}
    details |= {"error_estimate": result["error_estimate"]["temperature"]}
    if view.scope == "top_label":
        details |= {"before": result["before"], "after": result["after"]}
    warnings = [] if result["verdict"] == "ok" else [result["verdict"]]
    return FitResult({"temperature": result["temperature"]}, None, details, warnings)


def at(parameters: Mapping[str, Any], score: Floats) -> Floats:
    """Return 1 / (1 + exp(-logit(p) / T)) of two classes; 0 and 1 stay unchanged."""
    inside = (score > 0.0) & (score < 1.0)
    safe = np.where(inside, score, 0.5)
    odds = np.log(safe) - np.log1p(-safe)
    return np.asarray(np.where(inside, logistic(odds / parameters["temperature"]), score))


def at_rows(parameters: Mapping[str, Any], logits: Floats) -> Floats:
    """Return softmax(z / T) of rows of logits or log-probabilities, minus infinity allowed; (n, K) to (n, K)."""
    return probabilities_of(
        (logits - logits.max(axis=1, keepdims=True)) / parameters["temperature"]
    )


MAPS = (
    MapMethod(
        slug="temperature",
        title="Temperature scaling",
        source="Guo, Pleiss, Sun, Weinberger (ICML 2017)",
        input="logit",
        objective="nll",
        scopes=("full", "positive"),
        solve=solve,
        at=at,
        solve_view=solve_view,
        at_rows=at_rows,
    ),
)
