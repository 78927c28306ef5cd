"""Numbered messages as panes of one request: what is counted, what is rejected, and where the next request begins."""

from __future__ import annotations

import json

import numpy as np
import pytest

import calibrant as cal
from calibrant.client.numbered_panes import MAX_PANES
from calibrant.contrib import numbered_messages
from calibrant.contrib.numbered_messages import Message, Target, range_of
from calibrant.contrib.partition_queue import PartitionQueue

HOUR_MS = 3_600_000
START_MS = 1_763_600_400_000
TARGET = Target.of(
    {"task": "multiclass", "n_classes": 3, "classes": ["a", "b", "c"], "grid": 3600, "listed_classes": None, "pane": "PT1H"}
)  # fmt: skip


def message(offset, *records, time_ms=START_MS, value=None):
    found = json.dumps(records[0] if len(records) == 1 else list(records)).encode()
    return Message(offset, found if value is None else value, time_ms)


def record(seed, **more):
    rng = np.random.default_rng(seed)
    return {"probabilities": rng.dirichlet(np.ones(3)).tolist(), "label": int(seed % 3)} | more


def total(found):
    return sum(cal.Pane.from_bytes(packed) for _, packed in found.panes)


def test_panes_equal_those_of_the_rows():
    records = [record(i, slice={"site": "AB"[i % 2]}, unit=f"u{i // 2}") for i in range(40)]
    messages = [message(i, each, time_ms=START_MS + i * 300_000) for i, each in enumerate(records)]
    found = range_of(messages, TARGET)
    assert (found.end, found.n_messages, found.n_rows, found.rejected) == (40, 40, 40, ())
    table = {
        "probabilities": [each["probabilities"] for each in records],
        "labels": [each["label"] for each in records],
        "unit": [each["unit"] for each in records],
        "site": [each["slice"]["site"] for each in records],
        "at": np.array([each.time_ms for each in messages], "datetime64[ms]"),
    }
    expected = cal.fill_by(
        table, TARGET.spec, time="at", slices=["site"], unit="unit", combine_slices=True
    )
    assert {key: cal.Pane.from_bytes(packed) for key, packed in found.panes} == expected
    assert len(found.panes) == 8


def test_every_message_is_counted_or_returned():
    """Whatever is wrong with one message or record, the others count; each wrong one has its number and its rule."""
    wrong = {
        1: (message(1, value=b"{not json"), "unreadable"),
        3: (message(3, record(3, probabilities=[0.5, 0.2, 0.1])), "row_sum"),
        4: (message(4, record(4, label=7)), "class_range"),
        6: (message(6, record(6, colour="red")), "unreadable"),
        7: (message(7, record(7, probabilities=[0.5, 0.5])), "n_classes"),
        9: (message(9, record(9, event_time="yesterday")), "timestamp"),
        11: (message(11, record(11, label=None)), "no_label"),
        12: (message(12, value=b"[1, 2]"), "unreadable"),
        13: (Message(13, json.dumps(record(13)).encode(), None), "unreadable"),
        15: (message(15, record(15, slice={"site": 7.5})), None),
    }
    messages = [wrong[i][0] if i in wrong else message(i, record(i)) for i in range(20)]
    messages[16] = Message(16, None, START_MS)  # a tombstone
    found = range_of(messages, TARGET)
    rules = {each.offset: each.rule for each in found.rejected}
    assert rules.keys() == wrong.keys()
    assert found.n_rows == total(found).counts["n_labelled"] == 20 - len(wrong) - 1
    for offset, (_, rule) in wrong.items():
        if rule in ("unreadable", "row_sum", "no_label"):
            assert rules[offset] == rule


def test_one_wrong_record_of_a_message_is_rejected_alone():
    found = range_of([message(5, record(1), record(2, label=9), record(3, label="b"))], TARGET)
    assert [(each.offset, each.record) for each in found.rejected] == [(5, 1)]
    assert found.n_rows == 2 and found.end == 6


