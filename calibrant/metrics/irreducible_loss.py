"""Irreducible loss: the spread of the label distributions themselves, which no prediction can avoid.

For the squared loss it is also the chance that two raters of a prediction disagree. IL = L - EL over the same
predictions.
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


def irreducible_loss(view: View, seed: int) -> Estimate:
    """Unbiased IL, with the plug-in sum mu (1 - mu) beside it.

    Raises
    ------
    NotAnswerable
        No prediction has two votes.
    """
    choice = Choice.of(view)
    rows = rows_with_spread(view, choice)
    value = rows.mean(rows.squared) - rows.mean(rows.epistemic)
    interval, about = row_interval(view, rows.irreducible, rows)
    extra = {
        "plugin": rows.mean(rows.spread),
        "squared_loss": rows.mean(rows.squared),
        "n_one_vote": n_one_vote(view),
    }
    return Estimate(value, interval=interval, extra=extra | choice.named | about)


def _ratio(view: View) -> Ratio:
    rows = rows_with_spread(view, Choice.of(view))
    return rows.irreducible, rows.weight


METRIC = FunctionMetric(
    slug="irreducible_loss",
    title="Irreducible loss",
    unit="squared probability, summed over classes",
    range=(0.0, 1.0),
    direction="lower",
    needs=("label_uncertainty",),
    source="Kull, Flach (ECML 2015); Mimori et al. (AISTATS 2021), eqs. 6, 8 and 10",
    own_options=(SINGLE_VOTE, LOSS_WEIGHT),
    compute=irreducible_loss,
    ratio=_ratio,
)
