"""The picture of a verdict says what the numbers say, and is the same for the same numbers."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest

from calibrant.drift.detector import advance, fresh
from calibrant.drift.effect import bin_rows
from calibrant.drift.summary import STATUSES, summary
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.drift.verdict import verdict
from calibrant.figures.drift import draw_drift
from calibrant.figures.images import image
from tests.service.figure_marks import Figure

DAY = "2026-03-{:02d}T00:00:00Z"


def result(n_days: int = 20, factor: float = 0.6) -> dict:
    """A verdict as the engine answers it, of outcomes that come less often from day 10 on."""
    state, tables, recent = fresh(Tolerance.within(0.02)), [], []
    weight = np.full(15, 14.0)
    score = (np.arange(15) + 0.5) / 15
    for day in range(n_days):
        rate = score * (factor if day >= 10 else 1.0)
        tables.append(UnitTable(weight, weight * score, weight * rate, weight, weight))
        state = advance(state, day, tables[-1], 3650.0)
        recent.append(
            {
                "from": DAY.format(day + 1),
                "sr_log10": state.log_mixed_sr / np.log(10),
                "threshold_log10": 3.56,
            }
        )
    since = merged(tables[10:])
    found = verdict(state, 3650.0, 3650.0, merged(tables), since)
    found |= {"model": "risk", "detector": {}, "recent": recent, "bins_since_change": None}
    found |= {
        "summary": summary(found),
        "detector": {"scope": "score"},
        "scores": "mapped",
        "title": None,
        "start_of_change": None,
    }
    if found["status"] == "alarm":
        found |= {
            "title": "model drift",
            "start_of_change": DAY.format(11),
            "alarmed_at": {"from": DAY.format(14)},
        }
        found["bins_since_change"] = bin_rows(since)
    return found


def text_of(svg: bytes) -> str:
    return " ".join(Figure.of(svg).texts)


def test_an_alarm_is_drawn_with_its_words():
    found = result()
    assert found["status"] == "alarm" and "less frequent than predicted: 0." in found["summary"]
    svg = image(draw_drift(found))
    shown = text_of(svg)
    assert (
        "Drift of risk: alarm (model drift)" in shown
        and "since the change" in shown
        and "threshold" in shown
    )
    assert "Predictions no longer agree with outcomes." in shown
    assert image(draw_drift(found)) == svg
    assert image(draw_drift(found), "image/png").startswith(b"\x89PNG")


def test_the_axis_ends_at_twice_the_threshold():
    found = result()
    found["recent"][-3]["sr_log10"] = 12.0
    found["recent"][-2]["sr_log10"] = found["recent"][-1]["sr_log10"] = 97.4
    drawn = Figure.of(image(draw_drift(found)))
    assert "beyond the square of the threshold" in drawn.texts
    ticks = [
        float(text.replace("−", "-")) for text in drawn.texts if text.replace("−", "").isdigit()
    ]
    assert max(ticks) <= 2 * 3.56
    assert "97" not in " ".join(drawn.texts).replace("97 %", "")


def test_the_change_has_intervals():
    shown = text_of(image(draw_drift(result())))
    assert "since the change, with 95 % intervals" in shown


def test_without_alarm_nothing_is_said_to_have_changed():
    shown = text_of(image(draw_drift(result(factor=1.0))))
    assert "Drift of risk: ok" in shown and "since the change" not in shown


def test_without_detector_it_says_why():
    answer = {
        "model": "m" * 60,
        "status": "insufficient_data",
        "detector": None,
        "detector_reason": "no label_horizon",
    }
    shown = text_of(image(draw_drift(answer)))
    assert "no label_horizon" in shown and "…: insufficient data" in shown
    assert "Not enough data for a verdict" in shown
    # Equal windows are `ok` without a detector: that is no lack of data.
    shown = text_of(image(draw_drift(answer | {"status": "ok"})))
    assert "Not watched" in shown and "Not enough data" not in shown


@pytest.mark.parametrize("status", sorted(STATUSES))
def test_every_status_has_its_sentence(status):
    assert summary({"status": status, "n_units": 0.0, "sr": None, "effect": {}}) == STATUSES[status]


def test_a_slope_and_a_bin_are_reported():
    effect = {
        "observed_over_expected": {"value": 1.0, "interval": [0.9, 1.1]},
        "slope": {"value": 1.4, "interval": [1.2, 1.6]},
        "worst_bins": [{"lower": 0.2, "upper": 0.4, "gap": 0.1, "standard_errors": 4.0}],
    }
    said = summary({"status": "alarm", "n_units": 1.0, "sr": None, "effect": effect})
    assert (
        "not extreme enough: slope 1.40" in said
        and "Between 20 % and 40 %, outcomes are 10 percentage points above" in said
    )
    assert "frequent than predicted" not in said


def test_dates_have_equal_distances_across_the_end_of_a_month():
    found = result()
    first = datetime(2026, 10, 20, tzinfo=UTC)
    for day, row in enumerate(found["recent"]):
        row["from"] = (first + timedelta(days=day)).isoformat()
    found |= {"start_of_change": None, "alarmed_at": None}
    shown = re.findall(r"2026-\d\d-\d\d", text_of(image(draw_drift(found))))
    days = [date.fromisoformat(each).toordinal() for each in shown]
    gaps = {later - earlier for earlier, later in pairwise(days)}
    assert len(days) >= 3 and len(gaps) == 1