def test_a_request_holds_no_more_panes_than_the_service_takes():
    slices = {"site": "A", "ward": "w"}
    messages = [
        message(10 + i, record(i, slice=slices), time_ms=START_MS + i * HOUR_MS) for i in range(100)
    ]
    ends, first = [], 0
    while first < len(messages):
        found = range_of(messages[first:], TARGET)
        assert 3 * len(found.panes) <= MAX_PANES
        first += found.n_messages
        ends.append(found.end)
    assert ends == [31, 52, 73, 94, 110]
    # A message with more panes than one request holds cannot be sent.
    large = message(
        3,
        *(record(i, event_time=f"2026-11-{1 + i // 24:02}T{i % 24:02}:00:00Z") for i in range(70)),
    )
    found = range_of([message(2, record(1)), large, message(4, record(2))], TARGET)
    assert (found.end, found.n_rows, found.rejected) == (3, 1, ())
    alone = range_of([large, message(4, record(2))], TARGET)
    assert [(each.offset, each.rule) for each in alone.rejected] == [(3, "too_many_panes")]
    assert (alone.end, alone.n_rows) == (5, 1)


def test_a_request_is_no_larger_than_the_service_takes(monkeypatch):
    messages = [message(i, record(i)) for i in range(64)]
    whole = sum(len(packed) for _, packed in range_of(messages, TARGET).panes)
    monkeypatch.setattr(numbered_messages, "MAX_BYTES", whole // 2)
    found = range_of(messages, TARGET)
    assert 0 < found.n_messages < 64 and found.end == found.n_messages
    assert sum(len(packed) for _, packed in found.panes) <= whole // 2


def test_undeclared_slices_are_rejected_alone():
    target = Target(TARGET.spec, 3600, None, {"site": ["A"], "ward": None})
    given = [{"site": "A"}, {"site": "B"}, {"ward": "7"}, {"room": "1"}]
    found = range_of([message(i, record(i, slice=each)) for i, each in enumerate(given)], target)
    assert [(each.offset, each.rule) for each in found.rejected] == [
        (1, "undeclared_slice"),
        (3, "undeclared_slice"),
    ]


def test_a_queue_begins_at_the_watermark_and_not_at_its_first_message():
    """Offsets have gaps: the numbers without messages belong to the next request."""
    queue = PartitionQueue("t-0")
    queue.add(message(3, record(3)), 0.0)  # read before the place is known
    queue.place(10, 14)
    for offset in (13, 14, 17, 17, 20):
        queue.add(message(offset, record(offset)), 1.0)
    assert len(queue) == 3 and queue.first == 10
    found = queue.prepared(lambda some: range_of(some[:2], TARGET))
    assert found.end == 18
    queue.accept(found.end, 2.0)
    assert (queue.first, len(queue)) == (18, 1)
    # What holds no rows is part of the request after it.
    queue.leave_out(queue.prepared(lambda some: range_of(some, TARGET)), 3.0)
    assert (queue.first, len(queue), queue.n_bytes) == (18, 0, 0)


def test_a_queue_follows_the_watermark():
    queue = PartitionQueue("t-0")
    queue.place(0, 0)
    for offset in range(10):
        queue.add(message(offset, record(offset)), 0.0)
    assert queue.continue_at(4, 0.0) and len(queue) == 6
    assert queue.continue_at(30, 0.0) and len(queue) == 0
    queue.add(message(29, record(29)), 0.0)
    assert len(queue) == 0
    # The service knows less than before: the messages are not here.
    assert not queue.continue_at(5, 0.0)


def test_rejected_messages_are_reported_once_however_often_they_are_filled():
    queue = PartitionQueue("t-0")
    queue.place(0, 0)
    for offset in range(4):
        queue.add(message(offset, value=b"?"), 0.0)
    found = queue.prepared(lambda some: range_of(some, TARGET))
    assert [each.offset for each in queue.unreported(found)] == [0, 1, 2, 3]
    assert queue.split()
    smaller = queue.prepared(lambda some: range_of(some, TARGET))
    assert smaller.n_messages == 2 and queue.unreported(smaller) == []


@pytest.mark.parametrize("n", [1, 2, 7])
def test_splitting_ends_at_one_message(n):
    queue = PartitionQueue("t-0")
    queue.place(0, 0)
    for offset in range(n):
        queue.add(message(offset, record(offset)), 0.0)
    sizes = []
    while True:
        sizes.append(queue.prepared(lambda some: range_of(some, TARGET)).n_messages)
        if not queue.split():
            break
    assert sizes[-1] == 1 and sizes == sorted(sizes, reverse=True)
