"""Small batches that are stored together: the same as one by one."""

import numpy as np

from calibrant import Batch
from calibrant_server.workers.ingest.alike_batches import rows_of_batches
from calibrant_server.workers.ingest.tail_rows import TailRows
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord


def batch_of(rng, n=1, n_classes=4, **more):
    columns = {
        "probabilities": rng.dirichlet(np.full(n_classes, 0.5), n),
        "labels": rng.integers(0, n_classes, (n, int(rng.integers(1, 5)))),
    }
    return Batch.from_columns(columns | more).batch


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
