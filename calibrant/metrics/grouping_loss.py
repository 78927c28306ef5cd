"""Grouping loss: how label distributions differ among predictions that share a bin; GL = EL - CL."""

from __future__ import annotations

from calibrant.core.view import View
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.raters.label_losses_by_bin import class_bins
from calibrant.raters.label_losses_by_row import (
    LOSS_WEIGHT,
    SINGLE_VOTE,
    Choice,
    n_one_vote,
    rows_with_spread,
)


def grouping_loss(view: View, seed: int) -> Estimate:
    """Unbiased EL less debiased CL of the same predictions, with the difference of the plug-ins beside it.

    Raises
    ------
    NotAnswerable
        No prediction has two votes, or the state does not hold the bins.
    """
    choice = Choice.of(view)
    rows = rows_with_spread(view, choice)
    bins = class_bins(view, choice, several_only=not choice.keep_one_vote)
    extra = {
        "plugin": rows.mean(rows.squared_gap) - bins.plugin,
        "epistemic_loss": rows.mean(rows.epistemic),
        "calibration_loss": bins.debiased,
        "bins": view.question.bins,
        "n_one_vote": n_one_vote(view),
        "interval_reason": "not_replicated",
    }
    return Estimate(rows.mean(rows.epistemic) - bins.debiased, extra=extra | choice.named)


METRIC = FunctionMetric(
    slug="grouping_loss",
    title="Grouping loss",
    unit="squared probability, summed over classes",
    range=(None, 2.0),
    direction="lower",
    needs=("label_uncertainty", "classes", "label_bins"),
    source="Kull, Flach (ECML 2015); Mimori et al. (AISTATS 2021), eq. 6",
    options=("bins", "edges"),
    own_options=(SINGLE_VOTE, LOSS_WEIGHT),
    compute=grouping_loss,
)
