"""Lines of an export that no store can keep are refused before it is asked."""

import pytest

from workers.entries import EntryError
from workers.export_shapes import shaped

HOLDS = {"slice": None, "clock": "event", "window": [0, 3600], "created_ms": 1, "counts": {}}
GOOD = {
    "marks": {"marks": {"from": "3"}},
    "pane": {"slice": "", "start": 3600, "version": "a1", "packed": {}},
    "baseline": {"name": "b", "holds": HOLDS},
    "record": {"id": "i", "packed": "AA=="},
    "unit": {"unit": "u", "ids": "i j"},
    "tallies": {"tallies": {"expired": 1}},
}
CASES = [(kind, name) for kind, members in GOOD.items() for name in members]


@pytest.mark.parametrize("kind", GOOD)
def test_good_lines_are_left_as_they_are(kind):
    line = {"type": kind, **GOOD[kind]}
    assert shaped(dict(line)) == line


@pytest.mark.parametrize(("kind", "name"), CASES)
@pytest.mark.parametrize("value", [None, [], True, 1.5])
def test_a_member_of_another_type_is_named(kind, name, value):
    with pytest.raises(EntryError, match=f"{name} of a {kind} line"):
        shaped({"type": kind, **GOOD[kind], name: value})


@pytest.mark.parametrize("start", [-1, 10**30])
def test_a_pane_of_no_time_is_refused(start):
    with pytest.raises(EntryError, match="a pane starts between"):
        shaped({"type": "pane", **GOOD["pane"], "start": start})


@pytest.mark.parametrize("window", [[0], [0, "x"], [0, -1], [0, 10**30]])
def test_a_baseline_of_no_window_is_refused(window):
    with pytest.raises(EntryError, match="the window of a baseline"):
        shaped({"type": "baseline", "name": "b", "holds": {**HOLDS, "window": window}})


def test_a_type_that_is_no_text_is_refused():
    with pytest.raises(EntryError, match="type of"):
        shaped({"type": [], "name": "b"})
