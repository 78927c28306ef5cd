"""Accuracy with which a model's probabilities predict rater disagreement, before and after a fitted concentration.

The prediction of disagreement is 1 - sum z^2, or alpha0 / (alpha0 + 1) times it under a Dirichlet of
concentration alpha0. A concentration can only lower it: if raters disagree as much as predicted or more,
alpha-calibration makes it worse, and the result contains a warning.

Source: Mimori, Sasada, Matsui, Sato (AISTATS 2021), eqs. 15 to 19 and Theorem 1.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from calibrant.core.documents import Result, Row
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.inference.seeds import SEED
from calibrant.raters.belief import CONCENTRATION, Belief, calibrated_table
from calibrant.raters.concentration import PENALTY, Concentration, fit_concentration
from calibrant.raters.disagreement_tables import (
    DisagreementTable,
    calibration_interval,
    disagreement_loss_interval,
    disagreement_table,
)
from calibrant.raters.label_losses_by_bin import share
from calibrant.raters.label_losses_by_row import Choice, n_one_vote, row_interval, rows_with_several
from calibrant.raters.posterior import posterior_epistemic_loss

NEEDS = frozenset({"counts", "histograms", "label_uncertainty", "disagreement", "concentration"})
PENALTY_OF_FIT = Option(
    "penalty", PENALTY, "Pull of the concentration towards one.", low=0.0, high=1e6
)


@dataclass(frozen=True)
class Thresholds:
    """Theorem 1 for one group: the concentrations that help.

    Attributes
    ----------
    u_q : expected sum of squares of the label distribution, 1 - observed disagreement
    s_z : sum of squares of the prediction, 1 - predicted disagreement
    order : "right" if u_q > s_z, so that some concentration helps; else "wrong"
    best, from_ : the best concentration for disagreement, and the minimum that improves on none; None if the
        order is wrong
    best_posterior, from_posterior : the same for class probabilities after one rating; None if EL is not positive
    """

    u_q: float
    s_z: float
    order: str
    best: float | None
    from_: float | None
    best_posterior: float | None
    from_posterior: float | None


def thresholds(observed: float, predicted: float, epistemic: float) -> Thresholds:
    """Apply Theorem 1 of Mimori et al. to a group's means.

    Parameters
    ----------
    observed, predicted : disagreement of raters and of the prediction, 1 - sum z^2
    epistemic : EL of the group

    Examples
    --------
    >>> found = thresholds(observed=0.2, predicted=0.3, epistemic=0.1)
    >>> round(found.best, 6), round(found.from_, 6), round(found.best_posterior, 6)
    (2.0, 0.5, 2.0)
    """
    u_q, s_z = 1.0 - observed, 1.0 - predicted
    right = u_q > s_z
    return Thresholds(
        u_q=u_q,
        s_z=s_z,
        order="right" if right else "wrong",
        best=observed / (u_q - s_z) if right else None,
        from_=max((1.0 - 2.0 * u_q + s_z) / (2.0 * (u_q - s_z)), 0.0) if right else None,
        best_posterior=observed / epistemic if epistemic > 0 else None,
        from_posterior=max((observed - epistemic) / (2.0 * epistemic), 0.0)
        if epistemic > 0
        else None,
    )


def disagreement_report(view: View, seed: int = SEED) -> Result:
    """Return all results on rater disagreement, as a JSON-able object.

    Options of the query: `bins`, `edges`, `loss_weight` (1 or n), `penalty` of the concentration's fit, and
    `concentration`, of which `given` is the result.
    `before` and `after` use the same bins: those of the prediction before. The concentration shrinks their limits
    with the prediction. `calibrated_disagreement_ce` uses bins of the prediction under the concentration.

    Raises
    ------
    NoResultError
        No prediction has two ratings, or plain histograms.
    CalibrationInputError
        An option outside its range.
    """
    choice = Choice.of(view)
    table = disagreement_table(view, choice.by_ratings)
    rows = rows_with_several(view, choice)
    fitted = _fitted(view)
    epistemic, irreducible = rows.mean(rows.epistemic), rows.mean(rows.irreducible)
    loss_interval, _ = disagreement_loss_interval(view, choice)
    calibration_bounds, about = calibration_interval(view, choice, seed)
    result: Result = {
        "n": int(table.count.sum()),
        "n_labelled": view.counts["n_labelled"],
        "n_ratings": view.counts["n_ratings"],
        "n_one_vote": n_one_vote(view),
        "rater_disagreement": irreducible,
        "rater_disagreement_interval": _listed(row_interval(view, rows.irreducible, rows)[0]),
        "mean_disagreement": float(table.sums["predicted"].sum() / table.weight.sum()),
        "disagreement_loss": table.loss(),
        "disagreement_loss_interval": _listed(loss_interval),
        "calibration_loss": table.calibration(),
        "calibration_loss_plugin": table.calibration_plugin(),
        "calibration_loss_interval": _listed(calibration_bounds),
        "disagreement_ce": table.error(),
        "epistemic_loss": epistemic,
        "loss_weight": choice.named["loss_weight"],
        "bins": view.pane_query.bins,
        "reliability": _reliability(table, view.pane_query.bins, view.pane_query.ci),
        "ci": view.pane_query.ci,
        "concentration": None,
        "reason": "zero_probability",
        "before": _state_of(table, 1.0, epistemic, irreducible, None),
        "after": None,
        "warnings": [],
    } | about
    given = float(CONCENTRATION.of(view.pane_query))
    if given:
        named = Belief(given)
        result["given"] = _state_of(table, named.factor, epistemic, irreducible, given)
        result["given"] |= _on_calibrated_bins(view, named.factor, choice) | {
            "concentration": given
        }
    if fitted is not None:
        factor = fitted.value / (fitted.value + 1.0)
        result["concentration"] = asdict(fitted) | {"interval": _listed(fitted.interval)}
        result["after"] = _state_of(table, factor, epistemic, irreducible, fitted.value)
        result["after"] |= _on_calibrated_bins(view, factor, choice)
        result["warnings"] = _warnings(table, fitted)
        del result["reason"]
    return result


def _fitted(view: View) -> Concentration | None:
    """Return the concentration; None if every prediction has a rating of a class with probability 0."""
    penalty = float(PENALTY_OF_FIT.of(view.pane_query))
    try:
        return fit_concentration(view.pane["concentration"], penalty, view.pane_query.ci)
    except NoResultError as rejection:
        if rejection.reason != "zero_probability":
            raise
        return None


def _state_of(
    table: DisagreementTable,
    factor: float,
    epistemic: float,
    irreducible: float,
    concentration: float | None,
) -> Result:
    posterior = None
    if concentration is not None:
        posterior = posterior_epistemic_loss(epistemic, irreducible, concentration)
    return {
        "mean_disagreement": factor * float(table.sums["predicted"].sum() / table.weight.sum()),
        "disagreement_loss": table.loss(factor),
        "calibration_loss": table.calibration(factor),
        "disagreement_ce": table.error(factor),
        "epistemic_loss": epistemic,
        "epistemic_loss_after_one_vote": posterior,
        "bins_of": "disagreement predicted before",
    }


def _on_calibrated_bins(view: View, factor: float, choice: Choice) -> Result:
    """Return CE_phi as the paper has it: on bins of the prediction under the concentration."""
    table, error = calibrated_table(view, factor, choice.by_ratings)
    found: Result = {"calibrated_disagreement_ce": table.error()}
    return found | ({"error_estimate": error} if view.batch_sums is None else {})


def _reliability(table: DisagreementTable, bins: int, ci: float) -> list[Row]:
    """Return one object per bin; empty bins have n 0 and nulls."""
    rows: list[Row] = []
    lower, upper = table.intervals(ci)
    for i, weight in enumerate(table.weight.tolist()):
        row: Row = {
            "lower": i / bins,
            "upper": (i + 1) / bins,
            "n": int(table.count[i]),
            "weight": weight,
        }
        if not weight:
            rows.append(row | dict.fromkeys(("predicted", "observed", "interval", "thresholds")))
            continue
        predicted, observed, epistemic = (
            float(table.sums[name][i]) / weight
            for name in ("predicted", "disagreement", "epistemic")
        )
        found = asdict(thresholds(observed, predicted, epistemic))
        found["from"] = found.pop("from_")
        row |= {"predicted": predicted, "observed": observed}
        rows.append(row | {"interval": [float(lower[i]), float(upper[i])], "thresholds": found})
    return rows


def _warnings(table: DisagreementTable, fitted: Concentration) -> list[Row]:
    found: list[Row] = []
    wrong = (table.weight > 0) & (table.gap() >= 0)
    if wrong.any():
        found.append(
            {
                "rule": "order_wrong",
                "detail": "raters disagree at least as much as predicted; a concentration makes it worse",
                "bins": np.flatnonzero(wrong).tolist(),
                "share": float(share(table.weight)[wrong].sum()),
            }
        )
    if table.loss(fitted.value / (fitted.value + 1.0)) > table.loss():
        detail = "the fitted concentration worsens the disagreement loss; rescale the probabilities first"
        found.append({"rule": "loss_worse", "detail": detail})
    if fitted.dispersion == "none detected":
        detail = "ratings differ within predictions as much as by chance alone; the penalty determines the value"
        found.append({"rule": "none_detected", "detail": detail})
    return found


def _listed(bounds: tuple[float, float] | None) -> list[float] | None:
    return None if bounds is None else list(bounds)
