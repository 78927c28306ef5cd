"""Lines of an export that no store can keep are rejected before it is asked."""

import pytest

from calibrant_server.workers.alarm.alarm_transfer import KINDS as ALARM_KINDS
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.lifecycle.export_shapes import _CONTENTS, _SHAPES, shaped
from calibrant_server.workers.lifecycle.transfer import (
    BASELINE,
    MAP,
    MARKS,
    PANE,
    RECORD,
    SAMPLE,
    TALLY,
    UNIT,
)
from calibrant_server.workers.lifecycle.transfer_reports import REPORT as REPORT_LINE

HOLDS = {"slice": None, "clock": "event", "window": [0, 3600], "created_ms": 1, "counts": {}}
SUMMARY = {
    **{
        "generation": "g",
        "n_detectors": 1,
        "n_alarms": 0,
    },
    **{"cohort": None, "p": {"score|": 0.5}, "scope": "score", "bins": [[1.0], [0.5], [1.0]]},
}
REPORT = {
    **{"model": "m", "created_at": "a", "created_by": "b", "note": None, "window": {}},
    **{
        "slice": None,
        "parameters": {},
        "state_version": "v",
        "sha256": "0",
        "results_sha256": None,
    },
}
GOOD = {
    "marks": {"marks": {"from": "3"}},
    "pane": {"slice": "", "start": 3600, "version": "a1", "packed": {}},
    "sample": {"day": 86_400, "halvings": 2},
    "baseline": {"name": "b", "holds": HOLDS},
    "record": {"id": "i", "packed": "AA=="},
    "unit": {"unit": "u", "ids": "i j"},
    "tallies": {"tallies": {"expired": 1}},
    "map": {"field": "1", "text": "{}"},
    "detector": {"name": "d", "of": "t/m", "packed": "AA=="},
    "looks": {"detector": "d", "looks": {}},
    "gathered": {"packed": "AA=="},
    "episode": {"holds": {"id": "a", "tenant": "t", "model": "m", "generation": "g"}},
    "alarm_summary": {"holds": SUMMARY},
    "alarm_change": {"version": "a1"},
    "alarm_map": {"holds": {"version": None, "fitted_to_s": None}},
    "alarm_units": {"by_cohort": {"0": ""}},
    "report": {"number": 1, "identity": "a", "holds": REPORT, "page": ""},
}
SAMPLE_LINE = {"sealed": False, "packed": None}
# Members that may be null.
MORE = {"sample": SAMPLE_LINE, "report": {"results": None}}
CASES = [(kind, name) for kind, members in GOOD.items() for name in members]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", GOOD)
def test_good_lines_are_left_as_they_are(kind):
    line = {"type": kind, **GOOD[kind]} | MORE.get(kind, {})
    assert shaped(dict(line)) == line


@pytest.mark.parametrize(("kind", "name"), CASES)
@pytest.mark.parametrize("value", [None, [], True, 1.5])
def test_a_member_of_another_type_is_named(kind, name, value):
    with pytest.raises(EntryError, match=f"{name} of a {kind} line"):
        shaped({"type": kind, **GOOD[kind]} | MORE.get(kind, {}) | {name: value})


@pytest.mark.parametrize("start", [-1, 10**30])
def test_a_pane_of_no_time_is_rejected(start):
    with pytest.raises(EntryError, match="a pane starts between"):
        shaped({"type": "pane", **GOOD["pane"], "start": start})


@pytest.mark.parametrize("window", [[0], [0, "x"], [0, -1], [0, 10**30]])
def test_a_baseline_of_no_window_is_rejected(window):
    with pytest.raises(EntryError, match="the window of a baseline"):
        shaped({"type": "baseline", "name": "b", "holds": {**HOLDS, "window": window}})


@pytest.mark.parametrize(
    "wrong", [{"sealed": 1}, {"day": 3600}, {"day": -86_400}, {"halvings": 65}, {"packed": 3}]
)
def test_a_sample_line_out_of_range_is_rejected(wrong):
    line = {"type": "sample", **GOOD["sample"], **SAMPLE_LINE, **wrong}
    with pytest.raises(EntryError, match="sample"):
        shaped(line)


@pytest.mark.parametrize("kind", [[], None, 7, "panes"])
def test_a_type_that_no_export_has_is_rejected(kind):
    with pytest.raises(EntryError, match="no lines of type"):
        shaped({"type": kind, "name": "b"})


@pytest.mark.parametrize(
    "bins", [[[1.0]], [[1.0], [1.0], [1.0, 2.0]], [1.0, 1.0, 1.0], [["a"], [1.0], [1.0]]]
)
def test_sums_that_no_meter_can_show_are_rejected(bins):
    with pytest.raises(EntryError, match="bins of an alarm_summary"):
        shaped({"type": "alarm_summary", "holds": {**SUMMARY, "bins": bins}})


def test_p_values_that_no_meter_can_show_are_rejected():
    with pytest.raises(EntryError, match="p of an alarm_summary"):
        shaped({"type": "alarm_summary", "holds": {**SUMMARY, "p": {"score|": "low"}}})


def test_every_kind_of_line_has_its_shape():
    written = {*ALARM_KINDS, REPORT_LINE, MARKS, PANE, SAMPLE, BASELINE, MAP, RECORD, UNIT, TALLY}
    assert written == set(_SHAPES)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in _CONTENTS for name in _CONTENTS[kind]]
)
def test_a_held_member_of_another_type_is_named(kind, name):
    line = {"type": kind, **GOOD[kind], **MORE.get(kind, {})}
    other = [] if _CONTENTS[kind][name] is dict else {"no": "such"}
    with pytest.raises(EntryError, match=f"{name} of a {kind} line"):
        shaped({**line, "holds": {**line["holds"], name: other}})
