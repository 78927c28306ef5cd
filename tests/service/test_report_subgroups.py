"""Which subgroups a report lists, and what it says of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from calibrant.metrics import DEFAULT_METRICS
from calibrant.results.metric_work import metric_work
from calibrant_server.service.reads.report_subgroups import (
    MAX_SUBGROUPS,
    MAX_WORK,
    OF_A_METRIC_UNIT,
    OF_A_SUBGROUP,
    PANES_OF_A_DAY,
    PANES_OF_A_UNIT,
    SUBGROUP_PANES_OF_A_UNIT,
    divided,
)
from calibrant_server.service.reads.reports import MAX_NAMES, ReportParameters, _left_out, _quoted

ROOT = Path(__file__).parents[2]
LEFT = 400.0


def many(n: int, cost: float) -> dict[str, float]:
    return {f"site:{i:02}": cost for i in range(n)}


def n_listed(n_hours: int, n_days: int = 0) -> int:
    """Return how many of many subgroups a report of the default metrics lists, each with so many panes."""
    panes = n_hours + PANES_OF_A_DAY * n_days
    left = MAX_WORK - OF_A_METRIC_UNIT * metric_work(DEFAULT_METRICS) - panes / PANES_OF_A_UNIT
    costs = many(MAX_SUBGROUPS, panes / SUBGROUP_PANES_OF_A_UNIT)
    return len(divided(list(costs), costs, left, in_given_order=False).listed)


def test_the_documentation_has_the_numbers_of_subgroups() -> None:
    found = (n_listed(24), n_listed(7 * 24), n_listed(14 * 24, 16), n_listed(40 * 24))
    text = " ".join((ROOT / "docs" / "pages.md").read_text("utf-8").split())
    assert found == (27, 10, 4, 1)
    assert (
        "of a day, 27 are listed; of 7 days, 10; of 30 days, 4; of 40 days that are not merged, 1"
        in text
    )


def test_the_work_of_one_report_is_bounded() -> None:
    costs = many(MAX_SUBGROUPS, 137.0)
    found = divided(list(costs), costs, LEFT, in_given_order=False)
    assert len(found.listed) == LEFT // (OF_A_SUBGROUP + 137) == 2
    assert sorted(found.listed + found.left_out) == sorted(costs)


def test_those_with_most_panes_come_first_and_small_ones_fill_what_is_left() -> None:
    costs = {"a": 1.0, "b": LEFT / 2, "c": LEFT - 3 * OF_A_SUBGROUP - 2, "d": 1.0}
    found = divided(list(costs), costs, LEFT, in_given_order=False)
    assert found.listed == ("a", "c", "d") and found.left_out == ("b",)


def test_requested_ones_are_taken_in_their_order() -> None:
    costs = {"d": 1.0, "b": LEFT / 2, "c": LEFT - 40.0, "a": 1.0}
    found = divided(list(costs), costs, LEFT, in_given_order=True)
    assert found.listed == ("a", "b", "d") and found.left_out == ("c",)


def test_one_subgroup_and_those_without_data_are_always_listed() -> None:
    costs = {"a": 2 * LEFT, "b": 1.0, "c": 0.0}
    for left in (LEFT, -LEFT):
        found = divided(list(costs), costs, left, in_given_order=False)
        assert found.listed == ("a", "c") and found.left_out == ("b",)


def test_more_than_may_be_listed_are_left_out_by_name() -> None:
    wanted = [f"site:{i:03}" for i in range(MAX_SUBGROUPS + 5)]
    found = divided(wanted, dict.fromkeys(wanted[:MAX_SUBGROUPS], 1.0), 1e6, in_given_order=False)
    assert found.left_out == tuple(wanted[MAX_SUBGROUPS:])


def test_the_report_names_what_is_left_out_and_how_to_get_it() -> None:
    names = [f"site:{i:02}" for i in range(MAX_NAMES + 3)]
    [row] = _left_out({}, names)
    assert (row.what, row.n) == ("subgroups", MAX_NAMES + 3)
    assert names[0] in row.why and names[MAX_NAMES] not in row.why and "and 3 more" in row.why
    assert "subgroups=site:00" in row.why and "by=site" in row.why
    assert _left_out({}, []) == []


def test_a_subgroup_may_have_any_text() -> None:
    names = ["ward:a,b", "site:x", 'ward:a"b', '"ward":c', "ward:1:2", 'w,"x":y, z']
    for each in ([name] for name in names):
        assert ReportParameters(subgroups=_quoted(each[0])).subgroup_names == each
    text = ",".join(map(_quoted, names))
    assert ReportParameters(subgroups=text).subgroup_names == names
    assert ReportParameters(subgroups='"ward:a,b",site:x').subgroup_names == ["ward:a,b", "site:x"]
    assert ReportParameters().subgroup_names is None


@pytest.mark.parametrize("text", ["", ",", "ward:a,", "ward", '"ward:a', '"ward:a"b', "ward:a,b"])
def test_other_lists_of_subgroups_are_rejected(text: str) -> None:
    with pytest.raises(ValidationError):
        ReportParameters(subgroups=text)
