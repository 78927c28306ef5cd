"""Squared loss under label uncertainty and its five parts, in one file: L = EL + IL = CL + RL and EL = CL + GL.

The parts are the epistemic, irreducible, calibration, refinement and grouping loss. They are one decomposition of the same sums,
and the exception to one file per metric. The bias of few ratings and few rows is taken away (`plugin` is the value with it).
Estimates may then fall below 0 by chance. They are never clipped, because their mean would be wrong.

EL, IL and GL need two ratings per prediction. By default they leave out predictions with one (`single_vote=exclude`). `keep` leaves
in the uncorrected term of those, as published code does, which biases EL upwards. L, CL and RL read all predictions.

Sums over rows and bins: `calibrant/raters/label_losses_by_row.py` and `label_losses_by_bin.py`.

Source: Mimori, Sasada, Matsui, Sato, Diagnostic Uncertainty Calibration (AISTATS 2021), eqs. 5 to 14.
"""

from __future__ import annotations

import math

from calibrant.core.arrays import share
from calibrant.core.documents import Extra, Result
from calibrant.core.view import View
from calibrant.inference.mean_interval import MIN_ERRORS, effective_outcomes, has_few_errors
from calibrant.inference.pairing import Ratio
from calibrant.inference.replication import score_columns
from calibrant.metrics.metric import Estimate, FunctionMetric
from calibrant.raters.label_losses_by_bin import ClassBins, calibration_interval, class_bins
from calibrant.raters.label_losses_by_row import (
    LOSS_WEIGHT,
    SINGLE_VOTE,
    Choice,
    RowLosses,
    n_one_vote,
    row_interval,
    row_losses,
    rows_with_spread,
)
from calibrant.raters.resampled_losses import calibration_losses


def squared_loss(view: View, seed: int) -> Estimate:
    """Mean of Σ_k (μ − z)² + μ(1 − μ), μ the shares of ratings: the expected squared distance from a further rating; eq. 8.

    It is unbiased with any number of ratings, one included. With weight one per prediction it equals the Brier score under
    `raters=mean`, with `loss_weight=n` the one under `pooled`.
    """
    choice = Choice.of(view)
    rows = row_losses(view, choice)
    value = rows.mean(rows.squared)
    return _of_rows(view, rows, "squared", value, {"plugin": value} | _weight(choice))


def epistemic_loss(view: View, seed: int) -> Estimate:
    """Squared distance of the prediction from the label distribution, eq. 10; `plugin` is eq. 9.

    The plug-in puts shares of ratings in the distribution's place and is too large by Σ μ(1 − μ) / (n − 1). The estimate needs two
    ratings per prediction: those with one are left out and counted (`single_vote=keep` leaves them in, uncorrected).
    """
    choice = Choice.of(view)
    rows = rows_with_spread(view, choice)
    extra = {"plugin": rows.mean(rows.squared_gap), "squared_loss": rows.mean(rows.squared)}
    return _of_rows(view, rows, "epistemic", rows.mean(rows.epistemic), extra | choice.named)


def irreducible_loss(view: View, seed: int) -> Estimate:
    """Spread of the label distributions, which no prediction can avoid: IL = L − EL over the same predictions.

    It is also the probability that two raters of a prediction disagree. `plugin` is Σ μ(1 − μ).
    """
    choice = Choice.of(view)
    rows = rows_with_spread(view, choice)
    value = rows.mean(rows.squared) - rows.mean(rows.epistemic)
    extra = {"plugin": rows.mean(rows.spread), "squared_loss": rows.mean(rows.squared)}
    return _of_rows(view, rows, "irreducible", value, extra | choice.named)


