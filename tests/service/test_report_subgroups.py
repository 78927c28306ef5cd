"""Which subgroups a report lists, and what it says of the others."""

from __future__ import annotations

from calibrant_server.service.reads.report_subgroups import MAX_SUBGROUPS, divided
from calibrant_server.service.reads.reports import MAX_NAMES, _left_out

MAX_PANES = 3_760


def many(n: int, n_panes: int) -> dict[str, int]:
    return {f"site:{i:02}": n_panes for i in range(n)}


def test_subgroups_of_merged_panes_are_all_listed() -> None:
    panes = many(MAX_SUBGROUPS, 65)
    found = divided(list(panes), panes, MAX_PANES, in_given_order=False)
    assert found.listed == tuple(panes) and found.left_out == ()


def test_the_panes_of_one_report_are_bounded() -> None:
    panes = many(MAX_SUBGROUPS, 960)
    found = divided(list(panes), panes, MAX_PANES, in_given_order=False)
    assert 1 <= len(found.listed) == MAX_PANES // 960
    assert sorted(found.listed + found.left_out) == sorted(panes)
    assert sum(panes[name] for name in found.listed) <= MAX_PANES


def test_those_with_most_panes_come_first_and_small_ones_fill_what_is_left() -> None:
    panes = {"a": 1, "b": MAX_PANES // 2, "c": MAX_PANES - 10, "d": 9}
    found = divided(list(panes), panes, MAX_PANES, in_given_order=False)
    assert found.listed == ("a", "c", "d") and found.left_out == ("b",)


def test_requested_ones_are_taken_in_their_order() -> None:
    panes = {"d": 9, "b": MAX_PANES // 2, "c": MAX_PANES - 10, "a": 1}
    found = divided(list(panes), panes, MAX_PANES, in_given_order=True)
    assert found.listed == ("a", "b", "d") and found.left_out == ("c",)


def test_one_subgroup_and_those_without_data_are_always_listed() -> None:
    found = divided(
        ["a", "b", "c"], {"a": 2 * MAX_PANES, "b": 1, "c": 0}, MAX_PANES, in_given_order=False
    )
    assert found.listed == ("a", "c") and found.left_out == ("b",)


def test_more_than_may_be_listed_are_left_out_by_name() -> None:
    wanted = [f"site:{i:03}" for i in range(MAX_SUBGROUPS + 5)]
    found = divided(
        wanted, dict.fromkeys(wanted[:MAX_SUBGROUPS], 1), MAX_PANES, in_given_order=False
    )
    assert found.left_out == tuple(wanted[MAX_SUBGROUPS:])


def test_the_report_names_what_is_left_out_and_how_to_get_it() -> None:
    names = [f"site:{i:02}" for i in range(MAX_NAMES + 3)]
    [row] = _left_out({}, names)
    assert (row.what, row.n) == ("subgroups", MAX_NAMES + 3)
    assert names[0] in row.why and names[MAX_NAMES] not in row.why and "and 3 more" in row.why
    assert "subgroups=site:00" in row.why and "by=site" in row.why
    assert _left_out({}, []) == []
