"""The bins of a detector's table as rows of a result."""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import ratio
from calibrant.core.documents import Row
from calibrant.drift.unit_tables import UnitTable
from calibrant.inference.reliability_table import wilson


def bin_rows(table: UnitTable, ci: float = 0.95) -> list[Row]:
    """Return each bin with its gap and the interval of its accuracy (Wilson, for independent units)."""
    rate = np.clip(ratio(table.correct, table.weight), 0.0, 1.0)
    low, high = wilson(rate, table.weight, ci)
    rows: list[Row] = []
    for k, mean in enumerate(table.mean_confidence):
        here = bool(table.weight[k] > 0)
        gap = float(table.gap[k])
        rows.append(
            {
                "lower": k / table.n_bins,
                "upper": (k + 1) / table.n_bins,
                "n_units": float(table.weight[k]),
                "mean_confidence": float(mean) if here else None,
                "accuracy": float(mean) + gap if here else None,
                "gap": gap if here else None,
                "gap_interval": [float(low[k] - mean), float(high[k] - mean)] if here else None,
            }
        )
    return rows
