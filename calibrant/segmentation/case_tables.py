"""Tables of one case: each class's probability against its ratings, on cells from which hard and soft bins are exact.

A cell stores weight, Σ p, Σ p², Σ y and Σ p y. In a cell without the centre of a bin in its interior, the triangular
membership of a score is linear in it. So these five sums give Σ ψ, Σ ψ p and Σ ψ y of soft bins without error, as
the first, second and fourth give hard bins. With 600 cells hard bins are exact for every divisor of 600, soft ones
for every divisor of 300: 5, 10, 12, 15, 20, 25, 30, 50, 60, 75, 100 and more. One further cell per class stores the
predictions whose top class it is, which Dice needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.ranges import HITS, MASS, in_cell
from calibrant.accumulators.sparse import SparseBlock
from calibrant.core.arrays import Floats, Ints, distinct, ratio
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums, CorrectRatings
from calibrant.core.grid import Grid
from calibrant.core.histogram import Histogram
from calibrant.core.spec import PaneSpec

CELLS = 600
COUNTS = ("predictions", "ratings")
SUMS = (
    "weight_pooled",
    "weight",
    "confidence_pooled",
    "confidence",
    "confidence_squared_pooled",
    "confidence_squared",
    "correct_pooled",
    "correct_mean",
    "correct_majority",
    "correct_single",
    "product_pooled",
    "product_mean",
    "product_majority",
    "product_single",
)
RANGES = {
    **{name: MASS for name in SUMS[:2]},
    **{name: in_cell(name.replace("confidence", "weight")) for name in SUMS[2:4]},
    **{name: in_cell(name.replace("confidence_squared", "weight"), 2) for name in SUMS[4:6]},
    **HITS,
    **{name: in_cell(name.replace("product", "correct")) for name in SUMS[10:]},
}
# In place of the hash of a unit.
SEVERAL_UNITS = 0
_Part = tuple[Ints, Ints, Ints, Floats]


@lru_cache(maxsize=64)
def case_grid(cells: int) -> Grid:
    """Return equal cells with separate edges; the end cells are not refined, since no estimator orders a case's scores."""
    return Grid(cells, 1)


@dataclass(frozen=True)
class Layout:
    """Order of a table's cells: class after class, then the cells of the top class.

    Attributes
    ----------
    members : for each of the table's classes the model's classes of which it is the union
    cells : equal cells of [0, 1]
    """

    members: tuple[tuple[int, ...], ...]
    cells: int = CELLS

    @classmethod
    def of_classes(cls, classes: Sequence[int], cells: int = CELLS) -> Layout:
        """Build the layout of each class separately."""
        return cls(tuple((class_index,) for class_index in classes), cells)

    @property
    def grid(self) -> Grid:
        return case_grid(self.cells)

    @property
    def n_classes(self) -> int:
        return len(self.members)

    @property
    def width(self) -> int:
        """Number of positions per class."""
        return self.grid.n_positions

    @property
    def size(self) -> int:
        return self.n_classes * (self.width + 1)

    def top_place(self, class_index: int) -> int:
        """Return the place of the predictions whose top class it is."""
        return self.n_classes * self.width + class_index

    @classmethod
    def of_spec(cls, spec: PaneSpec) -> Layout:
        """Build the layout of stored tables: every class, then the composites that the model declares."""
        classes = tuple((class_index,) for class_index in range(spec.n_classes))
        return cls(classes + tuple(tuple(dict.fromkeys(each)) for _, each in spec.composites))


def case_tables(batch_sums: BatchSums, layout: Layout) -> dict[str, SparseBlock]:
    """Build a table for each named case of a batch's labelled predictions; none for rows without a case name.

    Parameters
    ----------
    batch_sums : BatchSums
    layout : the classes, which may be unions of the model's (probability summed, reference mask united)

    Returns
    -------
    dict of case name to block with the columns `COUNTS` and `SUMS`.
    """
    cases = batch_sums.batch.cases
    if cases is None or not batch_sums.n:
        return {}
    named = np.array([each is not None for each in cases])
    if not named.all():
        return case_tables(BatchSums(batch_sums.batch.take(named)), layout)
    names, case = numbered(cases)
    parts: list[_Part] = []
    for slot, members in enumerate(layout.members):
        columns = batch_sums.columns[list(members)]
        # A sum of probabilities can exceed 1 by rounding alone.
        score = columns[0] if len(members) == 1 else np.minimum(columns.sum(axis=0), 1.0)
        belongs = np.zeros(batch_sums.batch.n_classes, bool)
        belongs[list(members)] = True
        correct_ratings = batch_sums.correct_ratings.where(
            belongs[batch_sums.correct_ratings.class_index]
        )
        place = layout.grid.locate(score) + slot * layout.width
        parts.append(_added(batch_sums, case, place, score, correct_ratings))
        mine = belongs[batch_sums.top_class]
        at_top = np.where(mine, layout.top_place(slot), -1)
        parts.append(
            _added(
                batch_sums,
                case,
                at_top,
                batch_sums.confidence,
                correct_ratings.where(mine[correct_ratings.row]),
            )
        )
    case_of, place_of, counts, sums = (
        np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)
    )
    order = np.lexsort((place_of, case_of))
    bounds = np.searchsorted(case_of[order], np.arange(len(names) + 1))
    tables = {}
    for i, name in enumerate(names):
        own = order[bounds[i] : bounds[i + 1]]
        tables[name] = SparseBlock.of(layout.size, place_of[own], counts[:, own], sums[:, own])
    return tables


