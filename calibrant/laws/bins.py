"""Laws of equal-width tables with the columns of `replicates.TABLE_SUMS`."""

from __future__ import annotations

from calibrant.accumulators import replicates
from calibrant.accumulators.block import Block
from calibrant.laws.basis import Laws, inside, near, score_sums
from calibrant.pane import Pane
from calibrant.policies import POLICIES


def laws_of_bins(pane: Pane, name: str, block: Block, bins: int, tables: int) -> Laws:
    """Laws of equal-width tables with the columns of `replicates.TABLE_SUMS`."""
    weight = score_sums(pane)[1]["weight"]
    places, counts, columns = block.filled()
    sums = dict(zip(replicates.TABLE_SUMS, columns, strict=True))
    lower, upper = places % bins / bins, (places % bins + 1) / bins
    yield (
        f"{name}: predictions differ from counts",
        counts[0].sum() == tables * pane.counts["n_labelled"],
    )
    for suffix, whole in (("_pooled", weight[0]), ("", weight[1])):
        own = sums["weight" + suffix]
        yield (
            f"{name}: weight differs from scores",
            near(own.sum(), tables * whole, tables * whole),
        )
        yield (
            f"{name}: confidence outside its bin",
            inside(lower * own, sums["confidence" + suffix], upper * own, own),
        )
    for policy in POLICIES:
        own = sums["weight_pooled" if policy == "pooled" else "weight"]
        yield (
            f"{name}: correct_{policy} beyond the weight",
            inside(0.0, sums[f"correct_{policy}"], own, own),
        )
