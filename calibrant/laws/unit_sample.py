"""Units that were seen are among those that were counted."""

from __future__ import annotations

from calibrant.accumulators.unit_sample import UnitSample
from calibrant.laws.basis import Laws
from calibrant.pane import Pane


def laws(pane: Pane) -> Laws:
    n = pane.counts
    sample = pane["unit_sample"]
    assert isinstance(sample, UnitSample)
    yield "unit_sample: a unit without a batch", sample.batches > 0
    yield "unit_sample: more than counts' units", sum(sample.batches.tolist()) <= n["n_units"]
