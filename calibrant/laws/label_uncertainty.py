"""What is kept of label uncertainty knows which predictions have one vote, and which several."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators import label_uncertainty
from calibrant.laws.basis import Floats, Laws, inside, near, score_sums, scores_by_replicate, slack
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    n, weight = pane.counts, score_sums(pane)[1]["weight"]
    one, several = n["n_one_rating"], n["n_labelled"] - n["n_one_rating"]
    block = pane["label_uncertainty"].blocks["sums"]
    kept = dict(zip(label_uncertainty.SUMS, block.sums, strict=True))
    by_vote = block.counts[0].reshape(-1, 2).sum(axis=0)
    yield "label_uncertainty: predictions differ from counts", by_vote == [one, several]
    yield "label_uncertainty: ratings differ from counts", block.counts[1].sum() == n["n_ratings"]
    for suffix, whole in (("", weight[1]), ("_by_ratings", weight[0])):
        own = kept["weight" + suffix].sum()
        yield f"label_uncertainty: weight{suffix} differs from scores", near(own, whole, whole)
        for name in ("squared_gap", "spread"):
            scale = kept["weight" + suffix]
            yield (
                f"label_uncertainty: {name}{suffix} out of range",
                inside(0.0, kept[name + suffix], 2.0 * scale, scale),
            )
    yield from _laws_of_each(pane, kept, block.counts)


def _laws_of_each(pane: Pane, kept: dict[str, Floats], counts: NDArray[np.int64]) -> Laws:
    """By replicate and votes: one vote has no spread, and the Brier score is the squared gap and the spread."""
    by_replicate = counts.reshape(2, -1, 2)
    yield "label_uncertainty: several ratings among single votes", by_replicate[1, :, 0] == by_replicate[0, :, 0]
    yield "label_uncertainty: fewer ratings than votes", by_replicate[1, :, 1] >= 2 * by_replicate[0, :, 1]
    scores = scores_by_replicate(pane)
    for suffix, at in (("", 1), ("_by_ratings", 0)):
        columns = {name: kept[name + suffix].reshape(-1, 2) for name in label_uncertainty.MOMENTS}
        own, scale = columns["weight"], columns["weight"].sum()
        spread, correction = columns["spread"], columns["correction"]
        for name in ("spread", "correction", "disagreement_loss"):
            yield f"label_uncertainty: {name}{suffix} of single votes", near(columns[name][:, 0], 0.0, scale)
        yield f"label_uncertainty: correction{suffix} out of range", inside(0.0, correction, spread, scale)
        yield f"label_uncertainty: disagreement{suffix} beyond the weight", spread + correction <= own + slack(scale)
        loss = columns["disagreement_loss"]
        yield f"label_uncertainty: disagreement_loss{suffix} out of range", inside(0.0, loss, own, scale)
        weight, brier = own.sum(axis=1), (columns["squared_gap"] + spread).sum(axis=1)
        yield (
            f"label_uncertainty: weight{suffix} differs from replicates",
            near(weight, scores["weight"][:, at], scale),
        )
        yield (
            f"label_uncertainty: squared_gap{suffix} and spread differ from brier",
            near(brier, scores["brier"][:, at], scale),
        )


def of_several(pane: Pane, suffix: str = "") -> dict[str, Floats]:
    """The sums of predictions with several votes by replicate, and their observed disagreement."""
    block = pane["label_uncertainty"].blocks["sums"]
    kept = dict(zip(label_uncertainty.SUMS, block.sums, strict=True))
    columns = {name: kept[name + suffix].reshape(-1, 2)[:, 1] for name in label_uncertainty.MOMENTS}
    return columns | {"disagreement": columns["spread"] + columns["correction"]}
