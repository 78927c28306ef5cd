"""Fine fixed grid of confidence. Coarse bins are unions of its positions.

Edges are k / M by division, so a score given as 0.3 is exactly on the edge 3 / 10; `edge_rules` says which scores are, too. Scores
on an edge have a separate position besides the open interval, so both edge conventions are exact. The
two end intervals are cut geometrically towards 0 and 1, where modern networks put most of their mass, for
estimators that read the order of scores and not fixed bins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.core.edge_rules import Rules, on_edges

Edges = Literal["right", "left"]
REFINEMENT = 33


@dataclass(frozen=True)
class Grid:
    """`cells` equal intervals of [0, 1] with separate edges.

    Positions in increasing order of score: the point 0, the `REFINEMENT` parts of the first interval, then each inner
    edge followed by the open interval above it, the parts of the last interval, the point 1.

    Parameters
    ----------
    cells : int, at least 2

    Raises
    ------
    ValueError
        Fewer than two cells.
    """

    cells: int
    refinement: int = field(default=REFINEMENT)

    def __post_init__(self) -> None:
        if self.cells < 2:
            raise ValueError(f"Received a grid of {self.cells} cells; expected at least 2.")

    @property
    def n_positions(self) -> int:
        return 2 * self.cells - 1 + 2 * self.refinement

    @cached_property
    def exact_bins(self) -> tuple[int, ...]:
        """Numbers of equal-width bins that are unions of positions: the divisors of `cells`."""
        return tuple(m for m in range(1, self.cells + 1) if self.cells % m == 0)

    def locate(self, score: NDArray[np.float64], rules: Rules | None = None) -> NDArray[np.int64]:
        """Return the position of each score.

        Parameters
        ----------
        score : float64 (..., n), in [0, 1]
        rules : uint8 (n,), by which scores are on an edge (`edge_rules`)

        Returns
        -------
        int64, same shape, in [0, n_positions).
        """
        m, s = self.cells, self.refinement
        score = on_edges(score, m, rules)
        scaled = score * m
        k = np.floor(scaled)
        position = k.astype(np.int64)
        position *= 2
        position += s
        near = _near_integer(scaled)
        near &= scaled > 0.5
        if near.any():
            position[near] = self._locate_near(score[near])
        first = scaled < 1.0
        if first.any():
            first[near] = score[near] < 1.0 / m
            position[first] = self._locate_first(score[first])
        last = scaled > m - 1.5
        if last.any():
            last[last] = score[last] >= (m - 1) / m
            position[last] = self._locate_last(score[last])
        return position

    def _locate_near(self, score: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return positions of scores that rounding may have moved across an inner edge."""
        m = self.cells
        k = np.floor(score * m)
        k -= k / m > score
        k += (k + 1) / m <= score
        return np.asarray(2 * k.astype(np.int64) + self.refinement - (k / m == score))

    def _locate_first(self, score: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return positions of scores in [0, 1 / cells): 0 for the point, else by powers of two towards it."""
        exponent = np.frexp(score * self.cells)[1].astype(np.int64)
        part = np.clip(self.refinement + exponent, 1, self.refinement)
        # The product above is rounded: a score one ulp below a cut can be rounded up to it.
        part -= self.lower[part] > score
        return np.where(score == 0.0, 0, part)

    def _locate_last(self, score: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return positions of scores in [1 - 1 / cells, 1]: the edge itself, then by powers of two towards 1."""
        top = self.n_positions - 1
        exponent = np.frexp((1.0 - score) * self.cells)[1].astype(np.int64)
        part = np.clip(self.refinement + exponent, 1, self.refinement)
        position = np.where(score == 1.0, top, top - part)
        edge = score == (self.cells - 1) / self.cells
        return np.where(edge, top - self.refinement - 1, position)

    @cached_property
    def main_places(self) -> NDArray[np.int64]:
        """For each position: 2k for the edge k / cells, 2k + 1 for a part of the interval above it."""
        m, s = self.cells, self.refinement
        inner = np.arange(2, 2 * m - 1)
        return np.concatenate([[0], np.full(s, 1), inner, np.full(s, 2 * m - 1), [2 * m]])

    @cached_property
    def lower(self) -> NDArray[np.float64]:
        """Infimum of the scores of each position, float64 (n_positions,)."""
        return self._bounds[0]

    @cached_property
    def upper(self) -> NDArray[np.float64]:
        """Supremum of the scores of each position, float64 (n_positions,)."""
        return self._bounds[1]

    @cached_property
    def _bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        m, s = self.cells, self.refinement
        lower = (self.main_places // 2) / m
        upper = ((self.main_places + 1) // 2) / m
        cuts = np.ldexp(1.0, np.arange(1 - s, 0)) / m
        lower[2 : s + 1], upper[1:s] = cuts, cuts
        top = self.n_positions - 1
        lower[top - s + 1 : top], upper[top - s : top - 1] = 1.0 - cuts[::-1], 1.0 - cuts[::-1]
        return lower, upper

    def bins(self, n_bins: int, edges: Edges = "right") -> NDArray[np.int64]:
        """Return the equal-width bin of every position.

        Parameters
        ----------
        n_bins : int, one of `exact_bins`
        edges : "right" assigns a score on an edge to the bin below it, (a, b], and 0 to the first; "left" to the
            bin above it, [a, b), and 1 into the last.

        Returns
        -------
        int64 (n_positions,), in [0, n_bins).

        Raises
        ------
        ValueError
            The grid cannot give that many bins exactly.
        """
        return _bins(self, n_bins, edges)

    def on(self, coarse: Grid) -> NDArray[np.int64]:
        """Return the position on a coarser grid of every position of this one.

        Parameters
        ----------
        coarse : Grid without refinement, whose cells divide this one's

        Raises
        ------
        ValueError
            The other's cells are not unions of this one's, or are refined.
        """
        if self.cells % coarse.cells or coarse.refinement != 1:
            detail = f"Received a grid of {coarse.cells} cells; expected unions of the {self.cells} cells."
            raise ValueError(detail)
        return _on(self, coarse.cells)


NEAR_EDGE = 1e-9
# Scores that are computed with logarithms and exponentials differ between processors in their last places. So near an edge, in
# cells, they are on it.
DERIVED_EDGE = 1e-10


def _near_integer(scaled: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether scores times a number of cells are so near an integer that rounding may have moved them across it."""
    distance = np.rint(scaled)
    distance -= scaled
    return np.abs(distance, out=distance) < NEAR_EDGE


@lru_cache(maxsize=256)
def _bins(grid: Grid, n_bins: int, edges: Edges) -> NDArray[np.int64]:
    if n_bins < 1 or grid.cells % n_bins:
        detail = f"Received {n_bins} bins; expected a union of the grid's {grid.cells} cells."
        raise ValueError(detail)
    step = grid.cells // n_bins
    edge = grid.main_places // 2
    is_edge = grid.main_places % 2 == 0
    below = np.maximum(edge - 1, 0) // step
    above = np.minimum(edge, grid.cells - 1) // step
    result = np.where(is_edge & (edges == "right"), below, above)
    result.setflags(write=False)
    return result


@lru_cache(maxsize=64)
def _on(grid: Grid, cells: int) -> NDArray[np.int64]:
    step = grid.cells // cells
    edge, within = np.divmod(grid.main_places // 2, step)
    is_edge = (grid.main_places % 2 == 0) & (within == 0)
    result = np.where(is_edge, 2 * edge, 2 * edge + 1)
    result.setflags(write=False)
    return result


@lru_cache(maxsize=64)
def grid_of(cells: int) -> Grid:
    """Return the grid with that number of cells; one shared object each, so that its tables are computed once."""
    return Grid(cells)


@lru_cache(maxsize=64)
def class_cells(cells: int, limit: int = 1200) -> int:
    """Return the number of cells of the class-wise grid for a top-label grid of `cells`: its largest divisor up to `limit`."""
    return max(d for d in range(1, min(cells, limit) + 1) if cells % d == 0)


def equal_width_bin(
    score: NDArray[np.float64], n_bins: int, edges: Edges = "right", rules: Rules | None = None
) -> NDArray[np.int64]:
    """Return the equal-width bin of raw scores, with edges k / n_bins by division.

    Parameters
    ----------
    score : float64 (..., n), in [0, 1]
    n_bins : int, at least 1
    edges : as in `Grid.bins`
    rules : as in `Grid.locate`

    Returns
    -------
    int64 (n,), in [0, n_bins).
    """
    score = on_edges(score, n_bins, rules)
    k = np.floor(score * n_bins)
    k -= k / n_bins > score
    k += (k + 1) / n_bins <= score
    if edges == "right":
        k -= k / n_bins == score
    return np.clip(k, 0, n_bins - 1).astype(np.int64)


def on_edge(score: NDArray[np.float64], cells: int) -> NDArray[np.float64]:
    """Return scores with rounding errors, moved to the edge that they are within `DERIVED_EDGE` of."""
    scaled = score * cells
    nearest = np.rint(scaled)
    return np.where(np.abs(nearest - scaled) < DERIVED_EDGE, nearest / cells, score)
