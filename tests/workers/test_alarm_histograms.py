"""Days that come as plain histograms: evidence where they weigh units as one, passed over and said so where not."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from calibrant import Pane
from calibrant.core.histogram import Histogram
from tests.workers.test_alarm import CONFIG, Sealing, pane_of


def posted(rng, n_units, n=200, slope=0.4):
    """A day as one plain histogram of so many units."""
    score = rng.beta(0.7, 2.2, n)
    label = rng.random(n) < expit(slope * logit(np.clip(score, 1e-9, 1 - 1e-9)))
    cell = np.maximum(np.ceil(score * 3600).astype(int) - 1, 0)
    sums = [np.bincount(cell, w, 3600).tolist() for w in (np.ones(n), score, label)]
    fields = dict(zip(("count", "sum_confidence", "sum_correct"), sums, strict=True))
    return Histogram.from_fields(
        fields | {"kind": "positive", "bins": 3600, "n_units": n_units}, CONFIG.spec()
    )


def test_histograms_that_weigh_units_as_one_count(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(5)
    raised = []
    for day in range(1, 31):
        pane = Pane(CONFIG.spec())
        pane.fill_histogram(posted(rng, 200))
        raised += sealing.seal(day, {"": pane})
    detector = sealing.detector()
    assert raised == [] and detector.words.calibration == "off"
    assert detector.total.n_units == 30 * 200 and detector.n_passed == 0


def test_histograms_of_pixels_are_passed_over_and_counted(bench):
    sealing, rng = Sealing(bench), np.random.default_rng(5)
    for day in range(1, 4):
        pane = Pane(CONFIG.spec())
        pane.fill_histogram(posted(rng, 10))
        sealing.seal(day, {"": pane})
    detector = sealing.detector()
    assert (detector.n_passed, detector.why_passed) == (
        3,
        "histograms",
    ) and detector.total.n_units == 0
    # Predictions beside them are evidence all the same.
    both = pane_of(rng)
    both.fill_histogram(posted(rng, 10))
    sealing.seal(4, {"": both})
    assert sealing.detector().total.n_units == 200
