"""Dead letters: listed without their payloads, replayed exactly once, or discarded; their ids stay open meanwhile."""

from __future__ import annotations

import pytest

from calibrant_server.workers.ingest.dead_letters import (
    DEAD,
    dead_letters,
    discard,
    find,
    read_heads,
    replay,
)
from calibrant_server.workers.ingest.inbox_errors import BatchConflictError
from calibrant_server.workers.store.registry import Registry
from tests.workers.driving import MODEL, delivery
from tests.workers.ledger import pane_of
from tests.workers.test_parked import parked_batch, steps


@pytest.fixture
def loop(bench, monkeypatch):
    """A loop that has dead-lettered the second of three batches."""
    bench.put_model()
    loop = bench.loop()
    bench.deliver(delivery("b0", [1]), delivery("b1", [2], trick="raise"), delivery("b2", [3]))
    steps(loop)
    assert bench.pane().numbers == pane_of([1, 3]).numbers
    return loop


def letters(bench, loop):
    return list(dead_letters(bench.store, loop.partition))


def cured(bench, loop, monkeypatch):
    """The code that failed is corrected."""
    from tests.workers import ledger

    monkeypatch.setattr(ledger, "play", lambda trick: None, raising=True)


def test_a_list_has_the_reason_and_no_payload(bench, loop):
    [letter] = letters(bench, loop)
    assert (letter.state, letter.batch_id, letter.model, letter.kind) == (
        DEAD, "b1", MODEL.key, "predictions",
    )  # fmt: skip
    assert letter.why and letter.n_bytes > 0 and letter.received_ms
    for head in read_heads(bench.client, loop.keys.dead_letters):
        assert b"b" not in head.fields and head.fields[b"i"] == b"b1"
    assert find(bench.store, loop.partition, letter.id) == letter
    for name in ("dead-1-0", f"parked-{letter.entry_id}", "dead-x", "", "dead-1-0-0"):
        assert find(bench.store, loop.partition, name) is None


def test_the_id_of_a_dead_letter_is_remembered_as_long_as_it(bench, loop):
    record = loop.keys.record(MODEL.key, MODEL.generation, "b1")
    assert bench.client.ttl(record) == -1
    [receipt] = bench.deliver(delivery("b1", [2], trick="raise"))
    assert receipt.duplicate and receipt.status == "dead_lettered"


def test_a_replay_merges_it_once(bench, loop, monkeypatch):
    cured(bench, loop, monkeypatch)
    [letter] = letters(bench, loop)
    assert replay(bench.store, loop.partition, letter.id)
    assert not replay(bench.store, loop.partition, letter.id)
    accepted = bench.run(bench.inbox.record(MODEL.key, "b1"))
    assert (accepted.status, accepted.accepted, accepted.rejected, accepted.errors) == (
        "accepted", 1, 0, [],
    )  # fmt: skip
    [repeat] = bench.deliver(delivery("b1", [2], trick="raise"))
    assert repeat.duplicate
    steps(loop, 3)
    merged = bench.merged("b1")
    assert (merged.status, merged.accepted, merged.rejected) == ("merged", 1, 0)
    assert bench.pane().numbers == pane_of([1, 2, 3]).numbers
    assert letters(bench, loop) == [] and bench.cursor()["n"] == "3"
    record = loop.keys.record(MODEL.key, MODEL.generation, "b1")
    assert 86_000 < bench.client.ttl(record) <= 86_400


def test_one_that_fails_again_is_a_dead_letter_again(bench, loop):
    [letter] = letters(bench, loop)
    assert replay(bench.store, loop.partition, letter.id)
    steps(loop, 3)
    [again] = letters(bench, loop)
    assert again.batch_id == "b1" and again.id != letter.id
    assert bench.merged("b1").rejected == 1


def test_after_a_discard_the_id_has_its_outcome(bench, loop):
    [letter] = letters(bench, loop)
    assert discard(bench.store, loop.partition, letter.id)
    assert not discard(bench.store, loop.partition, letter.id)
    assert not replay(bench.store, loop.partition, letter.id)
    ended = bench.run(bench.inbox.record(MODEL.key, "b1"))
    assert ended.status == "dead_lettered" and ended.errors[-1]["rule"] == "discarded"
    record = loop.keys.record(MODEL.key, MODEL.generation, "b1")
    assert 86_000 < bench.client.ttl(record) <= 86_400
    with pytest.raises(BatchConflictError):
        bench.deliver(delivery("b1", [7]))


def test_a_parked_entry_is_discarded_too(bench, monkeypatch):
    from calibrant_server.workers.ingest import attempts

    monkeypatch.setattr(attempts, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(attempts, "MAX_PAUSE_S", 0.001)
    loop = parked_batch(bench)
    [letter] = letters(bench, loop)
    book = bench.inbox.letters
    assert [each.id for each in bench.run(book.of_model(MODEL))] == [letter.id]
    assert bench.run(book.discard(MODEL, letter.id))
    assert bench.run(bench.inbox.record(MODEL.key, "b1")).status == "dead_lettered"
    steps(loop, 3)
    assert bench.pane().numbers == pane_of([1, 3]).numbers


def test_an_entry_without_a_model_is_listed_and_discarded(bench, loop):
    """It belongs to no tenant: only the command reaches it."""
    bench.client.xadd(loop.keys.stream, {"i": "b9", "k": "predictions"})
    steps(loop, 3)
    letter = letters(bench, loop)[-1]
    assert (letter.model, letter.batch_id) == ("", "b9")
    assert replay(bench.store, loop.partition, letter.id)
    steps(loop, 3)
    letter = letters(bench, loop)[-1]
    assert discard(bench.store, loop.partition, letter.id)
    assert len(letters(bench, loop)) == 1


def test_a_deleted_model_leaves_no_dead_letter(bench, loop):
    bench.run(Registry(bench.inbox.client, bench.inbox.keys).delete(MODEL))
    steps(loop, 3)
    assert letters(bench, loop) == [] and bench.keys_of() == []
