"""Disagreement calibration error: root of the debiased calibration loss of 1 - sum z^2 as raters' disagreement."""

from __future__ import annotations

import math

from calibrant.core.view import View
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.raters.belief import CONCENTRATION, TEMPERATURE, Belief, tempered
from calibrant.raters.disagreement_tables import calibration_interval, disagreement_table
from calibrant.raters.label_losses_by_row import LOSS_WEIGHT, Choice, n_one_vote
from calibrant.raters.resampled_losses import disagreement_errors


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


METRIC = FunctionMetric(
    slug="disagreement_ce",
    title="Disagreement calibration error",
    needs=("label_uncertainty", "disagreement"),
    formula="sqrt(calibration part of the disagreement loss)",
    search_words={"CE_phi": "", "CE_φ": ""},
    source="Mimori et al. (AISTATS 2021), section 4 and Table 1",
    options=("bins", "edges"),
    own_options=(LOSS_WEIGHT, CONCENTRATION, TEMPERATURE),
    compute=disagreement_ce,
    of_resamples=disagreement_errors,
)
