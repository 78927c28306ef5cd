"""Windows to panes, batches to panes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from calibrant.core.batch import Batch
from calibrant.core.durations import parse_duration
from calibrant.core.routing import Place, rows_by_pane
from calibrant_server.workers.store.windows import WindowError, resolve
from tests.workers.driving import MODEL

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOUR = 3600
NOON_S = int(NOON.timestamp())
NOON_US = NOON_S * 1_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1H", 3600),
        ("P1D", 86_400),
        ("P2W", 1_209_600),
        ("P1DT2H3M4S", 93_784),
        ("PT0.5S", 0.5),
        ("PT1,5S", 1.5),
    ],
)
def test_durations_of_fixed_length(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "P1M",
        "P1Y",
        "P",
        "PT",
        "P1W2D",
        "-P1D",
        "1H",
        "pt1h",
        "P1D ",
        "PT1.2345678S",
        "P" + "9" * 99 + "D",
        "",
    ],
)
def test_other_durations_are_rejected(text):
    with pytest.raises(ValueError):
        parse_duration(text)


def test_from_goes_down_and_to_goes_up():
    window = resolve(from_=NOON + timedelta(minutes=1), to=NOON + timedelta(minutes=59), now=NOON)
    assert (window.from_s, window.to_s) == (NOON_S, NOON_S + HOUR)
    assert window.to_dict() == {"from": "2026-11-20T12:00:00Z", "to": "2026-11-20T13:00:00Z"}
    exact = resolve(from_=NOON, to=NOON + timedelta(hours=1))
    assert (exact.from_s, exact.to_s) == (NOON_S, NOON_S + HOUR)


def test_without_to_the_pane_of_now_is_inside():
    assert resolve(now=NOON).to_s == NOON_S + HOUR
    assert resolve(now=NOON).from_s == 0
    assert resolve(now=NOON - timedelta(seconds=1)).to_s == NOON_S


def test_back_from_now():
    window = resolve(window="P1D", now=NOON + timedelta(minutes=30))
    assert (window.from_s, window.to_s) == (NOON_S - 24 * HOUR, NOON_S + HOUR)
    assert resolve(window="P99999999D", now=NOON).from_s == 0


def test_offsets_are_timestamps_and_time_before_the_epoch_is_cut():
    berlin = timezone(timedelta(hours=1))
    assert resolve(from_=datetime(2026, 11, 20, 13, tzinfo=berlin), now=NOON).from_s == NOON_S
    assert resolve(from_=datetime(1950, 1, 1, tzinfo=UTC), now=NOON).from_s == 0
    assert resolve(to=datetime.max.replace(tzinfo=UTC)).to_at.year == 9999


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"from_": NOON, "window": "P1D"}, "one_of"),
        ({"from_": NOON.replace(tzinfo=None)}, "time_zone"),
        ({"from_": NOON, "to": NOON}, "empty_window"),
        ({"from_": NOON, "to": NOON - timedelta(days=1)}, "empty_window"),
        # The last pane of the year 9999 cannot be written as a window.
        (
            {
                "from_": datetime(9999, 12, 31, 23, 30, tzinfo=UTC),
                "to": datetime(9999, 12, 31, 23, 59, tzinfo=UTC),
            },
            "empty_window",
        ),
        ({"window": "P1M"}, "iso_8601"),
        ({"window": "PT0S"}, "positive"),
    ],
)
def test_what_cannot_be_resolved(asked, rule):
    with pytest.raises(WindowError) as error:
        resolve(**asked, now=NOON)
    assert error.value.violations[0].rule == rule


@dataclass
class Rows:
    """As much of a batch as panes are made of."""

    n: int
    event_times: np.ndarray | None = None
    slices: dict | None = None


def times(*hours):
    return np.array([(NOON_S + hour * HOUR) * 1_000_000 for hour in hours], dtype=np.int64)


def test_rows_without_times_or_slices_are_one_pane():
    groups = dict(rows_by_pane(Rows(3), MODEL.pane_s, NOON_US))
    assert groups == {Place("", NOON_S): None}


def test_each_row_is_in_one_pane_of_each_of_its_slices():
    rows = Rows(
        4,
        times(-1, -1, -2, 0),
        {"site": np.array(["A", "B", "A", "A"]), "k": np.array([1, 1, 1, 1])},
    )
    groups = {
        ref: rows.tolist() for ref, rows in dict(rows_by_pane(rows, MODEL.pane_s, NOON_US)).items()
    }
    assert groups[Place("", NOON_S - HOUR)] == [0, 1]
    assert groups[Place("site:A", NOON_S - 2 * HOUR)] == [2]
    for slice_ in ("", "site", "k"):
        covered = [
            r for ref, rows in groups.items() if ref.slice.split(":")[0] == slice_ for r in rows
        ]
        assert sorted(covered) == [0, 1, 2, 3]


def test_times_before_the_epoch_and_odd_panes():
    groups = dict(rows_by_pane(Rows(1, np.array([-1])), 7, NOON_US))
    assert list(groups) == [Place("", -7)]


def test_a_real_batch():
    columns = {"confidences": [0.2, 0.9], "labels": [0, 1], "slices": {"site": ["A", "B"]}}
    batch = Batch.from_columns(columns).batch
    assert set(dict(rows_by_pane(batch, MODEL.pane_s, NOON_US))) == {
        Place(s, NOON_S) for s in ("", "site:A", "site:B")
    }
