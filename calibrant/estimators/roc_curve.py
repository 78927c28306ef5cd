"""The receiver operating characteristic of a score, and the area under it, from cells.

The score is that of the requested scope: for `positive` and one class its probability against the rest, for `top_label` the
confidence against whether the top class is correct. Correct and incorrect ratings of one cell count as ties, half. `error_bound` is how much their
true order could change the area.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import Floats, ratio
from calibrant.core.cells import Cells
from calibrant.core.view import NoResultError, View

POINTS = 200
MAX_POINTS = 10_000


def area(right: Floats, wrong: Floats) -> Floats:
    """Return the share of pairs of a hit and a miss in which the hit has the higher score, ties half.

    Parameters
    ----------
    right, wrong : float64 (..., n_cells), mass of correct and of incorrect ratings in increasing order of score, not all 0

    Returns
    -------
    float64 (...), in [0, 1]; nan without correct or without incorrect ratings.

    Source
    ------
    Bamber (J. Math. Psych. 1975).

    Examples
    --------
    >>> float(area(np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.0])))
    0.875
    """
    below = np.cumsum(wrong, axis=-1) - wrong / 2.0
    with np.errstate(invalid="ignore", divide="ignore"):
        pairs = np.asarray(right.sum(axis=-1) * wrong.sum(axis=-1))
        return np.asarray((right * below).sum(axis=-1) / pairs)


def unordered_share(
    right: Floats, wrong: Floats, divisible: NDArray[np.bool_] | bool = True
) -> float:
    """Return half of the share of pairs in one cell, if its scores may differ: the largest error of counting them as ties."""
    pairs = np.where(divisible, right * wrong, 0.0).sum()
    return float(pairs / right.sum() / wrong.sum() / 2.0)


def unordered_deviation(cells: Cells, divisible: NDArray[np.bool_]) -> float:
    """Return the standard deviation of the area if the correct and incorrect ratings of a cell are in random order (Mann and Whitney).

    Ratings of one unit stay together, which multiplies the variance of a cell by its design effect.
    """
    right, wrong = correct_and_incorrect(cells)
    single = cells.weight_squared * cells.rate * (1.0 - cells.rate)
    effect = ratio(cells.label_variance, single, 1.0)
    pairs = right * wrong * (right + wrong + 1.0) * np.maximum(effect, 1.0)
    pairs = np.where(divisible, pairs, 0.0).sum() / 12.0
    return float(np.sqrt(pairs) / right.sum() / wrong.sum())


def rates(right: Floats, wrong: Floats) -> tuple[Floats, Floats]:
    """Return true and false positive rate above each cell's lower bound, from the highest cell down; (n_cells + 1,) each.

    Both begin with 0, where nothing is above the threshold, and end with 1.
    """
    both = (np.concatenate([[0.0], np.cumsum(mass[::-1])]) for mass in (right, wrong))
    true, false = (mass / mass[-1] for mass in both)
    return true, false


def roc_cells(view: View, scope: str) -> tuple[Cells, NDArray[np.bool_]]:
    """Return the cells of a scope in increasing order of score, and which of them hold scores that may differ.

    Plain histograms count where they are of this kind, policy and edges, on the cells of the grid.

    Raises
    ------
    NoResultError
        The class's cells are not stored, or histograms are of another kind, policy or edges.
    """
    if view.pane.keeps("histograms") and not view.pane["histograms"].is_empty:
        cells = view.binned(scope, "equal_width", view.spec.grid_for(scope).cells).cells
        cells = cells.select(cells.weight > 0)
        return cells, np.ones(len(cells), bool)
    cells = view.once(("in order", scope), lambda: view.cells_of(scope).together())
    return cells, cells.divisible


def correct_and_incorrect(cells: Cells) -> tuple[Floats, Floats]:
    """Return the mass of correct and of incorrect ratings by cell.

    Raises
    ------
    NoResultError
        All ratings are correct, or all incorrect: there is no pair to rank.
    """
    right, wrong = cells.correct, np.maximum(cells.weight - cells.correct, 0.0)
    if not right.sum() > 0.0 or not wrong.sum() > 1e-12 * cells.weight.sum():
        raise NoResultError(
            "one_outcome", "all ratings are correct, or all incorrect: there are no pairs to rank"
        )
    return right, wrong
