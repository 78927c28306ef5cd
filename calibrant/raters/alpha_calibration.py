"""Comparison of methods that predict rater disagreement: raw, alpha, temperature, both in sequence, both at once, a head on features.

Which of them predicts disagreement best depends on the data. A concentration can only lower the predicted disagreement,
and so helps if raters agree more than predicted and harms if they do not. All methods are therefore fitted on one half of
the units and compared on the other, and the best one is reported.

Source: Mimori, Sasada, Matsui, Sato, Diagnostic Uncertainty Calibration (AISTATS 2021), sections 5.1 to 5.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibrators.row_losses import mean_by_unit
from calibrant.core.arrays import Floats
from calibrant.core.batch import Batch
from calibrant.core.documents import Result, Row
from calibrant.core.errors import CalibrationInputError, check_one_of
from calibrant.core.view import NoResultError
from calibrant.raters.alpha_fits import LOG_ALPHA, METHODS, Fit, fit_method
from calibrant.raters.concentration import PENALTY
from calibrant.raters.disagreement_tables import table_of_rows
from calibrant.raters.rated_rows import RatedRows, features_of, rated_rows

CRITERIA = ("disagreement_loss", "epistemic_loss_after_one_vote")
MIN_UNITS = 20
ROWS_A_COEFFICIENT = 2


def compared(batch: Batch, **options: Any) -> Result:
    """Return the result of `compare_calibrations`; if it fails, `best` is None with a `reason` and a `detail`.

    Examples
    --------
    >>> compared(Batch.from_columns({"probabilities": [[0.5, 0.5]], "labels": [0]}).batch)["reason"]
    'one_vote'
    """
    try:
        return {"reason": None, **compare_calibrations(batch, **options)}
    except NoResultError as error:
        return {"best": None, "reason": error.reason, "detail": error.detail}


def compare_calibrations(
    batch: Batch,
    *,
    penalty: float = PENALTY,
    criterion: str = "disagreement_loss",
    bins: int = 15,
    ci: float = 0.95,
    features: ArrayLike | None = None,
    parts: Sequence[str] | None = None,
    instances: bool = False,
) -> Result:
    """Compare the methods of alpha-calibration on the same validation part and report the best.

    Parameters
    ----------
    batch : Batch, raw rows or a pane's stored sample
    penalty : factor of the mean of (log alpha0)^2
    criterion : one of `CRITERIA`, by which the best is selected
    bins : equal-width bins of the predicted disagreement for `disagreement_ce`
    ci : nominal coverage of the gains over raw
    features : float64 (n, n_features) for the head. Default: log-probabilities.
    parts : "fit" or "score" for every row: the methods are fitted on one and scored on the other. Default: two halves of
        the units, by their hash.
    instances : whether to return the head's alpha0 of every row, rated or not

    Returns
    -------
    dict with `best`, `criterion`, `n_fit`, `n_validation`, `n_one_vote`, `n_zero_probability`, and `methods`: for each
    of `METHODS` the `disagreement_loss`, `disagreement_ce` (on bins of the prediction before alpha0),
    `calibrated_disagreement_ce` (on those under it, as in the paper), `epistemic_loss` and
    `epistemic_loss_after_one_vote` of the validation part, the `gain` over raw by the criterion with its interval,
    `temperature`, `concentration` (of the head: its median), `coefficients` and `proof` from the other part. A head with
    fewer than two units per coefficient there is not fitted (`reason` is "few_rows"). With `instances`, `instances` has
    `concentration`, one number per row; None if the head is not fitted.

    Raises
    ------
    NoResultError
        `one_vote`, `zero_probability` or `few_units`.
    CalibrationInputError
        An option outside its range.
    """
    check_one_of("criterion", criterion, CRITERIA)
    if not 0.0 <= penalty <= 1e6:
        raise CalibrationInputError.at(
            "/penalty", "range", f"Received penalty={penalty}; expected 0 to 1e6."
        )
    rows = rated_rows(batch, features, parts)
    _reject(rows)
    fit_part, validation = (rows.take(np.flatnonzero(rows.half == side)) for side in (0, 1))
    fits = {
        method: fit_method(method, fit_part, penalty)
        for method in METHODS
        if method != "head" or _fits_a_head(fit_part)
    }
    losses = {method: row_losses(fit, validation) for method, fit in fits.items()}
    total = float(validation.weight.sum())
    shown: Row = {}
    for method, fit in fits.items():
        means = {
            name: float(validation.weight @ each) / total for name, each in losses[method].items()
        }
        predicted = _predicted(fit, validation)
        difference = (losses["raw"][criterion] - losses[method][criterion]) * validation.weight
        alpha = fit.concentration(validation)
        shown[method] = {
            **means,
            **{
                name: table_of_rows(
                    predicted,
                    validation.disagreement,
                    bins,
                    weight=validation.weight,
                    score=np.clip(score, 0.0, 1.0),
                ).error()
                for name, score in (
                    ("disagreement_ce", _point(fit, validation)),
                    ("calibrated_disagreement_ce", predicted),
                )
            },
            "gain": mean_by_unit(difference, validation.weight, validation.unit, ci),
            "temperature": float(np.exp(-fit.log_beta)),
            "concentration": None if alpha is None else float(np.median(alpha)),
            "coefficients": _coefficients(fit) if method == "head" else None,
            "proof": fit.proof or None,
        }
    best = min(shown, key=lambda method: shown[method][criterion])
    shown |= {method: {"reason": "few_rows"} for method in METHODS if method not in shown}
    return {
        "best": best,
        "criterion": criterion,
        "penalty": penalty,
        "bins": bins,
        "ci": ci,
        "n_fit": len(fit_part),
        "n_validation": len(validation),
        "n_one_vote": rows.n_one_vote,
        "n_zero_probability": rows.n_zero_probability,
        "split": "halves of the units, by hash" if parts is None else "parts",
        "methods": shown,
        **({"instances": _instances(fits, batch, features)} if instances else {}),
    }


def row_losses(fit: Fit, rows: RatedRows) -> dict[str, Floats]:
    """Return unbiased losses of each row, (n,) each: of predicted disagreement, of probabilities before and after one rating.

    After one rating the error is alpha0 / (alpha0 + 1) of the prediction's and 1 / (alpha0 + 1) of the rating's.
    """
    n = rows.total[:, None]
    share, observed = rows.ratings / n, rows.disagreement
    predicted = _predicted(fit, rows)
    chance = (share * (1.0 - share) / (n - 1.0)).sum(axis=1)
    epistemic = ((share - fit.mean(rows)) ** 2).sum(axis=1) - chance
    alpha = fit.concentration(rows)
    pull = np.ones(len(rows)) if alpha is None else alpha / (alpha + 1.0)
    return {
        "disagreement_loss": predicted**2 - 2.0 * predicted * observed + observed,
        "epistemic_loss": epistemic,
        "epistemic_loss_after_one_vote": pull**2 * epistemic + (1.0 - pull) ** 2 * observed,
    }


def _instances(
    fits: dict[str, Fit], batch: Batch, features: ArrayLike | None
) -> dict[str, list[float]] | None:
    """Return alpha0 of every row from the fitted head, new rows without a rating included."""
    if "head" not in fits:
        return None
    alpha = fits["head"].concentration_of(features_of(batch, features))
    assert alpha is not None
    return {"concentration": [float(each) for each in alpha]}


def _fits_a_head(rows: RatedRows) -> bool:
    n_coefficients: int = rows.features.shape[1] + 1
    n_units = len(np.unique(rows.unit))
    return n_units >= ROWS_A_COEFFICIENT * n_coefficients


def _reject(rows: RatedRows) -> None:
    if not len(rows):
        if rows.n_zero_probability:
            detail = "every prediction has a rating of a class with probability 0"
            raise NoResultError("zero_probability", detail)
        raise NoResultError(
            "one_vote", "one rating per prediction leaves the concentration unidentified"
        )
    if min(len(np.unique(rows.unit[rows.half == side])) for side in (0, 1)) < MIN_UNITS:
        detail = f"fewer than {MIN_UNITS} units with two ratings in a half of the data"
        raise NoResultError("few_units", detail)


def _predicted(fit: Fit, rows: RatedRows) -> Floats:
    """Return the predicted disagreement, (n,)."""
    alpha, point = fit.concentration(rows), _point(fit, rows)
    return point if alpha is None else np.asarray(alpha / (alpha + 1.0) * point)


def _point(fit: Fit, rows: RatedRows) -> Floats:
    """Return the disagreement that the probabilities alone predict, (n,)."""
    mean = fit.mean(rows)
    return np.asarray(1.0 - np.einsum("nk,nk->n", mean, mean))


def _coefficients(fit: Fit) -> Result | None:
    """Return coefficients of log alpha0 on the features in their original scale."""
    if fit.coefficients is None:
        return None
    slopes = fit.coefficients[:-1] / fit.scale
    intercept = float(fit.coefficients[-1] - slopes @ fit.middle)
    return {"slopes": slopes.tolist(), "intercept": intercept, "log_bounds": list(LOG_ALPHA)}
