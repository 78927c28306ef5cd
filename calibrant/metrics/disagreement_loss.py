"""Disagreement loss: squared loss of 1 - sum z^2 as a prediction that two raters differ; needs two ratings per row."""

from __future__ import annotations

from calibrant.core.view import NoResultError, View
from calibrant.inference.pairing import Ratio
from calibrant.metrics.base import Estimate, FunctionMetric
from calibrant.raters.belief import CONCENTRATION, TEMPERATURE, Belief, tempered
from calibrant.raters.disagreement_tables import disagreement_loss_interval, disagreement_table
from calibrant.raters.label_losses_by_row import LOSS_WEIGHT, Choice, n_one_vote, rows_with_several


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


METRIC = FunctionMetric(
    slug="disagreement_loss",
    title="Disagreement loss",
    unit="squared probability",
    needs=("label_uncertainty", "disagreement"),
    formula="mean_i of the unbiased (d_i - φ(p_i))^2, φ(p) = 1 - Σ_k p_k^2",
    search_words={"L_phi": "", "L_φ": "", "DPE loss": ""},
    source="Mimori et al. (AISTATS 2021), eqs. 15 and 16",
    own_options=(LOSS_WEIGHT, CONCENTRATION, TEMPERATURE),
    compute=disagreement_loss,
    ratio=_ratio,
)
