"""Every unit weighs one."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators import units
from calibrant.laws.basis import Laws, inside, near, score_bins
from calibrant.pane import Pane
from calibrant.policies import POLICIES


def laws(pane: Pane) -> Laws:
    n, block = pane.counts, pane["units"].blocks["bins"]
    counts, sums = block.counts, dict(zip(units.SUMS, block.sums, strict=True))
    lower, upper = np.arange(block.size) / block.size, np.arange(1, block.size + 1) / block.size
    yield "units: predictions differ from counts", counts[0].sum() == n["n_predictions"]
    yield "units: labelled differ from counts", counts[1].sum() == n["n_labelled"]
    yield "units: more labelled than predictions", counts[1] <= counts[0]
    yield "units: occupancy out of range", inside(0.0, sums["occupancy"], counts[0], 1.0)
    for suffix in ("", "_pooled"):
        own = sums["weight" + suffix]
        yield (
            f"units: weight{suffix} is not the number of units",
            near(own.sum(), n["n_units"], n["n_units"]),
        )
        yield f"units: weight{suffix} out of range", inside(0.0, own, counts[1], 1.0)
        yield (
            "units: confidence outside its bin",
            inside(lower * own, sums["confidence" + suffix], upper * own, 1.0),
        )
        yield (
            "units: squared weights out of range",
            inside(0.0, sums["weight_squared" + suffix], own, 1.0),
        )
    for policy in POLICIES:
        own = sums["weight_pooled" if policy == "pooled" else "weight"]
        yield (
            f"units: correct_{policy} beyond the weight",
            inside(0.0, sums[f"correct_{policy}"], own, 1.0),
        )
    bins = score_bins(pane, units.UNIT_BINS)
    if bins is not None:
        yield "units: other bins than the fine cells", counts[1] == bins[0]
