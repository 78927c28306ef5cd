"""Intervals of errors that are smaller than chance leaves, and of scores that are certain."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import calibrant as cal


@pytest.mark.parametrize("n", [200, 1000])
@pytest.mark.parametrize("metric", [cal.ece, cal.ace, cal.mce])
def test_an_error_of_zero_does_not_exclude_errors_as_large_as_its_noise(
    metric: object, n: int
) -> None:
    """All scores .5 and exactly half of the labels 1: a share of 1 that is off by a standard error is likely, by four is not."""
    assert callable(metric)
    found = metric(np.full(n, 0.5), np.arange(n) % 2, ids=np.arange(n))
    deviation = 0.5 / n**0.5
    assert found.value == pytest.approx(0.0, abs=1e-12) and found.interval[0] == 0.0
    assert deviation < found.interval[1] < 4.0 * deviation


@pytest.mark.parametrize("n_units", [100, 300])
def test_certain_scores_that_are_all_right_have_no_interval(n_units: int) -> None:
    labels = np.arange(300) % 2
    for scores in (labels.astype(float), np.eye(2)[labels]):
        found = cal.ece(scores, labels, units=np.arange(300) % n_units)
        assert found.value == 0.0 and found.interval is None
        assert found.extra["interval_reason"] == "few_errors"


def test_a_certain_score_that_is_wrong_has_an_interval() -> None:
    labels = np.arange(300) % 2
    scores = np.abs(labels - (np.arange(300) < 30)).astype(float)
    found = cal.ece(scores, labels, units=np.arange(300) % 150)
    assert found.value == pytest.approx(0.1)
    assert found.interval is not None and found.interval[0] < 0.1 < found.interval[1]


def test_the_net_benefit_of_certain_scores_does_not_overflow() -> None:
    scores = (np.arange(300) % 2).astype(float)
    labels = np.arange(300) % 3 > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cal.net_benefit(scores, labels, units=np.arange(300) // 2)
    acted, right = scores == 1, labels == 1
    assert found.value == pytest.approx((acted & right).mean() - (acted & ~right).mean())
