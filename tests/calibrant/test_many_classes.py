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
