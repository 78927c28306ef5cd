"""Distances and entropies lie within what a weight allows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import label_distribution
from calibrant.laws.basis import Floats, Laws, inside, near, scores_by_replicate, weight_of
from calibrant.laws.label_uncertainty import of_several
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    n, weight = pane.counts, weight_of(pane)
    kept = pane["label_distribution"].blocks
    counts, columns = kept["sums"].counts, kept["sums"].sums
    sums = dict(zip(label_distribution.SUMS, columns, strict=True))
    own, of_two = sums["weight"], sums["weight_of_two"]
    yield "label_distribution: predictions differ from counts", counts[0].sum() == n["n_labelled"]
    yield "label_distribution: more untied than predictions", counts[1] <= counts[0]
    several = n["n_labelled"] - n["n_one_rating"]
    yield "label_distribution: rows of two ratings differ from counts", counts[2].sum() == several
    yield "label_distribution: weight differs from counts", near(own.sum(), weight, weight)
    most = np.log(pane.spec.n_classes) * own
    for name, low, high in (
        ("entropy_gap", -most, most),
        ("entropy_gap_absolute", np.abs(sums["entropy_gap"]), most),
        ("distance", 0.0, own),
        ("same_order", 0.0, own),
        ("same_strict_order", 0.0, own),
        ("untied", 0.0, own),
        ("weight_of_two", 0.0, own),
        ("disagreement", 0.0, of_two),
    ):
        yield f"label_distribution: {name} out of range", inside(low, sums[name], high, own)
    for name in ("entropy_gap", "distance"):
        block = kept[name]
        yield (
            f"label_distribution: {name} of other predictions",
            block.counts[0].sum() == n["n_labelled"],
        )
        yield (
            f"label_distribution: {name} of another weight",
            near(block.sums[0].sum(), weight, weight),
        )
    yield from _laws_of_each(pane, sums, counts)


def _laws_of_each(pane: Pane, sums: dict[str, Floats], counts: NDArray[np.int64]) -> Laws:
    """By replicate the same predictions as elsewhere; histograms of the same distances."""
    several, scores = of_several(pane), scores_by_replicate(pane)
    scale = sums["weight"].sum()
    for mine, theirs in (
        (sums["weight"], scores["weight"][:, 1]),
        (sums["weight_of_two"], several["weight"]),
        (sums["disagreement"], several["disagreement"]),
    ):
        yield "label_distribution: other sums by replicate", near(mine, theirs, scale)
    of_scores = pane["replicates"].blocks["scores"].counts[0].reshape(len(counts[0]), -1)[:, 0]
    yield "label_distribution: other predictions by replicate", counts[0] == of_scores
    bins = label_distribution.HISTOGRAM_BINS
    scaled = (sums["entropy_gap"].sum() / np.log(pane.spec.n_classes) + scale) / 2.0
    for name, total in (("entropy_gap", scaled), ("distance", sums["distance"].sum())):
        weight = pane["label_distribution"].blocks[name].sums[0]
        low, high = (weight @ (np.arange(bins) + i) / bins for i in (0, 1))
        yield f"label_distribution: {name} differs from its histogram", inside(low, total, high, scale)
