"""numpy fill of the accumulator `uncertainty`: the specification of the kernel's."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.entropy_cells import (
    CELLS,
    Uncertainty,
    fill_uncertainty,
    uncertainty_grid,
)
from calibrant.core.batch_sums import BatchSums
from calibrant.core.grid import on_edge
from tests.oracle.derived import derived_rules


class Filled(Uncertainty):
    """The accumulator with its fill."""

    def fill(self, batch_sums: BatchSums) -> None:
        if not batch_sums.n:
            return
        uncertainty = np.minimum(batch_sums.entropy / np.log(self.spec.n_classes), 1.0)
        rules = derived_rules(batch_sums.batch.edge_rules)
        place = uncertainty_grid().locate(on_edge(uncertainty, CELLS), rules)
        fill_uncertainty(self.blocks["cells"], batch_sums, place, uncertainty)
