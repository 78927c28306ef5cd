"""Records of batches: written as before, and read whatever a client sent."""

from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord


def test_a_record_is_written_as_before_and_read_whatever_a_client_sent():
    plain = BatchRecord(batch_records.ACCEPTED, "ab" * 16, 3, nonce="0a")
    assert plain.to_json() == b'{"s":"accepted","h":"%s","a":3,"n":"0a"}' % (b"ab" * 16)
    errors = [{"pointer": "/x", "rule": "id", "detail": "ü\ud800"}]
    merged = plain.ended(batch_records.MERGED, errors=errors, accepted=2)
    assert plain.status == batch_records.ACCEPTED and plain.errors == []
    assert b"\\u00fc\\ud800" in merged.to_json()
    assert BatchRecord.from_json(merged.to_json()) == merged
    assert BatchRecord.from_json(plain.to_json()) == plain
