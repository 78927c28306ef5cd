"""Replicates are shares of the whole."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators import replicates
from calibrant.laws.basis import (
    Laws,
    columns_of_bins,
    near,
    score_bins,
    score_sums,
    scores_by_replicate,
    slack,
)
from calibrant.laws.bins import laws_of_bins
from calibrant.pane import Pane
from calibrant.policies import N_POLICIES, POLICIES


def laws(pane: Pane) -> Laws:
    n, sums = pane.counts, score_sums(pane)[1]
    kept = pane["replicates"].blocks
    counts = kept["scores"].counts.reshape(-1, N_POLICIES).sum(axis=0)
    yield "replicates: score counts differ from counts", counts == n["n_labelled"]
    shares = kept["scores"].sums.reshape(len(replicates.SCORE_SUMS), -1, N_POLICIES).sum(axis=1)
    for name, share in zip(replicates.SCORE_SUMS, shares, strict=True):
        yield (
            f"replicates: {name} differs from scores",
            near(share, sums[name], np.abs(sums[name]) + sums["weight"]),
        )
    sizes = {
        "tables": (replicates.SCORE_BINS, 1),
        "classes": (replicates.CLASS_BINS, pane.spec.n_classes),
    }
    for name, block in kept.items():
        if name in sizes:
            yield from laws_of_bins(pane, f"replicates ({name})", block, *sizes[name])
    yield from _laws_of_each(pane)
    bins = score_bins(pane, replicates.SCORE_BINS)
    if bins is not None:
        block, scale = kept["tables"], n["n_labelled"] + sums["weight"][0]
        by_bin = block.counts[0].reshape(-1, replicates.SCORE_BINS).sum(axis=0)
        yield "replicates (tables): other bins than the fine cells", by_bin == bins[0]
        own = block.sums.reshape(len(replicates.TABLE_SUMS), -1, replicates.SCORE_BINS).sum(axis=1)
        yield "replicates (tables): other sums than the fine cells", near(own, columns_of_bins(bins[1]), scale)


def _laws_of_each(pane: Pane) -> Laws:
    """Tables and scores of one replicate are of the same predictions."""
    kept, scores = pane["replicates"].blocks, scores_by_replicate(pane)
    n = kept["scores"].counts[0].reshape(-1, N_POLICIES)
    yield "replicates: other predictions by policy", n == n[:, :1]
    scale = scores["weight"].sum(axis=0)
    for name in ("brier", "nll", "correct"):
        yield f"replicates: a negative {name}", scores[name] >= -slack(scale)
    impossible = scores["weight"] - scores["weight_finite"]
    twice = 2.0 * (scores["nll"] + impossible)
    yield "replicates: brier beyond twice the loss", scores["brier"] <= twice + slack(scale)
    for name, tables in (("tables", 1), ("classes", pane.spec.n_classes)):
        if name not in kept:
            continue
        block = kept[name]
        counts = block.counts[0].reshape(len(n), -1).sum(axis=1)
        columns = block.sums.reshape(len(replicates.TABLE_SUMS), len(n), -1).sum(axis=2)
        sums = dict(zip(replicates.TABLE_SUMS, columns, strict=True))
        yield f"replicates ({name}): predictions differ from scores", counts == tables * n[:, 0]
        for at, weight in ((0, "weight_pooled"), (1, "weight")):
            own = tables * scores["weight"][:, at]
            yield f"replicates ({name}): {weight} differs from scores", near(sums[weight], own, scale[at])
            if name == "classes":
                confidence = sums[weight.replace("weight", "confidence")]
                yield (
                    "replicates (classes): confidence over all classes is not the weight",
                    near(confidence, scores["weight"][:, at], scale[at]),
                )
        for at, policy in enumerate(POLICIES):
            if name == "classes" or pane.spec.task != "binary":
                wanted = scores["weight" if name == "classes" else "correct"][:, at]
                yield (
                    f"replicates ({name}): correct_{policy} differs from scores",
                    near(sums[f"correct_{policy}"], wanted, scale[at]),
                )
