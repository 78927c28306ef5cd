"""Calibration error (CE_phi) of the alpha-calibrated prediction of disagreement, alpha0 / (alpha0 + 1) (1 - sum p^2), as in the paper."""

from __future__ import annotations

import math

from calibrant.core.view import View
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.raters.belief import (
    CONCENTRATION,
    TEMPERATURE,
    Belief,
    calibrated_table,
    tempered,
)
from calibrant.raters.label_losses_by_row import LOSS_WEIGHT, Choice, n_one_vote


def calibrated_disagreement_ce(view: View, seed: int) -> Estimate:
    """Return CE_phi under the query's concentration and temperature, on bins of the prediction under both.

    Without a concentration it is `disagreement_ce`. From raw rows it is exact; `error_estimate` is that of stored cells.

    Raises
    ------
    NoResultError
        No prediction has two ratings, the state does not hold the bins, or a temperature without raw rows.
    """
    choice, belief, view = Choice.of(view), Belief.of(view), tempered(view)
    table, error = calibrated_table(view, belief.factor, choice.by_ratings)
    extra = {
        "plugin": math.sqrt(max(table.calibration_plugin(), 0.0)),
        "calibration_loss": table.calibration(),
        "calibration_loss_plugin": table.calibration_plugin(),
        **belief.named,
        "bins": view.pane_query.bins,
        "n_single_bins": int((table.count == 1).sum()),
        "loss_weight": choice.named["loss_weight"],
        "n_one_vote": n_one_vote(view),
        **({"error_estimate": error} if view.batch_sums is None else {}),
        "interval_reason": "not_replicated",
    }
    return Estimate(table.error(), extra=extra)


METRIC = FunctionMetric(
    slug="calibrated_disagreement_ce",
    title="Disagreement calibration error on bins of the calibrated prediction",
    needs=("label_uncertainty", "disagreement"),
    formula="sqrt(calibration part of the disagreement loss), bins of alpha0 / (alpha0 + 1) (1 - Σ_k p_k^2)",
    search_words={"CE_phi after alpha-calibration": "concentration=", "α-calibration": ""},
    source="Mimori et al. (AISTATS 2021), sections 4, 5.3 and Table 1",
    options=("bins", "edges"),
    own_options=(LOSS_WEIGHT, CONCENTRATION, TEMPERATURE),
    exact=False,
    compute=calibrated_disagreement_ce,
)