def histogram_table(histogram: Histogram, layout: Layout) -> SparseBlock:
    """Return a plain histogram as a case's table. Cells are present where any of their numbers is not zero."""
    n, confidence, correct = histogram.count, histogram.sum_confidence, histogram.sum_correct
    mean = ratio(confidence, n)
    predictions = n if histogram.n_predictions is None else histogram.n_predictions
    cell = np.arange(len(n)) * layout.cells // len(n)
    assert histogram.class_index is not None

    def total(values: NDArray[Any]) -> Floats:
        return np.bincount(cell, values, layout.cells).astype(np.float64)

    sums = np.zeros((len(SUMS), layout.cells))
    suffix = "_pooled" if histogram.policy == "pooled" else ""
    for name, values in (
        ("weight" + suffix, n),
        ("confidence" + suffix, confidence),
        ("confidence_squared" + suffix, confidence * mean),
        ("correct_" + histogram.policy, correct),
        ("product_" + histogram.policy, correct * mean),
    ):
        sums[SUMS.index(name)] = total(values)
    there = np.flatnonzero(sums.any(axis=0))
    counts = np.stack([np.maximum(np.round(total(predictions)), 1.0), np.round(total(n))]).astype(
        np.int64
    )
    places = histogram.class_index * layout.width + 1 + 2 * there
    return SparseBlock.of(layout.size, places, counts[:, there], sums[:, there])


def case_units(batch: Batch) -> dict[str, int]:
    """Return the hash of the unit of each named case, `SEVERAL_UNITS` if its predictions have several; none without named units."""
    if batch.cases is None or batch.unit_source != "unit":
        return {}
    found: dict[str, int] = {}
    for case, unit in set(zip(batch.cases.tolist(), batch.unit_hash.tolist(), strict=True)):
        if case is not None:
            found[case] = SEVERAL_UNITS if case in found else unit
    return found


def composite_layout(composites: Mapping[str, Sequence[int]], cells: int = CELLS) -> Layout:
    """Return the layout of unions of classes, which may overlap, of raw rows."""
    return Layout(tuple(tuple(dict.fromkeys(members)) for members in composites.values()), cells)


def numbered(cases: NDArray[Any]) -> tuple[list[str], Ints]:
    """Return distinct names, sorted, and each row's place among them; object (n,) to int64 (n,)."""
    seen: dict[str, int] = {}
    index = np.fromiter((seen.setdefault(name, len(seen)) for name in cases), np.int64, len(cases))
    names = sorted(seen)
    place = np.empty(len(names), np.int64)
    place[[seen[name] for name in names]] = np.arange(len(names))
    return names, place[index]


def _added(
    batch_sums: BatchSums, case: Ints, place: Ints, score: Floats, correct_ratings: CorrectRatings
) -> _Part:
    """Return cases, places, counts and sums of one score per row; rows at place -1 are left out."""
    size = int(place.max()) + 2
    key = case * size + place + 1
    keys, at = distinct(key, (int(case.max()) + 1) * size)
    at_correct = at[correct_ratings.row]
    n, ratings = len(keys), batch_sums.n_ratings.astype(np.float64)

    def total(values: Floats) -> Floats:
        return np.bincount(at, values, n).astype(np.float64)

    def hit(values: Floats) -> Floats:
        return np.bincount(at_correct, values, n).astype(np.float64)

    weights, correct_weights = batch_sums.weights, batch_sums.weights[correct_ratings.row]
    counts = np.stack([np.bincount(at, minlength=n), total(ratings)]).astype(np.int64)
    plain = [total(values) for values in (weights, weights * score, weights * score**2)]
    if batch_sums.constant_ratings == 1:
        correct = hit(correct_weights)
        product = hit(correct_weights * score[correct_ratings.row])
        columns = [column for column in plain for _ in (0, 1)] + [correct] * 4 + [product] * 4
    else:
        pooled = [
            total(values)
            for values in (
                weights * ratings,
                weights * ratings * score,
                weights * ratings * score**2,
            )
        ]
        shares = [
            correct_weights * share
            for share in (
                correct_ratings.ratings,
                correct_ratings.share,
                correct_ratings.majority,
                correct_ratings.single,
            )
        ]
        columns = [column for pair in zip(pooled, plain, strict=True) for column in pair]
        columns += [hit(share) for share in shares] + [
            hit(share * score[correct_ratings.row]) for share in shares
        ]
    there = keys % size > 0
    return (
        keys[there] // size,
        keys[there] % size - 1,
        counts[:, there],
        np.stack(columns)[:, there],
    )