def calibration_loss(view: View, seed: int) -> Estimate:
    """Squared gaps of class-wise bins, summed over classes, minus the bias from label sampling variance, eq. 14; `plugin` is eq. 13.

    No second rating is needed. The correction takes predictions as independent. `ce` is the calibration error, the root of the
    loss where it is positive; `residual_debiased` takes away the variance of share minus probability instead of the share's.
    Bins with one prediction add nothing to the debiased loss, unlike in published code, which keeps their plug-in value and
    is biased upwards by it. They are counted in `n_single_bins`, and are in `plugin`.
    """
    choice = Choice.of(view)
    bins = class_bins(view, choice)
    interval, about = calibration_interval(view, choice, seed)
    extra = {
        "plugin": bins.plugin,
        "ce": root(bins.debiased),
        "ce_interval": None if interval is None else [root(bound) for bound in interval],
        "residual_debiased": bins.residual_debiased,
        "by_class": bins.by_class.tolist(),
        "plugin_by_class": bins.plugin_by_class.tolist(),
        "by_bin": by_bin(bins),
        "bins": view.pane_query.bins,
        "n_single_bins": bins.n_single,
        "n_one_vote": n_one_vote(view),
    }
    return Estimate(bins.debiased, interval=interval, extra=extra | _weight(choice) | about)


def refinement_loss(view: View, seed: int) -> Estimate:
    """What remains of the squared loss when the classes' bins are calibrated: RL = L − CL."""
    choice = Choice.of(view)
    rows, bins = row_losses(view, choice), class_bins(view, choice)
    total = rows.mean(rows.squared)
    extra = {
        "plugin": total - bins.plugin,
        "squared_loss": total,
        "calibration_loss": bins.debiased,
    }
    return Estimate(total - bins.debiased, extra=extra | _weight(choice) | _not_replicated(view))


def grouping_loss(view: View, seed: int) -> Estimate:
    """How label distributions differ among predictions that share a bin: GL = EL − CL of the same predictions."""
    choice = Choice.of(view)
    rows = rows_with_spread(view, choice)
    bins = class_bins(view, choice, several_only=not choice.keep_one_rating)
    epistemic = rows.mean(rows.epistemic)
    extra = {
        "plugin": rows.mean(rows.squared_gap) - bins.plugin,
        "epistemic_loss": epistemic,
        "calibration_loss": bins.debiased,
    }
    return Estimate(epistemic - bins.debiased, extra=extra | choice.named | _not_replicated(view))


def by_bin(bins: ClassBins) -> dict[str, list[list[float]]]:
    """What every class and bin adds to the calibration loss, eqs. 11 and 13, and its predictions; lists of classes."""
    weight = share(bins.weight)
    plugin = weight * bins.gap**2
    return {
        "count": bins.count.tolist(),
        "plugin": plugin.tolist(),
        "debiased": (plugin - weight * bins.variance).tolist(),
    }


def root(loss: float) -> float:
    """Calibration error of a calibration loss: its root, 0 where the loss is not positive."""
    return math.sqrt(max(loss, 0.0))


def _of_rows(view: View, rows: RowLosses, sums: str, value: float, extra: Extra) -> Estimate:
    interval, about = row_interval(view, getattr(rows, sums), rows)
    if interval is not None and _has_few_outcomes(view, rows, sums):
        interval, about = None, {"interval_reason": "few_errors"}
    return Estimate(
        value, interval=interval, extra=extra | {"n_one_vote": n_one_vote(view)} | about
    )


def _has_few_outcomes(view: View, rows: RowLosses, sums: str) -> bool:
    """Return whether few replicates decide: those with disagreeing raters, or with errors."""
    if sums == "irreducible":
        return bool(effective_outcomes(rows.irreducible[:, None], 0.0)[0] < MIN_ERRORS)
    return has_few_errors(score_columns(view))


def _weight(choice: Choice) -> dict[str, str]:
    return {"loss_weight": choice.named["loss_weight"]}


def _not_replicated(view: View) -> Result:
    return {
        "bins": view.pane_query.bins,
        "n_one_vote": n_one_vote(view),
        "interval_reason": "not_replicated",
    }


