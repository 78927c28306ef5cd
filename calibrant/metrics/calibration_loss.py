"""Calibration loss: squared gaps of class-wise bins, summed over classes, less what the labels' chance adds.

Needs no second vote. The correction takes predictions as independent of each other. `ce` is the calibration
error, the root of the loss where it is positive; `residual_debiased` takes away the variance of share minus
probability instead of the share's alone.
"""

from __future__ import annotations

import math

from calibrant.core.view import View
from calibrant.metrics.base import Estimate, FunctionMetric, share
from calibrant.raters.label_losses_by_bin import ClassBins, calibration_interval, class_bins
from calibrant.raters.label_losses_by_row import LOSS_WEIGHT, Choice, n_one_vote


def calibration_loss(view: View, seed: int) -> Estimate:
    """Debiased CL, eq. 14, with the plug-in of eq. 13 beside it; may fall below 0 by chance.

    Bins with one prediction keep their plug-in value and are counted in `n_single_bins`.

    Raises
    ------
    NotAnswerable
        No labels, plain histograms, classes or bins that the state does not hold.
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
        "bins": view.question.bins,
        "n_single_bins": bins.n_single,
        "loss_weight": choice.named["loss_weight"],
        "n_one_vote": n_one_vote(view),
    }
    return Estimate(bins.debiased, interval=interval, extra=extra | about)


def by_bin(bins: ClassBins) -> dict[str, list[list[float]]]:
    """What every class and bin adds to the loss, eqs. 11 and 13, and how many predictions it holds; lists of classes."""
    weight = share(bins.weight)
    plugin = weight * bins.gap**2
    return {
        "count": bins.count.tolist(),
        "plugin": plugin.tolist(),
        "debiased": (plugin - weight * bins.variance).tolist(),
    }


def root(loss: float) -> float:
    """The calibration error of a calibration loss: its root, 0 where the loss is not positive."""
    return math.sqrt(max(loss, 0.0))


METRIC = FunctionMetric(
    slug="calibration_loss",
    title="Calibration loss",
    unit="squared probability, summed over classes",
    range=(None, 2.0),
    direction="lower",
    needs=("classes", "label_bins", "replicates"),
    source="Mimori et al. (AISTATS 2021), eqs. 11 to 14; Broecker (2012), Ferro and Fricker (2012) for single labels",
    options=("bins", "edges"),
    own_options=(LOSS_WEIGHT,),
    compute=calibration_loss,
)
