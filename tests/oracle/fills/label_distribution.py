"""numpy fill of the accumulator `label_distribution`: the specification of the kernel's."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.distribution_gaps import (
    HISTOGRAM_BINS,
    LabelDistributions,
    compare_rows,
)
from calibrant.core.batch_sums import N_REPLICATES
from calibrant.core.grid import equal_width_bin
from calibrant.raters.label_comparison import Comparisons
from tests.oracle.batch_sums import FillSums
from tests.oracle.derived import derived_bin, derived_rules

_CHUNK = 1 << 17


class Filled(LabelDistributions):
    """The accumulator with its fill."""

    def fill(self, batch_sums: FillSums) -> None:  # type: ignore[override]
        rows = max(256, _CHUNK // self.spec.n_classes)
        for start in range(0, batch_sums.n, rows):
            part = slice(start, min(start + rows, batch_sums.n))
            self._add(batch_sums, part, compare_rows(batch_sums, part))

    def _add(self, batch_sums: FillSums, part: slice, found: Comparisons) -> None:
        place, weight = batch_sums.replicate[part], batch_sums.weights[part]
        two = np.isfinite(found.disagreement)
        block = self.blocks["sums"]
        for i, chosen in enumerate((np.ones(len(place)), found.untied, two)):
            block.counts[i] += np.bincount(place, chosen, N_REPLICATES).astype(np.int64)
        columns = (
            np.ones(len(place)),
            found.entropy_gap,
            np.abs(found.entropy_gap),
            found.distance,
            found.same_order,
            found.same_strict_order,
            found.untied,
            two,
            np.where(two, found.disagreement, 0.0),
        )
        for i, values in enumerate(columns):
            block.sums[i] += np.bincount(place, weight * values, N_REPLICATES)
        scaled = (found.entropy_gap / np.log(self.spec.n_classes) + 1.0) / 2.0
        places = {
            "entropy_gap": derived_bin(scaled, HISTOGRAM_BINS),
            "distance": equal_width_bin(
                np.clip(found.distance, 0.0, 1.0),
                HISTOGRAM_BINS,
                rules=derived_rules(batch_sums.batch.edge_rules),
            ),
        }
        for name, bins in places.items():
            self.blocks[name].counts[0] += np.bincount(bins, minlength=HISTOGRAM_BINS)
            self.blocks[name].sums[0] += np.bincount(bins, weight, HISTOGRAM_BINS)
