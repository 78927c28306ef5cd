"""Ratings of records as columns: unnamed ones counted by class, and the latest one of each named rater."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant_server.workers.segments.ragged import Ints

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Counts:
    """Unnamed ratings: `n` ratings of a class, of the record at a place; sorted by place, then class."""

    row: Ints
    class_index: Ints
    n: Ints


@dataclass(frozen=True, eq=False)
class NamedRatings:
    """Latest ratings of named raters; sorted by place of the record, then name.

    Attributes
    ----------
    rater : place in `raters`
    class_index : or `WITHDRAWN`
    order : of two ratings of one revision, the one with the larger order is the later one
    raters : names as UTF-8, in ascending order
    """

    row: Ints
    rater: Ints
    class_index: Ints
    revision: Ints
    order: Ints
    raters: list[bytes]

    @property
    def columns(self) -> tuple[Ints, ...]:
        """Row, rater, class, revision and order."""
        return self.row, self.rater, self.class_index, self.revision, self.order

    def with_columns(self, columns: Iterable[Ints]) -> NamedRatings:
        """Return ratings of the same raters, given in the order of `columns`."""
        row, rater, class_index, revision, order = columns
        return NamedRatings(row, rater, class_index, revision, order, self.raters)

    def take(self, chosen: Ints | Mask) -> NamedRatings:
        """Return some ratings, with the same places of records."""
        return self.with_columns(column[chosen] for column in self.columns)


def coded(names: Sequence[bytes]) -> tuple[Ints, list[bytes]]:
    """Return places in the list of different names, and this list in ascending order."""
    different = sorted(set(names))
    place = dict(zip(different, range(len(different)), strict=True))
    return np.fromiter(map(place.__getitem__, names), np.int64, len(names)), different


def placed(columns: tuple[Ints, ...], place: Ints) -> list[Ints]:
    """Return the columns, of which the first has places of records, in the order of new places; -1 is left out."""
    row = place[columns[0]]
    order = np.argsort(row, kind="stable")[np.count_nonzero(row < 0) :]
    return [row[order], *(column[order] for column in columns[1:])]


def summed(row: Ints, class_index: Ints, n: Ints) -> Counts:
    """Return sums by row and class."""
    width = int(class_index.max(initial=0)) + 1
    keys, place = np.unique(row * width + class_index, return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, place, n)
    return Counts(keys // width, keys % width, total)
