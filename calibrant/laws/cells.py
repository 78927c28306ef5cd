"""Laws of fine cells, whose confidences lie between their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import cells
from calibrant.accumulators.block import Block
from calibrant.input.columns import MOST_WEIGHT
from calibrant.laws.basis import Laws, inside, near, score_sums, square_within
from calibrant.pane import Pane
from calibrant.policies import POLICIES

Floats = NDArray[np.float64]


def laws_of_table(pane: Pane, name: str, block: Block, tables: int) -> Laws:
    """Laws of cells: `tables` of them, each of all predictions."""
    n, weight = pane.counts, score_sums(pane)[1]["weight"]
    grid = pane.spec.top_grid if name in ("top_label", "positive") else pane.spec.class_grid
    places, counts, columns = block.filled()
    table = places // grid.n_positions
    lower, upper = grid.lower[places % grid.n_positions], grid.upper[places % grid.n_positions]
    sums = dict(zip(cells.SUMS, columns, strict=True))

    def total(values: NDArray[Any]) -> Floats:
        """By table; of all tables where they lie in one."""
        if name == "all_labels":
            return np.array([values.sum() / tables])
        return np.bincount(table, values, tables).astype(np.float64)

    yield f"{name}: predictions differ from counts", total(counts[0]) == n["n_labelled"]
    yield f"{name}: ratings differ from counts", total(counts[1]) == n["n_ratings"]
    yield f"{name}: fewer ratings than predictions", counts[1] >= counts[0]
    for suffix, samples, whole in (("_pooled", counts[1], weight[0]), ("", counts[0], weight[1])):
        own, squared = sums["weight" + suffix], sums["weight_squared" + suffix]
        yield f"{name}: weight differs from scores", near(total(own), whole, whole)
        yield f"{name}: a weight out of range", inside(0.0, own, MOST_WEIGHT * samples, own)
        yield (
            f"{name}: confidence outside its cell",
            inside(lower * own, sums["confidence" + suffix], upper * own, own),
        )
        yield (
            f"{name}: squared weights out of range",
            inside(own**2 / samples, squared, own**2, own**2),
        )
        least = np.minimum(lower * (1.0 - lower), upper * (1.0 - upper)) * squared
        most = 0.25 * n["n_labelled"] * own**2
        yield (
            f"{name}: null_variance out of range",
            inside(least, sums["null_variance" + suffix], most, own**2),
        )
    for policy in POLICIES:
        own = sums["weight_pooled" if policy == "pooled" else "weight"]
        yield (
            f"{name}: correct_{policy} beyond the weight",
            inside(0.0, sums[f"correct_{policy}"], own, own),
        )
    squares = sums["correct_mean_squared"]
    yield (
        f"{name}: correct_mean_squared below the square of its mean",
        square_within(sums["correct_mean"], sums["weight"], squares, sums["weight"]),
    )
    yield (
        f"{name}: correct_mean_squared out of range",
        inside(0.0, squares, sums["correct_mean"], sums["weight"]),
    )
