"""Proper scores lie within what a weight allows."""

from __future__ import annotations

import numpy as np

from calibrant.laws.basis import Laws, inside, near, score_sums, slack, square_within, weight_of
from calibrant.pane import Pane
from calibrant.policies import N_POLICIES


def laws(pane: Pane) -> Laws:
    n, (counts, sums) = pane.counts, score_sums(pane)
    weight, finite = sums["weight"], sums["weight_finite"]
    samples = np.array([n["n_ratings"], *[n["n_labelled"]] * (N_POLICIES - 1)])
    yield "scores: samples differ from counts", counts[0] == samples
    yield "scores: predictions differ from counts", counts[1] == n["n_labelled"]
    yield "scores: more ratings at probability 0 than ratings", counts[2] <= n["n_ratings"]
    yield "scores: weight differs from counts", near(weight[1:], weight_of(pane), weight_of(pane))
    for name, low, high in (
        ("weight_finite", 0.0, weight),
        ("brier", 0.0, 2.0 * weight),
        ("correct", 0.0, weight),
        ("brier_null", 0.0, weight),
        ("accuracy_null", weight / pane.spec.n_classes, weight),
    ):
        yield f"scores: {name} out of range", inside(low, sums[name], high, weight)
    yield "scores: a negative loss", sums["nll"] >= -slack(weight)
    yield "scores: a loss without weight", (sums["nll"] <= slack(weight)) | (finite > 0)
    for name in ("brier_null_variance", "accuracy_null_variance"):
        yield f"scores: {name} is negative", sums[name] >= -slack(weight)
    impossible = weight - finite
    yield (
        "scores: brier beyond twice the loss",
        sums["brier"] <= 2.0 * (sums["nll"] + impossible) + slack(weight),
    )
    chance = pane.spec.n_classes
    most = weight * (1.0 - 1.0 / chance)
    yield (
        "scores: brier_null and accuracy_null are of different predictions",
        inside(weight - sums["accuracy_null"], sums["brier_null"], most, weight)
        & square_within(sums["accuracy_null"], weight, weight - sums["brier_null"], weight),
    )
