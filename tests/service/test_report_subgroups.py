"""Which subgroups a report lists, and what it says of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from calibrant.metrics import DEFAULT_METRICS
from calibrant.results.metric_work import metric_work
from calibrant_server.service.reads.report_pages import MAX_SUBGROUPS, PANES_OF_A_DAY, n_listed
from calibrant_server.service.reads.reports import MAX_NAMES, ReportParameters, _left_out, _quoted

ROOT = Path(__file__).parents[2]
WORK = metric_work(DEFAULT_METRICS)


def test_the_documentation_has_the_numbers_of_subgroups() -> None:
    found = tuple(n_listed(WORK, n) for n in (24, 7 * 24, 14 * 24 + PANES_OF_A_DAY * 16, 40 * 24))
    text = " ".join((ROOT / "docs" / "pages.md").read_text("utf-8").split())
    assert found == (27, 10, 4, 1)
    assert (
        "of a day, 27 are listed; of 7 days, 10; of 30 days, 4; of 40 days that are not merged, 1"
        in text
    )


def test_at_least_one_and_at_most_so_many_subgroups_are_listed() -> None:
    assert n_listed(0, 0) == MAX_SUBGROUPS
    assert n_listed(WORK, 10**6) == 1


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
