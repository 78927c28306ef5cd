"""What laws are written with: nearness in the scale of a weight, and what every accumulator is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import cells, replicates, scores
from calibrant.core.label_policies import N_POLICIES
from calibrant.core.pane import Pane

TOLERANCE = 1e-6
Floats = NDArray[np.float64]
Invariants = Iterator[tuple[str, Any]]


def near(left: Any, right: Any, scale: Any) -> Any:
    return np.abs(np.asarray(left) - right) <= slack(scale)


def slack(scale: Any) -> Any:
    return TOLERANCE * (np.abs(scale) + 1e-3)


def inside(low: Any, values: Any, high: Any, scale: Any) -> Any:
    return (values >= low - slack(scale)) & (values <= high + slack(scale))


def score_sums(pane: Pane) -> tuple[NDArray[np.int64], dict[str, Floats]]:
    block = pane["scores"].blocks["scores"]
    return block.counts, dict(zip(scores.SUMS, block.sums, strict=True))


def weight_of(pane: Pane) -> float:
    return float(pane["counts"].blocks["counts"].sums[0, 0])


def square_within(total: Any, n: Any, squares: Any, scale: Any) -> Any:
    """Whether a sum of n terms is one that terms of these squares can have: its square is at most n times their sum."""
    return np.asarray(total) ** 2 <= np.asarray(n) * squares + slack(np.asarray(scale) ** 2)


def scores_by_replicate(pane: Pane) -> dict[str, Floats]:
    """Score sums of every replicate, float64 (replicates, policies) by name."""
    block = pane["replicates"].blocks["scores"]
    sums = block.sums.reshape(len(replicates.SCORE_SUMS), -1, N_POLICIES)
    return dict(zip(replicates.SCORE_SUMS, sums, strict=True))


def score_bins(pane: Pane, bins: int) -> tuple[NDArray[np.int64], dict[str, Floats]] | None:
    """Counts and sums of the score (class 1 of binary models, else the top class) by equal-width bin; None where the fine
    grid does not give that many."""
    grid = pane.spec.top_grid
    if grid.cells % bins:
        return None
    name = "positive" if pane.spec.task == "binary" else "top_label"
    places, counts, sums = pane[name].blocks["cells"].filled()
    place = grid.bins(bins)[places]
    by_bin = {
        key: np.bincount(place, column, bins).astype(np.float64)
        for key, column in zip(cells.SUMS, sums, strict=True)
    }
    return np.bincount(place, counts[0], bins).astype(np.int64), by_bin


def columns_of_bins(sums: dict[str, Floats]) -> Floats:
    """The columns of `replicates.TABLE_SUMS` out of those of cells."""
    return np.stack([sums[name] for name in replicates.TABLE_SUMS])
