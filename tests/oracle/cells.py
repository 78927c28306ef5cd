"""numpy fill of cells of the fine grid: the specification of the kernel's."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.block import Block
from calibrant.accumulators.cells import SUMS, OneTable
from calibrant.core.arrays import Floats, Ints
from calibrant.core.batch_sums import BatchSums, CorrectRatings

_AT = {name: i for i, name in enumerate(SUMS)}


def fill_cells(
    block: Block,
    batch_sums: BatchSums,
    place: Ints,
    score: Floats,
    correct_ratings: CorrectRatings,
    correct_place: Ints,
) -> None:
    """Add (prediction, class) pairs to their cells.

    Parameters
    ----------
    place, score : cell and score of each pair, (m,): all predictions for one class, then for the next
    correct_ratings, correct_place : the pairs that have ratings, and their cells
    """
    size = block.size

    def total(values: Floats | None) -> Floats:
        return np.bincount(place, values, size).astype(np.float64)

    def spread(per_row: Floats) -> Floats:
        return np.resize(per_row, len(place))

    n = np.bincount(place, minlength=size)
    spread_score = score * (1.0 - score)
    sums = block.sums
    block.counts[0] += n
    constant = batch_sums.constant_ratings
    if constant is not None:
        confidence = total(score)
        variance = total(
            spread_score * spread(batch_sums.unit_size) if batch_sums.has_units else spread_score
        )
        block.counts[1] += constant * n
        _add(sums, "weight_pooled", constant * n)
        _add(sums, "weight", n)
        _add(sums, "confidence_pooled", constant * confidence)
        _add(sums, "confidence", confidence)
        _add(sums, "weight_squared_pooled", constant * n)
        _add(sums, "weight_squared", n)
        _add(sums, "null_variance_pooled", constant**2 * variance)
        _add(sums, "null_variance", variance)
    else:
        weight = spread(batch_sums.weights)
        ratings = spread(batch_sums.n_ratings.astype(np.float64))
        dependent = spread(batch_sums.unit_size) * weight**2 * spread_score
        block.counts[1] += total(ratings).astype(np.int64)
        _add(sums, "weight_pooled", total(weight * ratings))
        _add(sums, "weight", total(weight))
        _add(sums, "confidence_pooled", total(weight * ratings * score))
        _add(sums, "confidence", total(weight * score))
        _add(sums, "weight_squared_pooled", total(weight**2 * ratings))
        _add(sums, "weight_squared", total(weight**2))
        _add(sums, "null_variance_pooled", total(dependent * ratings**2))
        _add(sums, "null_variance", total(dependent))
    _fill_correct(sums, batch_sums, correct_ratings, correct_place, size)


# Of single ratings of weight one all are their number.
_CORRECT = (
    "correct_pooled",
    "correct_mean",
    "correct_majority",
    "correct_single",
    "correct_mean_squared",
)


def _fill_correct(
    sums: Floats, batch_sums: BatchSums, correct_ratings: CorrectRatings, place: Ints, size: int
) -> None:
    if batch_sums.constant_ratings == 1:
        n_correct = np.bincount(place, minlength=size)
        for name in _CORRECT:
            _add(sums, name, n_correct)
        return
    weight = batch_sums.weights[correct_ratings.row]
    columns = {
        "correct_pooled": weight * correct_ratings.ratings,
        "correct_mean": weight * correct_ratings.share,
        "correct_majority": weight * correct_ratings.majority,
        "correct_single": weight * correct_ratings.single,
        "correct_mean_squared": weight * correct_ratings.share**2,
    }
    for name, values in columns.items():
        _add(sums, name, np.bincount(place, values, size))


def _add(sums: Floats, name: str, values: Floats | Ints) -> None:
    sums[_AT[name]] += values


def fill_table(
    table: OneTable, batch_sums: BatchSums, score: Floats, correct_ratings: CorrectRatings
) -> None:
    """Add one score of each prediction to its cell on the top-label grid."""
    place = table.spec.top_grid.locate(score, batch_sums.batch.edge_rules)
    fill_cells(
        table.blocks["cells"],
        batch_sums,
        place,
        score,
        correct_ratings,
        place[correct_ratings.row],
    )
