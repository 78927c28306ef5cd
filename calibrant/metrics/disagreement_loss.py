"""Disagreement loss: squared loss of 1 - sum z^2 as a prediction that two raters differ; needs two ratings per row."""

from __future__ import annotations

from calibrant.core.view import View
from calibrant.inference.pairing import Ratio
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.raters.disagreement_tables import disagreement_loss_interval
from calibrant.raters.label_losses_by_row import LOSS_WEIGHT, Choice, n_one_vote, rows_with_several


def disagreement_loss(view: View, seed: int) -> Estimate:
    """Return the unbiased L_phi for phi = "two raters differ".

    Raises
    ------
    NotAnswerable
        No prediction has two ratings.
    """
    choice = Choice.of(view)
    rows = rows_with_several(view, choice)
    interval, about = disagreement_loss_interval(view, choice)
    value = rows.mean(rows.disagreement_loss)
    extra = {
        "plugin": value,
        "loss_weight": choice.named["loss_weight"],
        "n_one_vote": n_one_vote(view),
    }
    return Estimate(value, interval=interval, extra=extra | about)


def _ratio(view: View) -> Ratio:
    rows = rows_with_several(view, Choice.of(view))
    return rows.disagreement_loss, rows.weight


METRIC = FunctionMetric(
    slug="disagreement_loss",
    title="Disagreement loss",
    unit="squared probability",
    range=(0.0, 1.0),
    direction="lower",
    needs=("label_uncertainty",),
    formula="mean_i of the unbiased (d_i - φ(p_i))^2, φ(p) = 1 - Σ_k p_k^2",
    search_words={"L_phi": "", "L_φ": "", "DPE loss": ""},
    source="Mimori et al. (AISTATS 2021), eqs. 15 and 16",
    own_options=(LOSS_WEIGHT,),
    compute=disagreement_loss,
    ratio=_ratio,
)
