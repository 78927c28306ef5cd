"""Refinement loss: what remains of the squared loss when the classes' bins are calibrated; RL = L - CL."""

from __future__ import annotations

from calibrant.core.view import View
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.raters.label_losses_by_bin import class_bins
from calibrant.raters.label_losses_by_row import LOSS_WEIGHT, Choice, n_one_vote, row_losses


def refinement_loss(view: View, seed: int) -> Estimate:
    """Unbiased L less debiased CL of the same predictions, with L less the plug-in CL beside it.

    Raises
    ------
    NotAnswerable
        No labels, or the state does not hold the bins.
    """
    choice = Choice.of(view)
    rows, bins = row_losses(view, choice), class_bins(view, choice)
    whole = rows.mean(rows.squared)
    extra = {
        "plugin": whole - bins.plugin,
        "squared_loss": whole,
        "calibration_loss": bins.debiased,
        "bins": view.question.bins,
        "loss_weight": choice.named["loss_weight"],
        "n_one_vote": n_one_vote(view),
        "interval_reason": "not_replicated",
    }
    return Estimate(whole - bins.debiased, extra=extra)


METRIC = FunctionMetric(
    slug="refinement_loss",
    title="Refinement loss",
    unit="squared probability, summed over classes",
    range=(None, 2.0),
    direction="lower",
    needs=("label_uncertainty", "classes", "label_bins"),
    source="DeGroot, Fienberg (1983); Mimori et al. (AISTATS 2021), eq. 5",
    options=("bins", "edges"),
    own_options=(LOSS_WEIGHT,),
    compute=refinement_loss,
)
