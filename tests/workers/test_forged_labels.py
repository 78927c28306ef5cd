"""Labels and deletions that no API has checked: an entry with a value out of range is dead-lettered, and none of it counts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant import Batch
from calibrant.input.labels import MAX_NAMED, LabelRow
from calibrant_server.workers.ingest.dead_letters import dead_letters, replay
from calibrant_server.workers.ingest.entries import (
    LABELS,
    MAX_PLACES,
    PREDICTIONS,
    REMOVAL,
    IngestBatch,
    Places,
)
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from tests.workers.driving import MODEL, stored_pane
from tests.workers.test_parked import steps

pytestmark = pytest.mark.one_server
AT_US = 1_767_225_600_000_000
N = 6
OTHERS = [["i4", [[1, 1]], []], ["i5", [[2, 1]], []]]


@pytest.fixture
def loop(bench):
    """A loop with the library's numbers, and six predictions that wait for labels."""
    bench.numerics = Numerics()
    bench.put_model()
    scores = np.random.default_rng(3).dirichlet(np.ones(3), N)
    columns = {"probabilities": scores, "ids": [f"i{i}" for i in range(N)]}
    batch = Batch.from_columns({**columns, "event_times": ["2026-01-01T00:00:00Z"] * N}).batch
    bench.deliver(IngestBatch.of(MODEL, "p", PREDICTIONS, batch.pack(), batch.digest(), N))
    loop = bench.loop()
    steps(loop)
    return loop


def order(kind, batch_id, payload, n=1, **more):
    return IngestBatch.of(
        MODEL, batch_id, kind, payload, payload[-16:].rjust(16), n, retains=kind == LABELS, **more
    )


def forged(rows):
    return order(LABELS, "forged", json.dumps({"format": 1, "rows": rows}).encode(), len(rows))


def n_labelled(bench):
    return stored_pane(bench, "", AT_US // 1_000_000).counts["n_labelled"]


def assert_nothing_counts(bench, loop, batch, why="labels out of range"):
    """The batches before and after it in the same commit count; of it only the dead letter is there."""
    first = order(LABELS, "first", pack_labels([LabelRow("i0", {1: 1}, [])]))
    last = order(LABELS, "last", pack_labels([LabelRow("i1", {2: 1}, [("ann", 2, None)])]))
    before = bench.run(bench.inbox.tallies(MODEL))
    bench.deliver(first, batch, last)
    steps(loop)
    [letter] = bench.dead_letters()
    assert f"EntryError: received {why}" in letter[b"why"].decode()
    record = bench.merged("forged")
    assert (record.status, record.accepted, record.rejected) == (
        "dead_lettered",
        0,
        batch.n_accepted,
    )
    [error] = record.errors
    assert error["rule"] == "dead_lettered" and why in error["detail"]
    assert [bench.merged(name).status for name in ("first", "last")] == ["merged", "merged"]
    assert n_labelled(bench) == 2
    after = bench.run(bench.inbox.tallies(MODEL))
    assert after["records"] == before["records"] and after["deleted"] == before["deleted"]
    assert int(bench.client.hget(loop.keys.retained, "coming") or 0) == 0


@pytest.mark.parametrize(
    "row",
    [
        ["i2", [[3, 1]], []],
        ["i2", [[-1, 1]], []],
        ["i2", [[70_000, 1]], []],
        ["i2", [[2**70, 1]], []],
        ["i2", [[1.5, 1]], []],
        ["i2", [["1", 1]], []],
        ["i2", [[1, 0]], []],
        ["i2", [[1, -2]], []],
        ["i2", [[1, 2**31]], []],
        ["i2", [[1, 1], [1, 1]], []],
        ["i2", [[1]], []],
        ["i2", [], []],
        ["i2", [], [["ann", 3, None]]],
        ["i2", [], [["ann", -2, None]]],
        ["i2", [[0, 1]], [["ann", True, None]]],
        ["i2", [], [["ann", 1, 2**31]]],
        ["i2", [], [["ann", 1, -1]]],
        ["i2", [], [["a" * 300, 1, None]]],
        ["i2", [], [["ann", 1, 1], ["ann", 2, 2]]],
        ["i2", [], [[f"r{i}", 1, None] for i in range(MAX_NAMED + 1)]],
        ["a\nb", [[1, 1]], []],
        ["i" * 257, [[1, 1]], []],
        [7, [[1, 1]], []],
    ],
)
def test_a_label_out_of_range(bench, loop, row):
    assert_nothing_counts(bench, loop, forged([OTHERS[0], row, OTHERS[1]]))


@pytest.mark.parametrize("name", ["", "a\nb", "..", "i" * 257, 7, None, ["i2"]])
def test_a_deletion_of_no_name(bench, loop, name):
    payload = json.dumps({"ids": [name]}).encode()
    assert_nothing_counts(bench, loop, order(REMOVAL, "forged", payload), "the id")


def test_a_dead_letter_that_is_replayed_fails_again_and_counts_nothing(bench, loop):
    assert_nothing_counts(bench, loop, forged([["i2", [[3, 1]], []]]))
    [letter] = dead_letters(bench.store, loop.partition)
    assert replay(bench.store, loop.partition, letter.id)
    steps(loop)
    assert len(bench.dead_letters()) == 1 and n_labelled(bench) == 2
    assert len(bench.merged("forged").errors) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("t", b"-5"),
        ("t", b"%d" % (2**32 * 1000)),
        ("w", b"5"),
        ("w", b"[false, 5]"),
        ("w", b'[false, [[0, "1"]]]'),
        ("w", b"[false, [[0, 1.5]]]"),
        ("w", b"[false, [[0, %d]]]" % (MAX_PLACES + 1)),
        ("w", b"[" * 100_000),
    ],
)
def test_fields_out_of_range(bench, loop, field, value):
    """An entry that cannot be read is set aside, and the partition goes on."""
    fields = forged([OTHERS[0]]).to_fields() | {field: value}
    bench.client.xadd(loop.keys.stream, fields)
    bench.deliver(order(LABELS, "next", pack_labels([LabelRow("i0", {1: 1}, [])])))
    steps(loop)
    [letter] = bench.dead_letters()
    assert b"expected" in letter[b"why"] or b"cannot be read" in letter[b"why"]
    assert bench.merged("next").status == "merged" and n_labelled(bench) == 1


def test_places_of_fewer_rows_than_the_entry_has(bench, loop):
    """A row without a place is named under its own number."""
    batch = order(REMOVAL, "gone", b'{"ids":["i2"]}')
    rows = pack_labels([LabelRow("i0", {1: 1}, []), LabelRow("i2", {1: 1}, [])])
    bench.deliver(batch, order(LABELS, "short", rows, 2, places=Places([4], False)))
    steps(loop)
    record = bench.merged("short")
    assert record.status == "merged"
    assert [error["pointer"] for error in record.errors] == ["/ids/1"]
