"""A part of the predictions; a pane of an earlier version has none of them."""

from __future__ import annotations

from calibrant.accumulators.sample import Sample
from calibrant.laws.basis import Laws, inside, weight_of
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    """A part of the predictions; a pane of an earlier version has none of them."""
    sample, n = pane["sample"], pane.counts
    assert isinstance(sample, Sample)
    yield "sample: more than counts' labelled", sample.n <= n["n_labelled"]
    yield "sample: more ratings than counts", sample.n_ratings <= n["n_ratings"]
    yield (
        "sample: more weight than counts",
        inside(0.0, sample.weight, weight_of(pane), weight_of(pane)),
    )
