"""The picture of a verdict says what the numbers say, and is the same for the same numbers."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import numpy as np

from calibrant.drift.evaluation import effects_of, evaluate
from calibrant.drift.unit_tables import UnitTable, merged
from calibrant.figures.drift import draw_drift
from calibrant.figures.images import image
from calibrant.results.drift_bins import bin_rows
from tests.service.figure_marks import Figure

DAY = "2026-03-{:02d}T00:00:00Z"
WORDS = {
    name: {"sentence": f"A sentence on {name}."} for name in ("calibration", "change", "scores")
}


def result(n_days: int = 20, factor: float = 0.6) -> dict:
    """A verdict as the engine answers it, of outcomes that come less often from day 10 on."""
    tables, recent = [], []
    weight = np.full(15, 14.0)
    score = (np.arange(15) + 0.5) / 15
    for day in range(n_days):
        rate = score * (factor if day >= 10 else 1.0)
        tables.append(UnitTable(weight, weight * score, weight * rate, weight, weight))
        p = evaluate(effects_of(tables), 1 / 3650).p
        recent.append(
            {"from": DAY.format(day + 1), "evidence_log10": -np.log10(p), "threshold_log10": 3.56}
        )
    changed = factor < 1.0
    found = WORDS | {"model": "risk", "status": "alarm" if changed else "ok", "recent": recent}
    found["calibration"] = found["calibration"] | {"allowed": 0.02}
    found["change"] = found["change"] | {"start": DAY.format(11) if changed else None}
    return found | {
        "detector": {"scope": "score", "scores": "mapped"},
        "title": "model drift" if changed else None,
        "bins": bin_rows(merged(tables[:10])),
        "bins_since_change": bin_rows(merged(tables[10:])) if changed else None,
        "recommendation": {"reason": "Shift them."},
    }


def text_of(svg: bytes) -> str:
    return " ".join(Figure.of(svg).texts)


def test_an_alarm_is_drawn_with_its_words():
    found = result()
    assert found["recent"][-1]["evidence_log10"] > 3.56
    svg = image(draw_drift(found))
    shown = text_of(svg)
    assert (
        "Drift of risk: alarm (model drift)" in shown
        and "since the change" in shown
        and "level of an alarm" in shown
    )
    assert all(each["sentence"] in shown for each in WORDS.values()) and "Shift them." in shown
    assert image(draw_drift(found)) == svg
    assert image(draw_drift(found), "image/png").startswith(b"\x89PNG")


def test_the_axis_ends_at_twice_the_threshold():
    found = result()
    found["recent"][-3]["evidence_log10"] = 12.0
    found["recent"][-2]["evidence_log10"] = found["recent"][-1]["evidence_log10"] = 97.4
    drawn = Figure.of(image(draw_drift(found)))
    assert "beyond twice the level" in drawn.texts
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
        **WORDS,
        "detector": None,
        "detector_reason": "no label_horizon",
    }
    shown = text_of(image(draw_drift(answer)))
    assert "no label_horizon" in shown and "…: insufficient data" in shown
    assert "Not enough data for a verdict" in shown
    # Equal windows are `ok` without a detector: that is no lack of data.
    shown = text_of(image(draw_drift(answer | {"status": "ok"})))
    assert "Not watched" in shown and "Not enough data" not in shown


def test_dates_have_equal_distances_across_the_end_of_a_month():
    found = result()
    first = datetime(2026, 10, 20, tzinfo=UTC)
    for day, row in enumerate(found["recent"]):
        row["from"] = (first + timedelta(days=day)).isoformat()
    found["change"] = found["change"] | {"start": None}
    shown = re.findall(r"2026-\d\d-\d\d", text_of(image(draw_drift(found))))
    days = [date.fromisoformat(each).toordinal() for each in shown]
    gaps = {later - earlier for earlier, later in pairwise(days)}
    assert len(days) >= 3 and len(gaps) == 1
