"""What the classes' cells do not hold is bounded by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import cells, label_bins
from calibrant.laws.basis import Floats, Laws, inside, near, slack, square_within
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    n, one = pane.counts, pane.counts["n_one_rating"]
    counts = pane["label_bins"].blocks["bins"].counts
    wanted = pane.spec.n_classes * np.array([n["n_labelled"], one])
    yield "label_bins: predictions differ from counts", counts.sum(axis=1) == wanted
    yield "label_bins: more single votes than predictions", counts[1] <= counts[0]
    yield from _laws_of_bins(pane)


def _laws_of_bins(pane: Pane) -> Laws:
    """Bins are unions of the classes' cells where the fine grid has their edges; else one bin a class."""
    fine, width = pane.spec.class_grid, label_bins.LABEL_GRID.n_positions
    n_classes = pane.spec.n_classes
    same = fine.cells % label_bins.LABEL_GRID.cells == 0
    block = pane["label_bins"].blocks["bins"]
    sums = dict(zip(label_bins.SUMS, block.sums, strict=True))
    counts = block.counts
    places, own_counts, columns = pane["classes"].blocks["cells"].filled()
    if same:
        place = places // fine.n_positions * width + fine.on(label_bins.LABEL_GRID)[places % fine.n_positions]
        size = n_classes * width
    else:
        place, size = places // fine.n_positions, n_classes
        counts = counts.reshape(len(counts), n_classes, width).sum(axis=2)
        sums = {name: values.reshape(n_classes, width).sum(axis=1) for name, values in sums.items()}
    n = np.bincount(place, own_counts[0], size)
    of = {name: np.bincount(place, column, size) for name, column in zip(cells.SUMS, columns, strict=True)}
    yield "label_bins: predictions differ from classes", counts[0] == n
    ratings, hits, squares = (
        sums[name] for name in ("ratings_squared", "correct_ratings_squared", "correct_squared_ratings_squared")
    )
    pooled = of["weight_pooled"]
    yield (
        "label_bins: ratings_squared out of range",
        square_within(pooled, n, ratings, pooled) & (ratings <= pooled**2 + slack(pooled**2)),
    )
    yield "label_bins: correct_ratings_squared out of range", inside(0.0, hits, ratings, pooled**2)
    yield "label_bins: correct_squared_ratings_squared out of range", inside(0.0, squares, hits, pooled**2)
    yield (
        "label_bins: squares below the square of their mean",
        square_within(of["correct_pooled"], n, squares, pooled) & square_within(hits, ratings, squares, pooled**2),
    )
    residual, residual_squared, most = sums["residual"], sums["residual_squared"], of["weight_squared"]
    yield "label_bins: residual_squared out of range", inside(0.0, residual_squared, most, most + of["weight"])
    yield (
        "label_bins: residual_squared below the square of the residual",
        square_within(residual, most, residual_squared, most + of["weight"]),
    )
    even = near(most, n, n) & near(of["weight"], n, n)  # then every weight is one
    expected = of["correct_mean"] - of["confidence"]
    yield "label_bins: residual differs from classes", near(residual, expected, n) | ~even
    yield from _laws_of_one_vote(pane, sums, counts[1], of["weight"].astype(np.float64))


def _laws_of_one_vote(pane: Pane, sums: dict[str, Floats], n: NDArray[np.int64], whole: Floats) -> Laws:
    weight, squared = sums["one_weight"], sums["one_weight_squared"]
    yield "label_bins: one_weight out of range", inside(0.0, weight, whole, whole)
    for name in ("one_confidence", "one_correct"):
        yield f"label_bins: {name} out of range", inside(0.0, sums[name], weight, whole)
        total = weight.sum() / pane.spec.n_classes
        yield f"label_bins: {name} over all classes is not the weight", near(sums[name].sum(), total, whole.sum())
    yield (
        "label_bins: one_weight_squared out of range",
        square_within(weight, n, squared, whole) & (squared <= weight**2 + slack(whole**2)),
    )
    correct = sums["one_correct_weight_squared"]
    yield "label_bins: one_correct_weight_squared out of range", inside(0.0, correct, squared, whole**2)
    yield (
        "label_bins: one_correct_weight_squared below the square of its mean",
        square_within(sums["one_correct"], n, correct, whole),
    )
