"""Its cells hold the top label's sums, in another order."""

from __future__ import annotations

from calibrant.accumulators import uncertainty
from calibrant.laws.basis import Laws, inside, near, score_sums, slack
from calibrant.pane import Pane
from calibrant.policies import POLICIES


def laws(pane: Pane) -> Laws:
    """Its cells hold the top label's sums, in another order."""
    whole, grid = score_sums(pane)[1], uncertainty.uncertainty_grid()
    places, counts, columns = pane["uncertainty"].blocks["cells"].filled()
    sums = dict(zip(uncertainty.SUMS, columns, strict=True))
    yield "uncertainty: predictions differ from counts", counts[0].sum() == pane.counts["n_labelled"]
    for suffix, at in (("_pooled", 0), ("", 1)):
        own, weight = sums["weight" + suffix], whole["weight"][at]
        yield f"uncertainty: weight{suffix} differs from scores", near(own.sum(), weight, weight)
        yield (
            "uncertainty: entropy outside its cell",
            inside(grid.lower[places] * own, sums["uncertainty" + suffix], grid.upper[places] * own, own),
        )
        confidence = sums["confidence" + suffix].sum()
        yield (
            f"uncertainty: confidence{suffix} differs from scores",
            near(confidence, whole["accuracy_null"][at], weight),
        )
        variance, wanted = sums["null_variance" + suffix].sum(), whole["accuracy_null_variance"][at]
        yield (
            f"uncertainty: null_variance{suffix} differs from scores",
            near(variance, wanted, wanted + weight),
        )
        yield (
            "uncertainty: null_variance is negative",
            sums["null_variance" + suffix] >= -slack(own),
        )
    for policy, correct, weight in zip(POLICIES, whole["correct"], whole["weight"], strict=True):
        yield (
            f"uncertainty: correct_{policy} differs from scores",
            near(sums[f"correct_{policy}"].sum(), correct, weight),
        )
