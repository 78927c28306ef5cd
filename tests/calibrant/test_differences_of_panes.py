"""A difference of panes may have negative counts: results stay documents, and none raises."""

from __future__ import annotations

import json

import numpy as np
import pytest

import calibrant as cal
from calibrant.core.view import View
from calibrant.inference.reliability_table import reliability
from calibrant.raters.label_coverage import coverage
from calibrant.results.reliability import ReliabilityQuery

N = 40
RNG = np.random.default_rng(0)
P = RNG.dirichlet([1, 1, 1], N)
LABELS = [[int(each)] for each in RNG.integers(0, 3, N)]
ROWS = [RNG.integers(0, N, size=n) for n in (1, 5, 20, 60)]


def pane_of(rows) -> cal.Pane:
    return cal.Pane.fill(P[rows], [LABELS[i] for i in rows], units=[f"u{i // 2}" for i in rows])


@pytest.mark.parametrize("rows", ROWS, ids=len)
@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_of_a_difference_are_documents(rows, is_swapped):
    whole, part = pane_of(np.arange(N)), pane_of(rows)
    found = part - whole if is_swapped else whole - part
    query = ReliabilityQuery(bins=10, raters="mean").pane_query()
    for document in (reliability(View(found, query)), found.evaluate().to_dict()):
        json.dumps(document, default=float)


def test_more_labels_than_predictions_have_a_gradient_of_real_numbers():
    """As after labels that were subtracted with their predictions only in part."""
    pane = pane_of(np.arange(N))
    predictions, labelled = pane["units"].blocks["bins"].counts
    labelled[:] = 3 * predictions
    labelled[int(np.flatnonzero(predictions)[0])] = 0
    found = coverage(pane)["gradient"]
    json.dumps(found)
    assert found["slope"] is not None and found["interval"][0] <= found["interval"][1]
