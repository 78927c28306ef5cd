"""Metrics of 1 - sum p^2 as a prediction that two raters differ; they need two ratings per row.

The disagreement loss is its squared loss, and the calibration error (CE_phi) the root of that loss's debiased calibration part: on bins of
the prediction itself, or, as in the paper, of the alpha-calibrated one, alpha0 / (alpha0 + 1) (1 - sum p^2).
"""

from __future__ import annotations

import math

from calibrant.core.view import NoResultError, View
from calibrant.inference.pairing import Ratio
from calibrant.metrics.metric import Estimate, FunctionMetric
from calibrant.raters.belief import (
    CONCENTRATION,
    TEMPERATURE,
    Belief,
    calibrated_table,
    tempered,
)
from calibrant.raters.disagreement_tables import (
    calibration_interval,
    disagreement_loss_interval,
    disagreement_table,
)
from calibrant.raters.label_losses_by_row import LOSS_WEIGHT, Choice, n_one_vote, rows_with_several
from calibrant.raters.resampled_losses import disagreement_errors

NEEDS = ("label_uncertainty", "disagreement")
OPTIONS = (LOSS_WEIGHT, CONCENTRATION, TEMPERATURE)


def disagreement_loss(view: View, seed: int) -> Estimate:
    """Return the unbiased L_phi for phi = "two raters differ", under the query's concentration and temperature.

    Raises
    ------
    NoResultError
        No prediction has two ratings, or a temperature without raw rows.
    """
    choice, belief, view = Choice.of(view), Belief.of(view), tempered(view)
    if belief.factor == 1.0:
        rows = rows_with_several(view, choice)
        interval, about = disagreement_loss_interval(view, choice)
        value = rows.mean(rows.disagreement_loss)
    else:
        interval, about = None, {"interval_reason": "not_replicated"}
        value = disagreement_table(view, choice.by_ratings, 1).loss(belief.factor)
    extra = {
        "plugin": value,
        "loss_weight": choice.named["loss_weight"],
        "n_one_vote": n_one_vote(view),
        **belief.named,
    }
    return Estimate(value, interval=interval, extra=extra | about)


def _ratio(view: View) -> Ratio:
    if Belief.of(view).factor != 1.0:
        detail = "replicates store the loss of the prediction itself, not under a concentration"
        raise NoResultError("not_replicated", detail)
    view = tempered(view)
    rows = rows_with_several(view, Choice.of(view))
    return rows.disagreement_loss, rows.weight


def disagreement_ce(view: View, seed: int) -> Estimate:
    """Return CE_phi, with the debiased and plug-in calibration loss, under the query's concentration and temperature.

    Bins are those of the prediction itself, 1 - sum p^2; `calibrated_disagreement_ce` uses bins under the concentration.

    Raises
    ------
    NoResultError
        No prediction has two ratings, the state does not hold the bins, or a temperature without raw rows.
    """
    choice, belief, view = Choice.of(view), Belief.of(view), tempered(view)
    table, factor = disagreement_table(view, choice.by_ratings), belief.factor
    bounds, about = calibration_interval(view, choice, seed, factor)
    interval = None
    if bounds is not None:
        interval = (math.sqrt(max(bounds[0], 0.0)), math.sqrt(max(bounds[1], 0.0)))
    extra = {
        "plugin": math.sqrt(max(table.calibration_plugin(factor), 0.0)),
        "calibration_loss": table.calibration(factor),
        "calibration_loss_plugin": table.calibration_plugin(factor),
        **belief.named,
        "bins": view.pane_query.bins,
        "n_single_bins": int((table.count == 1).sum()),
        "loss_weight": choice.named["loss_weight"],
        "n_one_vote": n_one_vote(view),
    }
    return Estimate(table.error(factor), interval=interval, extra=extra | about)


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


METRICS = (
    FunctionMetric(
        slug="disagreement_loss",
        title="Disagreement loss",
        unit="squared probability",
        needs=NEEDS,
        formula="mean_i of the unbiased (d_i - φ(p_i))^2, φ(p) = 1 - Σ_k p_k^2",
        search_words={"L_phi": "", "L_φ": "", "DPE loss": ""},
        source="Mimori et al. (AISTATS 2021), eqs. 15 and 16",
        own_options=OPTIONS,
        compute=disagreement_loss,
        ratio=_ratio,
    ),
    FunctionMetric(
        slug="disagreement_ce",
        title="Disagreement calibration error",
        needs=NEEDS,
        formula="sqrt(calibration part of the disagreement loss)",
        search_words={"CE_phi": "", "CE_φ": ""},
        source="Mimori et al. (AISTATS 2021), section 4 and Table 1",
        options=("bins", "edges"),
        own_options=OPTIONS,
        compute=disagreement_ce,
        of_resamples=disagreement_errors,
        max_resampled=20_000,
    ),
    FunctionMetric(
        slug="calibrated_disagreement_ce",
        title="Disagreement calibration error on bins of the calibrated prediction",
        needs=NEEDS,
        formula="sqrt(calibration part of the disagreement loss), bins of alpha0 / (alpha0 + 1) (1 - Σ_k p_k^2)",
        search_words={"CE_phi after alpha-calibration": "concentration=", "α-calibration": ""},
        source="Mimori et al. (AISTATS 2021), sections 4, 5.3 and Table 1",
        options=("bins", "edges"),
        own_options=OPTIONS,
        exact=False,
        compute=calibrated_disagreement_ce,
    ),
)
