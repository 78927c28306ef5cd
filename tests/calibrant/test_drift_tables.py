"""Rates of false alarms, slices that are flagged, and the unit-weighted tables of panes."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import Batch, Pane, PaneSpec
from calibrant.core.label_policies import POLICIES
from calibrant.drift.unit_tables import (
    merged,
    unit_table,
)
from calibrant.inference.false_alarm_rate import FalseAlarms, flagged
from calibrant.raters.label_coverage import label_coverage

BINS = 15


@pytest.mark.parametrize(
    ("text", "cohort_s", "length"),
    [
        ("1 per P10Y", 86_400, 3650.0),
        ("2 per P1Y", 3600, 4380.0),
        ("1 per P4W", 86_400, 28.0),
        ("1 per P1YT12H", 43_200, 731.0),
    ],
)
def test_false_alarms_are_read(text, cohort_s, length):
    assert FalseAlarms.parse(text).run_length(cohort_s) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "0 per P1Y",
        "1 per P",
        "1 per P1M",
        "1 per P0D",
        "1 per PT",
        "1 per P1DT",
        "-1 per P1Y",
    ],
)
def test_other_words_are_rejected(text):
    with pytest.raises(ValueError):
        FalseAlarms.parse(text)


def test_more_alarms_than_cohorts_are_rejected():
    with pytest.raises(ValueError):
        FalseAlarms.parse("9 per P1W").run_length(86_400)


def pane_of(units: list[str], seed: int = 0) -> Pane:
    rng = np.random.default_rng(seed)
    n = len(units)
    columns = {
        "confidences": rng.random(n).tolist(),
        "labels": [rng.integers(0, 2, 3).tolist() for _ in range(n)],
        "ids": [f"{seed}-{i}" for i in range(n)],
        "units": units,
    }
    pane = Pane(PaneSpec("binary", 2))
    pane.fill_batch(Batch.from_columns(columns, task="binary", n_classes=2).batch)
    return pane


def test_tables_of_a_pane_give_every_unit_weight_one():
    pane = pane_of(["a"] * 40 + ["b"] * 3 + ["c"])
    for raters in POLICIES:
        table = unit_table(pane, raters)
        assert table.n_units == pytest.approx(3.0)
        assert table.occupancy.sum() == pytest.approx(3.0)


def test_table_of_merged_panes_is_the_merged_table():
    one, other = pane_of([f"u{i // 2}" for i in range(30)]), pane_of([f"v{i}" for i in range(9)], 1)
    for raters in POLICIES:
        apart = merged([unit_table(one, raters), unit_table(other, raters)])
        complete = unit_table(one.copy().merge(other), raters)
        for name in ("weight", "confidence", "correct", "occupancy"):
            assert getattr(complete, name) == pytest.approx(getattr(apart, name))
        # Of a pane's units less is known when they are put with others'.
        assert (complete.squared >= apart.squared - 1e-12).all()


def test_no_tables_merge_to_an_empty_one():
    assert merged([]).n_units == 0


def test_label_coverage_counts_predictions():
    pane = Pane(PaneSpec("binary", 2))
    columns = {
        "confidences": [0.01, 0.02, 0.95, 0.96],
        "labels": [0, None, 1, 1],
        "ids": list("abcd"),
    }
    pane.fill_batch(Batch.from_columns(columns, task="binary", n_classes=2).batch)
    result = label_coverage(pane)
    assert result["labelled"] == 0.75
    assert (result["by_bin"][0], result["by_bin"][-1], result["by_bin"][7]) == (0.5, 1.0, None)
    assert label_coverage(Pane(PaneSpec("binary", 2)))["labelled"] is None


def test_slices_flagged_as_the_definition_says():
    """Benjamini and Yekutieli: the largest k whose k-th p-value is at most k q / (m Σ 1/i)."""
    rng = np.random.default_rng(6)
    for _ in range(50):
        values = dict(zip("abcdefg", 10 ** -rng.uniform(0, 4, 7), strict=True))
        ordered = sorted(values, key=values.get)
        harmonic = sum(1 / i for i in range(1, 8))
        ks = [k for k in range(1, 8) if values[ordered[k - 1]] <= k * 0.05 / (7 * harmonic)]
        assert flagged(values) == ordered[: max(ks, default=0)]
    assert flagged({}) == []
