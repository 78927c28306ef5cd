"""Panes of a table in requests: limits of a request, and what a repeated job sends."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

import calibrant as cal
from calibrant.client import ServiceError
from calibrant.client.numbered_panes import (
    MAX_BYTES,
    MAX_PANES,
    PaneGroup,
    groups,
)

START = datetime(2026, 11, 20, tzinfo=UTC)


def keys(n: int, slice_: str = "") -> list[cal.Key]:
    return [cal.Key(START + timedelta(hours=hour), slice_) for hour in range(n)]


def problem(rule: str, watermark: int | None = None) -> ServiceError:
    errors = [{"pointer": "/offsets", "rule": rule, "detail": "Received other offsets."}]
    members = {"type": "/v1/problems/offset-conflict", "errors": errors, "watermark": watermark}
    return ServiceError(409, members)


@pytest.mark.parametrize(
    ("slice_", "touched"), [("", 1), ("site:A", 2), ("reader:b,site:A", 3), ("site:a:b", 2)]
)
def test_a_request_touches_no_more_panes_than_it_may(slice_, touched):
    found = list(groups((key, b"pane") for key in keys(100, slice_)))
    assert all(len(group.panes) * touched <= MAX_PANES for group in found)
    assert (len(found[0].panes) + 1) * touched > MAX_PANES
    assert [key for group in found for key, _ in group.panes] == keys(100, slice_)
    numbers = [(group.first, group.end) for group in found]
    assert numbers[0][0] == 0 and numbers[-1][1] == 100
    assert all(end == first for (_, end), (first, _) in pairwise(numbers))


def test_a_request_holds_no_more_bytes_than_it_may():
    third = bytes(MAX_BYTES // 3)
    found = list(groups((key, third) for key in keys(7)))
    assert [len(group.panes) for group in found] == [3, 3, 1]
    large = list(groups((key, bytes(MAX_BYTES + 1)) for key in keys(2)))
    assert [len(group.panes) for group in large] == [1, 1]


def test_panes_of_a_mapping_are_in_the_order_of_their_keys():
    pane = cal.Pane.fill([0.9], [1])
    (group,) = groups({key: pane for key in reversed(keys(3))})
    assert [key for key, _ in group.panes] == keys(3)
    assert all(cal.Pane.from_bytes(packed) == pane for _, packed in group.panes)


def test_the_body_has_source_offsets_times_and_slices():
    group = PaneGroup(5, ((cal.Key(START, "reader:b,site:a:b"), b"x"), (cal.Key(START, ""), b"y")))
    body = json.loads(group.request("m", "log@1", 0).body)
    assert (body["source"], body["offsets"]) == ("log@1", [5, 7])
    first, second = body["histograms"]
    assert first["slice"] == {"reader": "b", "site": "a:b"} and "slice" not in second
    assert first["event_time"] == "2026-11-20T00:00:00Z" and first["kind"] == "pane"


def test_what_an_earlier_run_has_sent_is_left_out():
    (group,) = groups((key, bytes([number])) for number, key in enumerate(keys(4)))
    rest = group.rest(problem("offset_overlap", 3))
    assert (rest.first, rest.end, rest.panes) == (3, 4, group.panes[3:])


@pytest.mark.parametrize("error", [problem("offset_gap", 0), problem("not_unique")])
def test_other_conflicts_are_errors(error):
    (group,) = groups((key, b"pane") for key in keys(4))
    with pytest.raises(ServiceError) as caught:
        group.rest(error)
    assert caught.value is error


def test_panes_without_times_are_rejected():
    panes = cal.fill_by({"confidences": [0.9], "labels": [1]}, cal.PaneSpec("binary", 2))
    with pytest.raises(cal.CalibrationInputError, match="without a start"):
        next(groups(panes)).request("m", "log@1", 0)
