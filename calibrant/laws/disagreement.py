"""Of predictions with several votes, each between no disagreement and full."""

from __future__ import annotations

import numpy as np

from calibrant.accumulators import disagreement
from calibrant.laws.basis import Laws, inside, near, slack, square_within
from calibrant.laws.label_uncertainty import of_several
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    several = pane.counts["n_labelled"] - pane.counts["n_one_rating"]
    for name, block in pane["disagreement"].blocks.items():
        yield (
            f"disagreement ({name}): predictions differ from counts",
            block.counts.sum() == several,
        )
        seen, whole = block.sums[disagreement.SUMS.index("disagreement")], block.sums[0]
        yield f"disagreement ({name}): beyond the weight", inside(0.0, seen, whole, whole)
    yield from _laws_of_cells(pane)


def _laws_of_cells(pane: Pane) -> Laws:
    """Its sums are those of label uncertainty, by the predicted disagreement."""
    kept = pane["disagreement"].blocks
    places, counts, columns = kept["cells"].filled()
    grid, sums = disagreement.DISAGREEMENT_GRID, dict(zip(disagreement.SUMS, columns, strict=True))
    lower, upper = grid.lower[places], grid.upper[places]
    for suffix in ("", "_by_ratings"):
        at = {name: sums[name + suffix] for name in disagreement.MOMENTS}
        several, own, seen = of_several(pane, suffix), at["weight"], at["disagreement"]
        scale = own.sum()
        epistemic = several["squared_gap"] - several["correction"]
        loss = at["predicted_squared"] - 2.0 * at["product"] + seen
        for name, mine, theirs in (
            ("weight", own, several["weight"]),
            ("disagreement", seen, several["disagreement"]),
            ("epistemic", at["epistemic"], epistemic),
            ("loss", loss, several["disagreement_loss"]),
        ):
            yield (
                f"disagreement: {name}{suffix} differs from label_uncertainty",
                near(mine.sum(), theirs.sum(), scale),
            )
        for name, low, high in (
            ("disagreement", 0.0, own),
            ("predicted", lower * own, upper * own),
            ("predicted_squared", lower**2 * own, upper**2 * own),
            ("product", lower * seen, upper * seen),
        ):
            yield f"disagreement: {name}{suffix} outside its cell", inside(low, at[name], high, scale)
        squared, seen_squared = at["weight_squared"], at["disagreement_weight_squared"]
        yield (
            f"disagreement: squared weights{suffix} out of range",
            square_within(own, counts[0], squared, scale) & (squared <= own**2 + slack(scale**2)),
        )
        for name, most in (
            ("disagreement_weight_squared", squared),
            ("disagreement_squared_weight_squared", seen_squared),
        ):
            yield f"disagreement: {name}{suffix} out of range", inside(0.0, at[name], most, scale**2)
        yield (
            f"disagreement: squares{suffix} below the square of their mean",
            square_within(seen_squared, squared, at["disagreement_squared_weight_squared"], scale**2),
        )
    several = of_several(pane)
    table = kept["replicates"].sums.reshape(len(disagreement.REPLICATE_SUMS), -1, disagreement.REPLICATE_BINS)
    predicted = table.sum(axis=1)[1]
    low, high = (np.arange(disagreement.REPLICATE_BINS) + i for i in (0, 1))
    own, scale = table[0].sum(axis=0), several["weight"].sum()
    bins = disagreement.REPLICATE_BINS
    yield "disagreement (replicates): outside its bin", inside(low / bins * own, predicted, high / bins * own, scale)
    yield "disagreement (replicates): predicted differs from the cells", near(predicted.sum(), sums["predicted"].sum(), scale)
    for at_row, name in ((0, "weight"), (2, "disagreement")):
        yield (
            f"disagreement (replicates): {name} differs from label_uncertainty",
            near(table[at_row].sum(axis=1), several[name], scale),
        )
