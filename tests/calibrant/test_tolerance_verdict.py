"""The verdict against a tolerance: the complete interval is on one side, or nothing is shown."""

from __future__ import annotations

import pytest

from calibrant.metrics import Estimate
from calibrant.quality_report.verdicts import verdict_of


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((0.0, 0.04), "within_tolerance"),
        ((0.0, 0.05), "not_shown"),
        ((0.02, 0.06), "not_shown"),
        ((0.05, 0.06), "not_shown"),
        ((0.051, 0.06), "outside"),
        (None, "not_shown"),
    ],
)
def test_a_tolerance_is_compared_with_the_interval_not_the_value(interval, expected):
    for value in (0.0, 0.03, 0.9):
        assert Estimate(value, interval=interval).verdict(0.05) == expected
        assert verdict_of({"value": value, "interval": interval}, 0.05) == expected
