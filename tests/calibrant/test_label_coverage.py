"""Coverage of labels, its gradient, and delays of labels against raw rows."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.accumulators.delays import DELAY_BINS, RELATIVE_ERROR, UNKNOWN, delay_bin
from calibrant.raters.label_coverage import coverage

SPEC = PaneSpec("binary", 2)


def pane_of(p: np.ndarray, labelled: np.ndarray, delays: np.ndarray | None = None) -> Pane:
    labels = [1 if each else None for each in labelled]
    columns = {"confidences": p, "labels": labels, "ids": [f"i{i}" for i in range(len(p))]}
    batch = Batch.from_columns(columns).batch
    pane = Pane(SPEC)
    pane.fill_batch(batch if delays is None else replace(batch, delays=delay_bin(delays)))
    return pane


def test_quantiles_are_those_of_the_rows_within_the_grid() -> None:
    rng = np.random.default_rng(1)
    delays = rng.lognormal(11, 2, 4000)
    half = np.arange(4000) < 2000
    complete = pane_of(rng.random(2000), np.ones(2000, bool), delays[half])
    complete.merge(pane_of(rng.random(2000), np.ones(2000, bool), delays[~half]))
    result = coverage(complete)["delay"]
    assert result["n"] == 4000
    for name, share in (("median_s", 0.5), ("q90_s", 0.9), ("q99_s", 0.99)):
        exact = np.quantile(delays, share, method="inverted_cdf")
        assert exact * (1 - 1e-12) <= result[name] <= exact * (1 + RELATIVE_ERROR)


def test_bins_of_delays_cover_everything() -> None:
    assert delay_bin([-5, 0, 0.99]).tolist() == [0, 0, 0]
    assert delay_bin([1e12]) == DELAY_BINS - 1
    assert (np.diff(delay_bin(np.geomspace(0.1, 1e9, 10_000))) >= 0).all()


def test_unknown_delays_and_unlabelled_rows_do_not_count() -> None:
    p = np.array([0.1, 0.4, 0.8])
    pane = pane_of(p, np.array([True, False, True]), np.array([5.0, 5.0, 5.0]))
    assert coverage(pane)["delay"]["n"] == 1 + 1
    unknown = replace(
        Batch.from_columns({"confidences": [0.5], "labels": [1]}).batch, delays=np.array([UNKNOWN])
    )
    pane.fill_batch(unknown)
    assert coverage(pane)["delay"]["n"] == 2
    pane.subtract(pane.copy())
    assert coverage(pane)["delay"]["median_s"] is None


def test_the_gradient_is_seen_where_there_is_one_and_covers_zero_where_there_is_none() -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(100):
        p = rng.random(400)
        result = coverage(pane_of(p, rng.random(400) < 0.6))["gradient"]
        missed += not result["interval"][0] <= 0 <= result["interval"][1]
    assert missed <= 12
    p = rng.random(2000)
    result = coverage(pane_of(p, rng.random(2000) < 0.2 + 0.6 * p))
    assert result["gradient"]["interval"][0] < 0.6 < result["gradient"]["interval"][1]
    assert result["gradient"]["p_value"] < 1e-6
    assert result["coverage"] == pytest.approx(0.5, abs=0.05)
    assert result["by_bin"][0] < 0.35 < 0.65 < result["by_bin"][-1]


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [1000, 100_000])
def test_a_constant_share_has_no_slope_to_the_last_bit(n: int, every: int) -> None:
    p = np.repeat(np.random.default_rng(5).random(n // 20), every)
    labelled = np.arange(len(p)) % every == 0
    result = coverage(pane_of(p, labelled))["gradient"]
    assert result["slope"] == 0.0
    if every == 1:
        assert (result["interval"], result["p_value"]) == ([0.0, 0.0], None)
    one_less = coverage(pane_of(p, labelled & (np.arange(len(p)) != np.argmax(p * labelled))))[
        "gradient"
    ]
    assert -1.0 < one_less["slope"] < -1e-7


def test_nothing_is_not_zero_and_is_json() -> None:
    result = coverage(Pane(SPEC))
    assert (result["coverage"], result["gradient"]["slope"], result["n_predictions"]) == (
        None,
        None,
        0,
    )
    json.dumps(result, allow_nan=False)
    one = coverage(pane_of(np.array([0.3]), np.array([False])))
    assert (one["coverage"], one["gradient"]["slope"]) == (0.0, None)
