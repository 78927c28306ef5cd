"""The update that is recommended for a model that changed or is off: the simplest that holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import expit, logit, softmax

from calibrant import Batch
from calibrant.drift.cohort_tables import row_table
from calibrant.drift.recommendation import (
    UNITS_PER_PARAMETER,
    Recalibration,
    cox_updates,
    misfit,
    recalibration,
    recommended_action,
    softmax_update,
)
from calibrant.drift.unit_tables import UnitTable, merged


@dataclass(frozen=True)
class SimulatedChange:
    """logit E[label] = intercept + slope · logit(score)."""

    intercept: float = 0.0
    slope: float = 1.0


SLOPE = SimulatedChange(slope=0.75)
PLAIN = Recalibration()


def expected_table(change=SLOPE, n=10_000.0):
    """A table without chance: every bin's labels are exactly as likely as the change says."""
    score = (np.arange(15) + 0.5) / 15
    weight = np.full(15, n / 15)
    rate = expit(change.intercept + change.slope * logit(score))
    return UnitTable(weight, weight * score, weight * rate, weight, weight)


def drawn_table(rng, change, n):
    score = rng.beta(0.7, 2.2, n)
    rate = expit(change.intercept + change.slope * logit(np.clip(score, 1e-9, 1 - 1e-9)))
    return UnitTable.at_scores(score, np.ones(n), (rng.random(n) < rate).astype(float))


def bent(n=20_000.0):
    """One bin's labels are rarer by half; no shift or stretch corrects that."""
    table = expected_table(SimulatedChange(), n)
    correct = table.correct.copy()
    correct[7] *= 0.5
    return replace(table, correct=correct)


@pytest.mark.parametrize(
    ("table", "action"),
    [
        (expected_table(SimulatedChange(intercept=0.4)), "intercept"),
        (expected_table(SLOPE), "temperature"),
        (expected_table(SimulatedChange(0.4, 0.7)), "slope_intercept"),
        (bent(), "flexible"),
    ],
)
def test_the_simplest_update_that_corrects_is_recommended(table, action):
    found = recommended_action(table)
    assert found["action"] == found["evidence"]["update"] == action
    assert recommended_action(table, table)["action"] == action


def test_an_update_needs_fifty_units_and_twenty_per_parameter():
    few = recommended_action(expected_table(SLOPE, 49.0))
    assert few["action"] == "collect_more" and "needs 50 labelled units" in few["reason"]
    assert recommended_action(expected_table(SLOPE, 51.0))["action"] != "collect_more"
    bins = recommended_action(bent(20.0 * 15 - 1.0))
    assert bins["evidence"]["n_units_needed"] >= UNITS_PER_PARAMETER


@pytest.mark.parametrize("n", [1000.0, 20_000.0])
def test_nothing_is_too_few_above_a_thousand_labels(n):
    for table in (expected_table(SLOPE, n), bent(n), expected_table(SimulatedChange(3.0, 0.1), n)):
        assert recommended_action(table)["action"] != "collect_more"


def test_a_change_that_did_not_last_needs_no_action():
    found = recommended_action(
        expected_table(SLOPE, 4000.0), expected_table(SimulatedChange(), 20_000.0)
    )
    assert found["action"] == "none" and "did not last" in found["reason"]


def test_later_cohorts_that_contradict_reject_an_update():
    shifted = expected_table(SimulatedChange(intercept=0.4))
    assert (
        recommended_action(shifted, expected_table(SimulatedChange(-0.4)))["action"] == "flexible"
    )
    assert misfit(UnitTable.empty(), PLAIN) == 1.0
    near = expected_table(SimulatedChange(intercept=0.05), 1e6)
    assert misfit(near, PLAIN) < 1e-6
    assert misfit(near, PLAIN, 0.02) == 1.0


def test_estimates_are_of_all_cohorts_since_the_change():
    first, later = (
        expected_table(SimulatedChange(0.4), 1e3),
        expected_table(SimulatedChange(0.5), 1e4),
    )
    found = recommended_action(first, later)
    assert found["action"] == "intercept"
    assert found["evidence"]["parameters"]["intercept"] == pytest.approx(
        recalibration(merged([first, later]), slope=False).intercept
    )


def test_the_reason_has_direction_and_size():
    table = expected_table(SimulatedChange(intercept=-np.log(2.0)))
    expected = "Outcomes are less frequent than predicted: multiply the odds by 0.50."
    assert recommended_action(table, table)["reason"].endswith(expected)
    narrow = expected_table(SimulatedChange(slope=0.5))
    reason = recommended_action(narrow, narrow)["reason"]
    assert reason.count("extreme") == 1 and "not extreme" not in reason
    assert reason.endswith("The scores are too extreme: divide their log-odds by 2.00.")


def test_scores_of_exactly_0_and_1_have_no_log_odds_to_divide():
    """The text said to divide by 12.89, which is of a clip at 1e-12."""
    n = np.array([600.0, 400.0])
    score, correct = np.array([0.0, 1.0]), np.array([60.0, 300.0])
    found = recommended_action(UnitTable.at_scores(score, n, correct))
    assert found["action"] == "flexible"
    assert found["evidence"]["parameters"] == {"certain_share": 1.0}
    assert found["reason"].startswith("100 % of the scores are exactly 0 or 1")
    assert "divide" not in found["reason"].lower()


def test_a_reason_names_what_was_tried():
    """Of several classes a temperature alone is tried: "no shift or scale corrects it" was not shown."""
    table = bent()
    update = softmax_update(2.0, table, UnitTable.empty())
    assert not update.holds
    reason = recommended_action(table, updates=[update])["reason"]
    assert "so no temperature corrects it" in reason
    assert "so no shift or scale corrects it" in recommended_action(table)["reason"]


def rows_of(rng, n, temperature, n_classes=10):
    """Logits of a model whose labels follow the softmax at a temperature."""
    logits = 2.5 * rng.standard_normal((n, n_classes))
    truth = softmax(logits / temperature, axis=1)
    labels = (truth.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return Batch.from_columns({"logits": logits, "labels": labels}, task="multiclass").batch


def table_at(batch, temperature):
    divided = {
        "method": "temperature",
        "scope": "full",
        "class": None,
        "parameters": {"temperature": temperature},
    }
    return row_table(batch, "score", "mean", divided)


def test_a_temperature_of_several_classes_is_not_a_slope_of_the_top_label():
    """The defect that this replaces: the top label's table gave another temperature, and often a richer map."""
    wrong, richer, rejected = [], 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        first, later = rows_of(rng, 2500, 2.0), rows_of(rng, 1500, 2.0)
        plain = [row_table(batch, "score", "mean") for batch in (first, later)]
        naive = next((each for each in cox_updates(*plain) if each.holds), None)
        richer += naive is None or naive.action != "temperature"
        wrong += [
            1.0 / each.parameters["slope"]
            for each in cox_updates(*plain)
            if each.action == "temperature"
        ]
        complete = merged([table_at(batch, 2.0) for batch in (first, later)])
        update = softmax_update(2.0, complete, table_at(later, 2.0))
        rejected += not update.holds
        found = recommended_action(*plain, updates=[update])
        assert found["action"] == ("temperature" if update.holds else "flexible")
    assert rejected <= 3
    assert richer >= 20 or abs(np.mean(wrong) - 2.0) > 0.2