def _squared(view: View) -> Ratio:
    rows = row_losses(view, Choice.of(view))
    return rows.squared, rows.weight


def _epistemic(view: View) -> Ratio:
    rows = rows_with_spread(view, Choice.of(view))
    return rows.epistemic, rows.weight


def _irreducible(view: View) -> Ratio:
    rows = rows_with_spread(view, Choice.of(view))
    return rows.irreducible, rows.weight


_UNIT = "squared probability, summed over classes"
_ROWS, _BINS = ("label_uncertainty",), ("classes", "label_bins")
_MIMORI, _KULL = "Mimori et al. (AISTATS 2021)", "Kull, Flach (ECML 2015)"
METRICS = (
    FunctionMetric(
        "squared_loss", "Squared loss under label uncertainty", _UNIT, (0.0, 2.0), "lower", _ROWS,
        f"{_MIMORI}, eq. 8", own_options=(LOSS_WEIGHT,), compute=squared_loss, ratio=_squared,
        formula="mean_i ‖p_i - ȳ_i‖^2 + Σ_k ȳ_ik (1 - ȳ_ik)",
        search_words={"SL": "", "expected squared loss": ""},
    ),
    FunctionMetric(
        "epistemic_loss", "Epistemic loss", _UNIT, (None, 2.0), "lower", _ROWS,
        f"{_MIMORI}, eqs. 9 and 10", own_options=(SINGLE_VOTE, LOSS_WEIGHT), compute=epistemic_loss, lowest_truth=0.0, ratio=_epistemic,
        formula="mean_i of the unbiased ‖p_i - q_i‖^2, q_i the label distribution",
        search_words={"EL": "", "epistemic squared loss": ""},
    ),
    FunctionMetric(
        "irreducible_loss", "Irreducible loss", _UNIT, (0.0, 1.0), "lower", _ROWS,
        f"{_KULL}; {_MIMORI}, eqs. 6, 8 and 10", own_options=(SINGLE_VOTE, LOSS_WEIGHT), compute=irreducible_loss,
        ratio=_irreducible,
        formula="mean_i of the unbiased Σ_k q_ik (1 - q_ik)",
        search_words={"IL": "", "aleatoric loss": ""},
    ),
    FunctionMetric(
        "calibration_loss", "Calibration loss", _UNIT, (None, 2.0), "lower", (*_BINS, "replicates"),
        f"{_MIMORI}, eqs. 11 to 14; Broecker (2012), Ferro and Fricker (2012) for single labels",
        options=("bins", "edges"), own_options=(LOSS_WEIGHT,), compute=calibration_loss, lowest_truth=0.0,
        of_resamples=calibration_losses, max_resampled=20_000,
        formula="Σ_k Σ_b (W_b/W) ((ȳ_kb - p̄_kb)^2 - debiasing term)",
        search_words={"CL": "", "CE loss of bins": ""},
    ),
    FunctionMetric(
        "refinement_loss", "Refinement loss", _UNIT, (None, 2.0), "lower", (*_ROWS, *_BINS),
        f"DeGroot, Fienberg (1983); {_MIMORI}, eq. 5", options=("bins", "edges"), own_options=(LOSS_WEIGHT,),
        compute=refinement_loss,
        formula="irreducible loss + grouping loss",
        search_words={"RL": "", "sharpness loss": ""},
    ),
    FunctionMetric(
        "grouping_loss", "Grouping loss", _UNIT, (None, 2.0), "lower", (*_ROWS, *_BINS),
        f"{_KULL}; {_MIMORI}, eq. 6", options=("bins", "edges"), own_options=(SINGLE_VOTE, LOSS_WEIGHT),
        compute=grouping_loss, lowest_truth=0.0,
        formula="epistemic loss - calibration loss",
        search_words={"GL": "", "dispersion loss": ""},
    ),
)  # fmt: skip
