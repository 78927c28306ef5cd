"""Numbered messages as the rows of one request: what is sent, what is rejected, and where the next request begins."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant.client.results import Receipt
from calibrant.contrib import numbered_messages
from calibrant.contrib.numbered_messages import MAX_MESSAGES, Message, range_of, read_records
from calibrant.contrib.partition_queue import PartitionQueue

START_MS = 1_763_600_400_000


def message(offset, *records, time_ms=START_MS, value=None):
    found = json.dumps(records[0] if len(records) == 1 else list(records)).encode()
    return Message(offset, found if value is None else value, time_ms)


def record(seed, **more):
    rng = np.random.default_rng(seed)
    return {"probabilities": rng.dirichlet(np.ones(3)).tolist(), "label": int(seed % 3)} | more


def queue_of(*messages, first=0):
    queue = PartitionQueue("t-0")
    queue.place(first, first)
    for each in messages:
        queue.add(each, 0.0)
    return queue


def test_a_request_has_the_records_as_they_were_sent_with_the_times_of_their_messages():
    timed = record(1, event_time="2025-11-20T08:00:00Z", slice={"site": "A"})
    plain = record(2, slice={"site": "B"}, unit=None)
    found = range_of([message(4, timed), message(7, plain)])
    request = found.request("triage", "t-0", 3)
    assert (request.method, request.path) == ("POST", "/v1/models/triage/predictions")
    assert request.query == {"partial": "true"}
    assert json.loads(request.body) == {
        "source": "t-0",
        "offsets": [3, 8],
        "predictions": [
            timed,
            {name: plain[name] for name in ("probabilities", "label", "slice")}
            | {"event_time": "2025-11-20T01:00:00Z"},
        ],
    }


def test_what_cannot_be_read_is_returned_and_the_others_are_sent():
    values = [b"{not json", b"[1, 2]", b"\xff", b"NaN", None]
    messages = [message(i, value=each) for i, each in enumerate(values[:-1])]
    messages += [Message(4, None, START_MS), message(5, record(5)), Message(6, b"{}", None)]
    messages += [message(7, record(7, weight=float("nan"))), message(8, record(8))]
    found = range_of(messages)
    assert [each.offset for each in found.rejected] == [0, 1, 2, 3, 6, 7]
    assert {each.rule for each in found.rejected} == {"unreadable"}
    assert [each.offset for each in found.rows] == [5, 8]
    assert (found.end, found.n_messages) == (9, 9)


def test_records_that_the_service_rejects_have_the_places_of_their_messages():
    found = range_of([message(5, record(1), record(2)), message(9, record(3))])
    errors = [
        {"pointer": "/predictions/1/label", "rule": "class_range", "detail": "too large"},
        {"pointer": "/predictions/2", "rule": "row_sum", "detail": "not 1"},
    ]
    rejected = found.rejected_by(Receipt.from_dict({"errors": errors}))
    assert [(each.offset, each.record, each.rule) for each in rejected] == [
        (5, 1, "class_range"),
        (9, 0, "row_sum"),
    ]


@pytest.mark.parametrize(
    ("second", "is_alike"),
    [
        (record(2), True),
        (record(2, label=None), True),
        (record(2, unit="u1"), False),
        (record(2, slice={"site": "A"}), False),
    ],
)
def test_the_rows_of_a_request_have_the_same_fields(second, is_alike):
    found = range_of([message(0, record(1)), message(1, second)])
    assert found.n_messages == (2 if is_alike else 1)


def test_a_request_is_bounded_in_bytes(monkeypatch):
    messages = [message(i, record(i)) for i in range(10)]
    monkeypatch.setattr(numbered_messages, "MAX_BYTES", 4 * messages[0].n_bytes + 40)
    assert range_of(messages).n_messages == 4
    # A message that is larger on its own is sent alone: the service decides.
    monkeypatch.setattr(numbered_messages, "MAX_BYTES", 1)
    assert range_of(messages).n_messages == 1


def test_a_queue_begins_at_the_watermark_and_not_at_its_first_message():
    """Offsets have gaps: the numbers without messages belong to the next request."""
    queue = PartitionQueue("t-0")
    queue.add(message(3, record(3)), 0.0)  # read before the place is known
    queue.place(10, 14)
    for offset in (13, 14, 17, 17):
        queue.add(message(offset, record(offset)), 1.0)
    queue.add(message(20, record(20, unit="u")), 1.0)
    assert len(queue) == 3 and queue.first == 10
    assert queue.prepared(read_records).end == 18
    queue.accept(18)
    assert (queue.first, len(queue)) == (18, 1)
    # What holds no rows is part of the request after it.
    queue.leave_out(queue.prepared(read_records).end)
    assert (queue.first, len(queue), queue.n_bytes) == (18, 0, 0)


def test_a_message_waits_for_others_as_long_as_stated_since_it_arrived():
    queue = queue_of(message(0, record(0)))
    queue.add(message(1, record(1, unit="u")), 8.0)
    assert not queue.is_due(9.0, 10.0) and queue.is_due(10.0, 10.0)
    queue.accept(1)
    assert not queue.is_due(17.0, 10.0) and queue.is_due(18.0, 10.0)
    assert queue_of(*(message(i, record(1)) for i in range(MAX_MESSAGES))).is_due(0.0, 10.0)


def test_a_queue_follows_the_watermark():
    queue = queue_of(*(message(offset, record(offset)) for offset in range(10)))
    assert queue.continue_at(4) and len(queue) == 6
    assert queue.continue_at(30) and len(queue) == 0
    queue.add(message(29, record(29)), 0.0)
    assert len(queue) == 0
    # The service knows less than before: the messages are not here.
    assert not queue.continue_at(5)


def test_rejected_messages_are_reported_once_however_often_they_are_read():
    queue = queue_of(*(message(offset, value=b"?") for offset in range(4)))
    found = queue.prepared(read_records)
    assert [each.offset for each in queue.unreported(found)] == [0, 1, 2, 3]
    assert queue.split()
    smaller = queue.prepared(read_records)
    assert smaller.n_messages == 2 and queue.unreported(smaller) == []


@pytest.mark.parametrize("n", [1, 2, 7])
def test_splitting_ends_at_one_message(n):
    queue = queue_of(*(message(offset, record(offset)) for offset in range(n)))
    sizes = []
    while True:
        sizes.append(queue.prepared(read_records).n_messages)
        if not queue.split():
            break
    assert sizes[-1] == 1 and sizes == sorted(sizes, reverse=True)
