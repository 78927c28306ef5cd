"""What is recommended with a temperature is compared on the stored sample of a large window too."""

from __future__ import annotations

from typing import cast

import numpy as np

from calibrant import Pane
from calibrant.results.models import Model
from calibrant.results.reads import SAMPLE, SAMPLE_OF_FEW, State
from calibrant.results.temperature import TemperatureQuery, _accumulators, temperature

N = 2000


def test_the_sample_is_read_for_candidates() -> None:
    assert SAMPLE_OF_FEW in _accumulators(TemperatureQuery())
    for include in ("recommendation", "heldout", "curve,recommendation"):
        assert SAMPLE in _accumulators(TemperatureQuery(include=include))


def test_every_candidate_of_a_large_window_has_a_loss() -> None:
    rng = np.random.default_rng(7)
    logits = 2.0 * rng.normal(size=(N, 3))
    shares = np.exp(logits / 1.6)
    shares /= shares.sum(axis=1, keepdims=True)
    labels = (shares.cumsum(axis=1) < rng.random((N, 1))).sum(axis=1)
    pane = Pane.fill(logits=logits, labels=labels, sample_bytes=1 << 20)
    found = temperature(
        State(pane, cast(Model, None)), TemperatureQuery(include="recommendation")
    ).to_dict()
    candidates = found["recommendation"]["evidence"]["candidates"]
    assert all("nll" in each for each in candidates.values()), candidates
    assert found["recommendation"]["action"] == "temperature"
