"""Cells under one label policy: from an accumulator's columns, from raw rows, and with a plain histogram's numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import cells as kept
from calibrant.core.batch_sums import Filling, Hits
from calibrant.core.cells import Cells

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def under_policy(policy: int, lower: Floats, upper: Floats, counts: Ints, sums: Floats) -> Cells:
    """Return the columns of one policy."""
    at = {name: sums[i] for i, name in enumerate(kept.SUMS)}
    suffix = "_pooled" if policy == 0 else ""
    correct = at["correct_" + ("pooled", "mean", "majority", "single")[policy]]
    return Cells(
        lower,
        upper,
        counts[1] if policy == 0 else counts[0],
        counts[0],
        at["weight" + suffix],
        at["confidence" + suffix],
        correct,
        at["correct_mean_squared"] if policy == 1 else correct,
        at["weight_squared" + suffix],
        at["null_variance" + suffix],
    )


def cells_of_rows(filling: Filling, policy: int, scope: str) -> Cells:
    """Return one cell for each labelled row, in the rows' order; for `all`, class after class."""
    score, hits, hit_at = _scores_and_hits(filling, scope)
    return _filled(filling, policy, score, score, np.arange(len(score)), hits, hit_at)


def cells_of_scores(filling: Filling, policy: int, scope: str) -> Cells:
    """Return one cell for each distinct score of the labelled rows, sorted by score."""
    score, hits, hit_at = _scores_and_hits(filling, scope)
    unique, place = np.unique(score, return_inverse=True)
    return _filled(filling, policy, unique, score, place, hits, hit_at)


def _filled(
    filling: Filling,
    policy: int,
    bounds: Floats,
    score: Floats,
    place: Ints,
    hits: Hits,
    hit_at: Ints,
) -> Cells:
    block = kept.empty_cells(len(bounds))
    if filling.n:
        kept.fill_cells(block, filling, place, score, hits, place[hit_at])
    return under_policy(policy, bounds, bounds, block.counts, block.sums)


def _scores_and_hits(filling: Filling, scope: str) -> tuple[Floats, Hits, Ints]:
    """Return the rows' scores under a scope, their ratings, and the score index of each rating."""
    kind, _, name = scope.partition(":")
    if kind == "top_label":
        return filling.confidence, filling.top_hits, filling.top_hits.row
    if kind == "all":
        return (
            filling.columns.ravel(),
            filling.hits,
            filling.hits.klass * filling.n + filling.hits.row,
        )
    class_index = 1 if kind == "positive" else int(name)
    hits = filling.hits.where(filling.hits.klass == class_index)
    return filling.columns[class_index], hits, hits.row


def with_histogram(cells: Cells, table: Floats, bins: int) -> Cells:
    """Return bins with a plain histogram's numbers added; its samples count as independent with weight one."""
    count, confidence, correct = table.reshape(3, bins, -1).sum(axis=2)
    mean = np.divide(confidence, count, out=np.zeros(bins), where=count > 0)
    return Cells(
        cells.lower,
        cells.upper,
        cells.count + np.round(count).astype(np.int64),
        cells.predictions,
        cells.weight + count,
        cells.confidence + confidence,
        cells.correct + correct,
        cells.correct_squared + correct,
        cells.weight_squared + count,
        cells.null_variance + np.maximum(count * mean * (1.0 - mean), 0.0),
    )
