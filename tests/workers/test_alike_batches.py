"""Small batches that are read and stored together: the same as one by one."""

import numpy as np
import pytest

from calibrant import Batch
from calibrant.core.batch import Ratings
from calibrant.core.packing import PackingError
from calibrant_server.workers.ingest.alike_batches import rows_of_batches, unpacked_together
from calibrant_server.workers.ingest.entries import LABELS, PREDICTIONS, IngestEntry
from calibrant_server.workers.ingest.tail_rows import TailRows
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord


def batch_of(rng, n=1, n_classes=4, **more):
    columns = {
        "probabilities": rng.dirichlet(np.full(n_classes, 0.5), n),
        "labels": rng.integers(0, n_classes, (n, int(rng.integers(1, 5)))),
    }
    return Batch.from_columns(columns | more).batch


def entry_of(number, payload, kind=PREDICTIONS):
    return IngestEntry(
        model="t/m",
        generation="g",
        batch_id=f"b{number}",
        kind=kind,
        digest=b"",
        received_ms=0,
        payload=payload,
        id=f"{number}-0",
    )


def generated(n):
    """Batches of several shapes, also whole scores, which are packed narrower, and equal arrays."""
    rng = np.random.default_rng(n)
    for number in range(n):
        kind = number % 6
        if kind == 0:
            yield Batch.from_columns(
                {"logits": rng.integers(-9, 9, (2, 3)), "labels": [0, 1]}
            ).batch
        elif kind == 1:
            yield Batch.from_columns({"confidences": rng.random(1), "labels": [1]}).batch
        elif kind == 2:
            yield batch_of(rng, n=3, n_classes=2)
        else:
            yield batch_of(rng)


def test_payloads_unpacked_together_are_those_unpacked_alone():
    entries = [entry_of(i, each.pack()) for i, each in enumerate(generated(60))]
    found = unpacked_together(entries, Batch)
    assert found.keys() == {entry.id for entry in entries}
    for entry in entries:
        alone, together = Batch.unpack(entry.payload), found[entry.id]
        assert together.digest() == alone.digest()
        assert together.pack() == alone.pack()
        assert together.shape_key == alone.shape_key
        assert together.scores.flags.c_contiguous and together.scores.flags.writeable


def test_others_and_damaged_payloads_are_left_to_the_reading_of_one():
    rng = np.random.default_rng(0)
    good = batch_of(rng).pack()
    cases = {
        "labels": entry_of(1, good, LABELS),
        "ids": entry_of(2, batch_of(rng, ids=["a"]).pack()),
        "weights": entry_of(3, batch_of(rng, weights=[2.0]).pack()),
        "slices": entry_of(4, batch_of(rng, slices={"site": ["A"]}).pack()),
        "large": entry_of(5, batch_of(rng, n=400).pack()),
        "cut": entry_of(6, good[:-1]),
        "empty": entry_of(7, b""),
        "longer": entry_of(8, good + b"\0"),
    }
    for at in range(0, len(good), 7):
        damaged = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        cases[f"damaged at {at}"] = entry_of(100 + at, damaged)
        with pytest.raises(PackingError):
            Batch.unpack(damaged)
    plain = [entry_of(9, good), entry_of(10, batch_of(rng).pack())]
    assert unpacked_together([*cases.values(), *plain], Batch).keys() == {"9-0", "10-0"}
    assert unpacked_together(plain[:1], Batch) == {}
    assert unpacked_together(plain, type("Other", (), {})) == {}


@pytest.mark.parametrize(
    "ratings", [([1], [0], [1]), ([0], [2], [1]), ([0], [0], [0]), ([0, 0], [1, 0], [1, 1])]
)
def test_ratings_that_do_not_fit_are_left_out(ratings):
    rng = np.random.default_rng(0)
    good = [batch_of(rng, n_classes=2) for _ in range(3)]
    row, class_index, count = (np.array(each, np.int64) for each in ratings)
    bad = Batch("multiclass", good[0].scores, False, Ratings(row, class_index, count))
    with pytest.raises(PackingError):
        Batch.unpack(bad.pack())
    entries = [entry_of(i, each.pack()) for i, each in enumerate([*good, bad])]
    assert unpacked_together(entries, Batch).keys() == {"0-0", "1-0", "2-0"}


def test_rows_of_batches_are_those_of_each_in_order():
    rng = np.random.default_rng(1)
    times = {
        "event_times": ["2026-01-01T00:00:00Z"] * 2,
        "slices": {"site": ["A", "B"]},
        "units": ["p", "p"],
    }
    batches = [batch_of(rng, n=2) for _ in range(4)]
    batches += [batch_of(rng, n=2, **times) for _ in range(3)]
    batches += [batch_of(rng, n=100), batch_of(rng, n=100), batch_of(rng)]
    expected = TailRows.together([TailRows.of_batch(each, 7 + i) for i, each in enumerate(batches)])
    pieces = rows_of_batches(TailRows, batches, 7)
    assert len(pieces) == 5
    assert TailRows.together(pieces).pack() == expected.pack()


def test_a_record_is_written_as_before_and_read_whatever_a_client_sent():
    plain = BatchRecord(batch_records.ACCEPTED, "ab" * 16, 3, nonce="0a")
    assert plain.to_json() == b'{"s":"accepted","h":"%s","a":3,"n":"0a"}' % (b"ab" * 16)
    errors = [{"pointer": "/x", "rule": "id", "detail": "ü\ud800"}]
    merged = plain.ended(batch_records.MERGED, errors=errors, accepted=2)
    assert plain.status == batch_records.ACCEPTED and plain.errors == []
    assert b"\\u00fc\\ud800" in merged.to_json()
    assert BatchRecord.from_json(merged.to_json()) == merged
    assert BatchRecord.from_json(plain.to_json()) == plain
