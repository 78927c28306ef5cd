"""What a record and a store of records have room for: rejected when it is asked for, never merged in part, never in the way."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from calibrant import Batch
from calibrant.input.labels import MAX_NAMED, LabelRow
from calibrant_server.workers.ingest import attempts
from calibrant_server.workers.ingest.dead_letters import PARKED
from calibrant_server.workers.ingest.entries import (
    FIELD_OVERHEAD_BYTES,
    LABELS,
    PREDICTIONS,
    REMOVAL,
    IngestBatch,
)
from calibrant_server.workers.ingest.inbox_errors import RecordsFullError
from calibrant_server.workers.ingest.parked import all_letters
from calibrant_server.workers.ingest.payloads import pack_labels
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.store.batch_records import BatchReceipt
from tests.workers.driving import MODEL, Bench, eventually


def predictions(*names, batch_id=None):
    """Unlabelled predictions of these ids on their way in."""
    columns = {"probabilities": [[0.2, 0.5, 0.3]] * len(names), "ids": list(names)}
    batch = Batch.from_columns(columns).batch
    return IngestBatch.of(
        MODEL,
        batch_id or f"p-{names[0]}",
        PREDICTIONS,
        batch.pack(),
        batch.digest(),
        batch.n,
        retains=True,
    )


def labels(*rows, batch_id="l"):
    """Labels on their way in."""
    payload = pack_labels(rows)
    ids = tuple(row.id for row in rows)
    return IngestBatch.of(
        MODEL, batch_id, LABELS, payload, payload[-16:], len(rows), retains=True, ids=ids
    )


def test_a_rater_too_many_is_an_error_of_his_row(bench):
    bench.put_model()
    bench.engine(numerics=Numerics())
    crowd = LabelRow("i1", {}, [(f"r{i}", 1, None) for i in range(MAX_NAMED)])
    bench.deliver(predictions("i1", "i2"), labels(crowd))
    assert bench.merged("l").status == "merged"
    bench.deliver(
        labels(
            LabelRow("i1", {}, [("late", 1, None)]),
            LabelRow("i2", {}, [("late", 1, None)]),
            batch_id="l2",
        )
    )
    receipt = bench.merged("l2")
    assert (receipt.accepted, receipt.rejected) == (1, 1)
    assert [(each["pointer"], each["rule"]) for each in receipt.errors] == [
        ("/ids/0", "too_many_ratings")
    ]


def test_what_cannot_be_written_is_set_aside_and_the_rest_continues(bench, monkeypatch):
    """An entry that cannot be committed must not stop its partition, whatever the reason."""
    bench.put_model()
    write = Records.write

    def failing(records):
        if b"poison" in records.ratings.raters:
            raise ArithmeticError("it does not fit")
        return write(records)

    monkeypatch.setattr(Records, "write", failing)
    monkeypatch.setattr(attempts, "MAX_PAUSE_S", 0.2)
    bench.engine(numerics=Numerics())
    poison = labels(LabelRow("i1", {}, [("poison", 1, None)]), batch_id="bad")
    bench.deliver(predictions("i1"), poison)
    bench.deliver(labels(LabelRow("i1", {2: 1}, []), batch_id="good"))
    assert bench.merged("good").status == "merged"
    [letter] = eventually(lambda: list(all_letters(bench.store)))
    assert letter.state == PARKED and "it does not fit" in letter.why


def full(bench, *deliveries):
    """What came of handing several batches over at once: their receipts, or how each was rejected."""

    async def all_of_them():
        return await asyncio.gather(
            *(bench.inbox.enqueue(each) for each in deliveries), return_exceptions=True
        )

    return [type(each) for each in bench.run(all_of_them())]


@pytest.fixture
def bounded(settings, request):
    """A bench with other bounds, and a model."""
    with Bench(settings.replace(**request.param)) as bench:
        bench.put_model()
        yield bench


def bounds(**changes):
    return pytest.mark.parametrize("bounded", [changes], indirect=True)


def retained(bench):
    found = bench.client.hgetall(bench.store.keys.of_model(MODEL.key).retained)
    return {name.decode(): int(n) for name, n in found.items()}


@bounds(retained_records=25)
def test_what_is_on_its_way_counts(bounded):
    """Nothing is merged yet, and all of it comes at once: as much is taken as there is room for."""
    found = full(bounded, *(predictions(*(f"{k}-{i}" for i in range(10))) for k in range(9)))
    assert (
        sorted(each.__name__ for each in found) == ["BatchReceipt"] * 2 + ["RecordsFullError"] * 7
    )
    bounded.engine(numerics=Numerics())
    eventually(lambda: retained(bounded).get("records") == 20)
    assert (retained(bounded)["coming"], retained(bounded)["coming_bytes"]) == (0, 0)
    assert full(bounded, predictions("a", "b", "c", "d", "e")) == [BatchReceipt]
    assert full(bounded, predictions("f")) == [RecordsFullError]


@bounds(retained_bytes=4000)
def test_bytes_on_their_way_count(bounded):
    found = full(bounded, *(predictions(*(f"{k}-{i}" for i in range(10))) for k in range(9)))
    assert 3 <= found.count(BatchReceipt) <= 5 and found.count(RecordsFullError) == 9 - found.count(
        BatchReceipt
    )
    bounded.engine(numerics=Numerics())
    eventually(lambda: retained(bounded).get("records") == 10 * found.count(BatchReceipt))
    assert retained(bounded)["coming_bytes"] == 0 and retained(bounded)["bytes"] < 5000


def test_whatever_becomes_of_it_it_is_on_its_way_no_more(bench):
    bench.put_model()
    bad = replace(predictions("x"), payload=b"nothing")
    bench.deliver(predictions("a"), bad, replace(predictions("a"), batch_id="again"))
    keys = bench.store.keys.of_model(MODEL.key)
    bench.client.hincrby(keys.retained, "coming", 7)
    bench.client.hincrby(keys.retained, "coming_bytes", 7 * FIELD_OVERHEAD_BYTES)
    bench.client.xadd(keys.stream, {"x": "no entry", "r": "7"})
    bench.engine(numerics=Numerics())
    eventually(lambda: bench.client.xlen(keys.stream) == 0)
    assert {name: retained(bench)[name] for name in ("records", "coming", "coming_bytes")} == {
        "records": 1, "coming": 0, "coming_bytes": 0,
    }  # fmt: skip


@bounds(retained_records=2)
def test_where_there_is_no_room_only_what_is_there_is_taken_out(bounded):
    """The removal of an id that was never heard of is retained as well."""
    bounded.engine(numerics=Numerics())
    bounded.deliver(predictions("a", "b"))
    bounded.merged("p-a")

    def removal(name):
        payload = json.dumps({"ids": [name]}).encode()
        return IngestBatch.of(
            MODEL, f"r-{name}", REMOVAL, payload, payload[-16:], 1, retains=True, ids=(name,)
        )

    assert full(bounded, removal("c"), removal("a")) == [RecordsFullError, BatchReceipt]
    assert bounded.merged("r-a").accepted == 1
