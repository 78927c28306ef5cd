"""Columns of blocks with their ranges: declared by each accumulator, checked for every posted pane by `calibrant/core/pane_validation.py`.

A range bounds a column cell by cell: by constants, or by multiples of another column of the same block. What spans several
accumulators is no range. Tests hold such invariants of panes that this package filled; a posted pane can break them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.block import Block
from calibrant.core.arrays import Floats
from calibrant.core.grid import Grid
from calibrant.core.label_policies import POLICIES
from calibrant.input.input_columns import MAX_WEIGHT
from calibrant.input.score_columns import MAX_LOGIT

Edges = tuple[Floats, Floats]
# Sums may miss their bounds by rounding, most where many equal scores are on an edge of their cell: by this share of the column
# that bounds them, and by a thousandth of the share around zero.
TOLERANCE = 1e-6
MAX_COUNT = 2**53
MAX_MASS = MAX_WEIGHT * MAX_COUNT
# No difference of two logits, and so no loss of one rating, is larger.
LOGIT_SPAN = 2.0 * MAX_LOGIT


@dataclass(frozen=True)
class Range:
    """`low * of ** power <= value <= high * of ** power`, cell by cell.

    Parameters
    ----------
    of : a column or count of the block; 1 where None
    in_cell : `low` and `high` are multiplied by the edges of the value's cell
    """

    low: float
    high: float
    of: str | None = None
    power: int = 1
    in_cell: bool = False

    def __str__(self) -> str:
        if self.in_cell:
            return f"scores between the edges of their cell, weighted by {self.of}"
        times = (
            "" if self.of is None else f" times {self.of}" + (" squared" if self.power == 2 else "")
        )
        return f"{self.low:g} to {self.high:g}{times}"


def within(of: str, low: float = 0.0, high: float = 1.0) -> Range:
    """Between multiples of another column; by default from 0 to it."""
    return Range(low, high, of)


def weight_of(count: str) -> Range:
    """Sum of the weights of so many predictions or ratings."""
    return Range(0.0, MAX_WEIGHT, count)


def square_of(of: str, high: float = 1.0) -> Range:
    """From 0 to a multiple of the square of another column."""
    return Range(0.0, high, of, power=2)


def variance_of(weight: str) -> Range:
    """Variance of a weighted sum of values in [0, 1], a unit's fully dependent."""
    return square_of(weight, MAX_COUNT)


def in_cell(of: str, power: int = 1) -> Range:
    """Sum of scores, or of their powers, in the cell, weighted by another column."""
    return Range(1.0, 1.0, of, power, in_cell=True)


MASS = Range(0.0, MAX_MASS)
SQUARED_MASS = Range(0.0, MAX_MASS**2)
# Correct ratings by label policy.
HITS = {
    f"correct_{policy}": within("weight_pooled" if policy == "pooled" else "weight")
    for policy in POLICIES
}


@dataclass(frozen=True)
class BlockColumns:
    """Columns of one block, and their ranges.

    Parameters
    ----------
    counts : names of the counts, in their order
    of : range of every sum by name, in their order
    size : number of cells
    of_counts : ranges of counts by another count
    totals : per count, the count of the pane that all cells add up to; "several" are predictions with two ratings or more
    times : how many tables the block holds, each with all predictions
    each : every cell holds the total, not their sum
    edges : of the scores in each cell of one table: a grid, a number of equal bins, or lower and upper bounds
    depends_on : as in `Block`
    """

    counts: tuple[str, ...]
    of: Mapping[str, Range]
    size: int
    of_counts: Mapping[str, Range] = field(default_factory=dict)
    totals: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    each: bool = False
    edges: Edges | Grid | int | None = None
    depends_on: tuple[int, ...] | None = None

    def block(self) -> Block:
        """Return an empty block with these columns."""
        return Block(len(self.counts), len(self.of), self.size, self.depends_on)

    @property
    def bounds(self) -> Edges | None:
        """Lower and upper bounds of the scores in each cell of one table."""
        if isinstance(self.edges, Grid):
            return self.edges.lower, self.edges.upper
        if isinstance(self.edges, int):
            return np.arange(self.edges) / self.edges, np.arange(1, self.edges + 1) / self.edges
        return self.edges


def violations(ranges: BlockColumns, block: Block, n: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for every column of a block that is out of range or does not add up.

    Parameters
    ----------
    n : the pane's counts by name, and "several"
    """
    places, counts, sums = block.filled()
    of_counts = dict(zip(ranges.counts, counts, strict=True))
    of_sums, edges = dict(zip(ranges.of, sums, strict=True)), ranges.bounds
    for name, total in ranges.totals.items():
        found, wanted = of_counts[name], n[total] * ranges.times
        complete = (
            (found == wanted).all() and len(found) in (0, block.size)
            if ranges.each
            else found.sum() == wanted
        )
        if not complete or (wanted and not len(found)):
            yield f"received {name} that do not add up; expected {wanted} ({ranges.times} times {total} of the pane)."
    for name, bound in ranges.of_counts.items():
        if not _holds(bound, of_counts[name], of_counts, edges, places):
            yield f"received {name} out of range; expected {bound}."
    for name, bound in ranges.of.items():
        # A column beyond its own range is reported, whatever it bounds.
        with np.errstate(over="ignore"):
            holds = _holds(bound, of_sums[name], of_counts | of_sums, edges, places)
        if not holds:
            yield f"received {name} out of range; expected {bound}."


def _holds(
    bound: Range,
    values: NDArray[Any],
    columns: Mapping[str, NDArray[Any]],
    edges: Edges | None,
    places: NDArray[np.int64],
) -> bool:
    scale = np.ones(values.shape) if bound.of is None else columns[bound.of].astype(np.float64)
    if bound.in_cell:
        assert edges is not None
        low, high = (each[places % len(each)] ** bound.power * scale for each in edges)
    else:
        scale = scale**bound.power
        low, high = bound.low * scale, bound.high * scale
    near = np.abs(scale) if bound.of else 0.0
    slack = TOLERANCE * (near + 1e-3) if values.dtype == np.float64 else 0.0
    return bool(((values >= low - slack) & (values <= high + slack)).all())
