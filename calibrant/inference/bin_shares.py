"""Replicates under the bins of a value: the stored fine bins, summed to whatever bins a metric has.

Replicates have 60 bins of the model's own score, or 15 of each class. A bin of the value that is a union of those gets their sums. A
fine bin with a cut inside is divided in proportion to the cells' weight on each side; the variance that the division loses is added
where the sums are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.core.cells import Cells
from calibrant.core.grid import equal_width_bin
from calibrant.inference.replication import ReplicateTables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_WHOLE = 1e-9


@dataclass(frozen=True)
class BinShares:
    """Share of each fine bin in each bin of the value.

    Attributes
    ----------
    share : float64 (n_tables, n_fine, n_bins)
    nested : whether no fine bin is divided
    """

    share: Floats
    nested: bool

    def of(self, values: Floats) -> Floats:
        """Return sums by fine bin, (..., n_tables, n_fine), as sums by bin, (..., n_tables, n_bins)."""
        return np.asarray(np.einsum("...tf,tfb->...tb", values, self.share, optimize=True))

    def of_tables(self, tables: ReplicateTables) -> ReplicateTables:
        """Return the replicates' tables under the bins of the value."""
        return ReplicateTables(
            self.of(tables.weight),
            self.of(tables.difference),
            self.share.shape[-1],
            tables.places,
        )


def bin_shares(
    cells: Sequence[Cells], places: Sequence[Ints], n_fine: int, n_bins: int
) -> BinShares:
    """Return the shares of fine equal-width bins in the bins of a value.

    Parameters
    ----------
    cells : of each table
    places : of each table, the bin of each cell; negative where it is in none
    n_fine, n_bins : numbers of bins
    """
    share = np.stack(
        [_shares(each, place, n_fine, n_bins) for each, place in zip(cells, places, strict=True)]
    )
    return BinShares(share, bool(((share < _WHOLE) | (share > 1.0 - _WHOLE)).all()))


def _shares(cells: Cells, place: Ints, n_fine: int, n_bins: int) -> Floats:
    # Bins are open on the left. A middle is inside its fine bin, and equals the score where a cell is one score.
    fine = equal_width_bin((cells.lower + cells.upper) / 2.0, n_fine)
    total = np.bincount(fine, cells.weight, n_fine)
    used = place >= 0
    weight = np.bincount(
        fine[used] * n_bins + place[used], cells.weight[used], n_fine * n_bins
    ).reshape(n_fine, n_bins)
    return np.divide(weight, total[:, None], out=np.zeros_like(weight), where=total[:, None] > 0)
