"""Epistemic loss: the squared distance of the prediction from the label distribution, free of the votes' own noise.

The plug-in puts shares of votes in the distribution's place and is too large by sum mu (1 - mu) / (n - 1); that
is taken away. Needs two votes a prediction; those with one are left out and counted (`single_vote=keep` leaves
them in, uncorrected).
"""

from __future__ import annotations

from calibrant.core.view import View
from calibrant.inference.pairing import Ratio
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.raters.label_losses_by_row import (
    LOSS_WEIGHT,
    SINGLE_VOTE,
    Choice,
    n_one_vote,
    row_interval,
    rows_with_spread,
)


def epistemic_loss(view: View, seed: int) -> Estimate:
    """Unbiased EL, eq. 10, with the plug-in of eq. 9 beside it; may fall below 0 by chance.

    Raises
    ------
    NotAnswerable
        No prediction has two votes.
    """
    choice = Choice.of(view)
    rows = rows_with_spread(view, choice)
    interval, about = row_interval(view, rows.epistemic, rows)
    extra = {
        "plugin": rows.mean(rows.squared_gap),
        "squared_loss": rows.mean(rows.squared),
        "n_one_vote": n_one_vote(view),
    }
    return Estimate(
        rows.mean(rows.epistemic), interval=interval, extra=extra | choice.named | about
    )


def _ratio(view: View) -> Ratio:
    rows = rows_with_spread(view, Choice.of(view))
    return rows.epistemic, rows.weight


METRIC = FunctionMetric(
    slug="epistemic_loss",
    title="Epistemic loss",
    unit="squared probability, summed over classes",
    range=(None, 2.0),
    direction="lower",
    needs=("label_uncertainty",),
    source="Mimori et al. (AISTATS 2021), eqs. 9 and 10",
    own_options=(SINGLE_VOTE, LOSS_WEIGHT),
    compute=epistemic_loss,
    ratio=_ratio,
)
