"""Very many classes: confidence with correctness, and the largest probabilities with the rest as one class."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal

RNG = np.random.default_rng(5)
N, K, TOP = 200, 300, 5
P = RNG.dirichlet(np.full(K, 0.05), N)
LABELS = np.array([RNG.choice(K, p=p) for p in P])


def test_confidence_and_correctness_have_the_error_of_the_top_label() -> None:
    found = cal.ece(P.max(axis=1), (P.argmax(axis=1) == LABELS).astype(int))
    assert found.value == pytest.approx(cal.ece(P, LABELS).value, abs=1e-12)


def test_the_rest_is_one_class() -> None:
    places = np.argsort(-P, axis=1)[:, :TOP]
    top = np.take_along_axis(P, places, axis=1)
    hit = places == LABELS[:, None]
    labels = np.where(hit.any(axis=1), hit.argmax(axis=1), TOP)
    found = cal.nll(np.c_[top, 1 - top.sum(axis=1)], labels)
    rest = 1 - top.sum(axis=1)
    own = np.where(hit.any(axis=1), P[np.arange(N), LABELS], rest)
    assert found.value == pytest.approx(-np.log(own).mean(), abs=1e-9)


def test_stated_confidences_have_a_bin_each() -> None:
    """A model states .8, .9, .95 or 1: each value is its own bin, and names give an interval."""
    rng = np.random.default_rng(1)
    stated = rng.choice([0.8, 0.9, 0.95, 1.0], 400)
    right = (rng.random(400) < stated - 0.2).astype(int)
    edges = [0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1]
    found = cal.evaluate(stated, right, "ece,nll,nll(floor=0.01)", bins=edges, ids=np.arange(400))
    values, counts = np.unique(stated, return_counts=True)
    gaps = [abs(right[stated == value].mean() - value) for value in values]
    assert found["ece"].value == pytest.approx(counts @ gaps / 400, abs=1e-12)
    assert found["ece"].interval is not None
    assert found["nll"].value is None and found["nll(floor=0.01)"].value is not None
