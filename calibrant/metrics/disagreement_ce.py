"""Disagreement calibration error: root of the debiased calibration loss of 1 - sum z^2 as raters' disagreement."""

from __future__ import annotations

import math

from calibrant.core.view import View
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.raters.disagreement_tables import calibration_interval, disagreement_table
from calibrant.raters.label_losses_by_row import LOSS_WEIGHT, Choice, n_one_vote


def disagreement_ce(view: View, seed: int) -> Estimate:
    """Return CE_phi, with the debiased and plug-in calibration loss.

    Raises
    ------
    NotAnswerable
        No prediction has two ratings, or the state does not hold the bins.
    """
    choice = Choice.of(view)
    table = disagreement_table(view, choice.by_ratings)
    bounds, about = calibration_interval(view, choice, seed)
    interval = None
    if bounds is not None:
        interval = (math.sqrt(max(bounds[0], 0.0)), math.sqrt(max(bounds[1], 0.0)))
    extra = {
        "plugin": math.sqrt(max(table.calibration_plugin(), 0.0)),
        "calibration_loss": table.calibration(),
        "calibration_loss_plugin": table.calibration_plugin(),
        "bins": view.question.bins,
        "n_single_bins": int((table.count == 1).sum()),
        "loss_weight": choice.named["loss_weight"],
        "n_one_vote": n_one_vote(view),
    }
    return Estimate(table.error(), interval=interval, extra=extra | about)


METRIC = FunctionMetric(
    slug="disagreement_ce",
    title="Disagreement calibration error",
    unit="probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("label_uncertainty", "disagreement"),
    formula="sqrt(calibration part of the disagreement loss)",
    search_words={"CE_phi": "", "CE_φ": ""},
    source="Mimori et al. (AISTATS 2021), section 4 and Table 1",
    options=("bins", "edges"),
    own_options=(LOSS_WEIGHT,),
    compute=disagreement_ce,
)
