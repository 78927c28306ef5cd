"""Squared loss under label uncertainty: the expected squared distance of the prediction from a further rater's class.

Unbiased with any number of votes, one included. With weight one a prediction it equals the Brier score under
`raters=mean`, with `loss_weight=n` the one under `pooled`.
"""

from __future__ import annotations

from calibrant.core.view import View
from calibrant.inference.pairing import Ratio
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.raters.label_losses_by_row import (
    LOSS_WEIGHT,
    Choice,
    n_one_vote,
    row_interval,
    row_losses,
)


def squared_loss(view: View, seed: int) -> Estimate:
    """Mean over predictions of sum_k (mu - z)^2 + mu (1 - mu), mu the shares of votes; eq. 8.

    Raises
    ------
    NotAnswerable
        No labels, or plain histograms.
    """
    choice = Choice.of(view)
    rows = row_losses(view, choice)
    value = rows.mean(rows.squared)
    interval, about = row_interval(view, rows.squared, rows)
    extra = {
        "plugin": value,
        "loss_weight": choice.named["loss_weight"],
        "n_one_vote": n_one_vote(view),
    }
    return Estimate(value, interval=interval, extra=extra | about)


def _ratio(view: View) -> Ratio:
    rows = row_losses(view, Choice.of(view))
    return rows.squared, rows.weight


METRIC = FunctionMetric(
    slug="squared_loss",
    title="Squared loss under label uncertainty",
    unit="squared probability, summed over classes",
    range=(0.0, 2.0),
    direction="lower",
    needs=("label_uncertainty",),
    source="Mimori et al. (AISTATS 2021), eq. 8",
    own_options=(LOSS_WEIGHT,),
    compute=squared_loss,
    ratio=_ratio,
)
