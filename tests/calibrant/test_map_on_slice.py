"""What a map for all predictions does to one slice."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

import calibrant as cal
from calibrant.stability.before_and_after import map_on_slice

HALVED = {
    "method": "platt",
    "scope": "positive",
    "class": None,
    "parameters": {"slope": 0.5, "intercept": 0.0, "clip": 1e-12},
}


def pane_of(slope, n=3000, seed=1):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.7, 1.5, n)
    labels = (rng.random(n) < expit(slope * logit(p))).astype(int)
    return cal.Pane.fill(p, labels, ids=[f"i{i}" for i in range(n)])


def test_a_slice_that_is_good_gets_worse_and_one_that_is_off_does_not():
    found = map_on_slice(None, HALVED, pane_of(1.0), "mean", 0.95)
    assert found["is_worse"] and 0.0 < found["before"] < 0.05 < 0.1 < found["after"]
    better = map_on_slice(None, HALVED, pane_of(0.5), "mean", 0.95)
    assert (better["is_worse"], better["before"], better["after"]) == (False, None, None)


def test_the_errors_are_those_of_the_current_map_and_the_next():
    """The map that suits the slice is replaced by one that does not."""
    flat = HALVED | {"parameters": {"slope": -0.3, "intercept": 0.0, "clip": 1e-12}}
    found = map_on_slice(HALVED, flat, pane_of(0.5), "mean", 0.95)
    assert found["is_worse"] and found["before"] < 0.06 < 0.1 < found["after"]


@pytest.mark.parametrize("n", [10, 19])
def test_few_labels_decide_nothing(n):
    assert not map_on_slice(None, HALVED, pane_of(1.0, n), "mean", 0.95)["is_worse"]


def test_chance_is_no_warning():
    """Of panes whose labels follow the probabilities, the same map is never worse than itself."""
    assert not map_on_slice(HALVED, HALVED, pane_of(1.0), "mean", 0.95)["is_worse"]
