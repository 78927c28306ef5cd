"""Watermarks of sources: no limit of time, whatever is in the queue, and a bounded number."""

from __future__ import annotations

import pytest

from calibrant_server.workers.ingest import append
from calibrant_server.workers.ingest.entries import SourceOffsets
from calibrant_server.workers.ingest.inbox_errors import (
    BacklogFullError,
    OffsetMismatchError,
    SourcesFullError,
)
from tests.workers.driving import delivery
from tests.workers.ledger import pane_of


def numbered(batch_id, numbers, source="s"):
    first = numbers[0]
    offsets = SourceOffsets(source, first, first + len(numbers))
    return delivery(batch_id, numbers, origin=offsets)


def test_the_check_outlives_the_record_of_the_id(bench):
    """The record of a batch id expires after a day; a job that is repeated later counts once all the same."""
    bench.put_model()
    bench.deliver(numbered("b1", [1, 2, 3]))
    keys = bench.store.keys.of_model("default/m")
    assert bench.client.delete(keys.record("default/m", "g1", "b1")) == 1
    [again] = bench.deliver(numbered("b1", [1, 2, 3]))
    assert again.duplicate and again.duplicate_reason == "offsets_accepted"
    bench.deliver(numbered("b2", [4]))
    bench.engine()
    bench.merged("b2")
    assert bench.pane().numbers == pane_of([1, 2, 3, 4]).numbers


def test_batches_in_the_queue_count(bench):
    """Nothing is merged yet, and several batches are in one script: each sees those before it."""
    bench.put_model()
    bench.deliver(numbered("b0", [0]))
    receipts = bench.deliver(
        numbered("b1", [1, 2]), numbered("b2", [3, 4]), numbered("b3", [1, 2]), numbered("b4", [5])
    )
    assert [each.duplicate for each in receipts] == [False, False, True, False]
    with pytest.raises(OffsetMismatchError) as gap:
        bench.deliver(numbered("b5", [7]))
    with pytest.raises(OffsetMismatchError) as overlap:
        bench.deliver(numbered("b6", [5, 6]))
    assert (gap.value.watermark, gap.value.is_gap) == (6, True)
    assert (overlap.value.watermark, overlap.value.is_gap) == (6, False)


def test_sources_are_bounded(bench, monkeypatch):
    monkeypatch.setattr(append, "MAX_SOURCES", 2)
    bench.put_model()
    bench.deliver(numbered("a1", [0], "a"), numbered("b1", [0], "b"))
    with pytest.raises(SourcesFullError):
        bench.deliver(numbered("c1", [0], "c"))
    [known] = bench.deliver(numbered("a2", [1], "a"))
    assert not known.duplicate


def test_a_rejected_batch_moves_no_watermark(bench):
    """The backlog is full: nothing of the batch is accepted, so its messages come again."""
    bench.put_model()
    bench.inbox._appender._settings = bench.settings.replace(backlog_bytes=1)
    bench.deliver(numbered("b1", [1]))
    with pytest.raises(BacklogFullError):
        bench.deliver(numbered("b2", [2]))
    bench.inbox._appender._settings = bench.settings
    [accepted] = bench.deliver(numbered("b3", [2]))
    assert not accepted.duplicate
