"""Naive second versions of what drift says beside its evidence: the scores' watch, ratios, two windows, raters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import chi2, chi2_contingency, norm

from calibrant import Batch, Pane, PaneSpec
from calibrant.drift.comparison import compare
from calibrant.drift.effect import effect
from calibrant.drift.rater_shift import rater_or_model
from calibrant.drift.unit_tables import UnitTable, unit_table


def table_of(seed: int, bins: int = 8) -> UnitTable:
    """Units that contribute once each."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(20, 60, bins).astype(float)
    mean = (np.arange(bins) + 0.5) / bins
    correct = rng.binomial(weight.astype(int), mean**1.4).astype(float)
    return UnitTable(weight, weight * mean, correct, weight, weight)


def test_observed_over_expected_has_the_interval_of_its_logarithm() -> None:
    table = table_of(3)
    rate = table.correct / table.weight
    observed, expected = table.correct.sum(), table.confidence.sum()
    error = np.sqrt((table.weight * rate * (1.0 - rate)).sum()) / observed
    ends = observed / expected * np.exp(norm.ppf(0.975) * error * np.array([-1.0, 1.0]))
    found = effect(table)["observed_over_expected"]
    assert found["value"] == pytest.approx(observed / expected)
    assert found["interval"] == pytest.approx(ends.tolist())


def window(seed: int, n: int, power: float) -> Pane:
    rng = np.random.default_rng(seed)
    score = rng.random(n) ** power
    pane = Pane(PaneSpec("binary", 2))
    labels = (rng.random(n) < score).astype(int)
    pane.fill_batch(Batch.from_columns({"confidences": score, "labels": labels}).batch)
    return pane


def test_two_windows_differ_as_naive_tests_say() -> None:
    panes = window(1, 700, 1.0), window(2, 900, 1.2)
    now, before = (unit_table(pane, "mean", 10) for pane in panes)
    answer = compare(*panes, bins=10)
    shift, change = answer["score_shift"], answer["calibration_change"]
    counts = np.stack([now.occupancy, before.occupancy])
    p, q = counts / counts.sum(axis=1, keepdims=True)
    assert shift["jensen_shannon"] == pytest.approx(jensenshannon(p, q) ** 2)
    assert shift["total_variation"] == pytest.approx(np.abs(p - q).sum() / 2.0)
    # Every bin holds enough, so that none are joined.
    assert counts.min() > 20
    assert shift["p_value"] == pytest.approx(chi2_contingency(counts, correction=False).pvalue)
    statistic = variance = 0.0
    for k in range(10):
        spread = 0.0
        for table in (now, before):
            rate = (table.correct[k] + 0.5) / (table.weight[k] + 1.0)
            spread += rate * (1.0 - rate) / table.weight[k]
            variance += rate * (1.0 - rate) * table.weight[k] / table.n_units**2
        statistic += (now.gap[k] - before.gap[k]) ** 2 / spread
    assert change["statistic"] == pytest.approx(statistic)
    assert change["p_value"] == pytest.approx(chi2.sf(statistic, 10))
    reach = norm.ppf(0.975) * np.sqrt(variance)
    assert change["interval"] == pytest.approx([change["change"] - reach, change["change"] + reach])


@pytest.mark.parametrize(
    ("alarmed", "leaning", "quiet", "title"),
    [
        (0, 2, 1, "none"),
        (1, 0, 2, "rater shift"),
        (1, 1, 1, "model drift"),
        (1, 1, 2, "undecided"),
        (1, 0, 0, "undecided"),
    ],
)
def test_raters_that_lean_the_same_way_speak_for_the_model(
    alarmed: int, leaning: int, quiet: int, title: str
) -> None:
    said = (
        [{"status": "alarm"}] * alarmed
        + [{"status": "ok", "leans": True}] * leaning
        + [{"status": "ok"}] * quiet
    )
    result = rater_or_model({f"r{i}": each for i, each in enumerate(said)})
    assert result["title"] == title
