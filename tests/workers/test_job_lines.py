"""Jobs in the lines of an export: what the other store keeps, and what none can keep."""

from __future__ import annotations

from base64 import b64encode

import pytest

from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.lifecycle.transfer_jobs import put_job
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import Keys
from tests.workers.driving import MODEL

KEYS = Keys("ns", 1).of_model(MODEL.key)
LINE = {"job": "j", "tasks": 10, "created_ms": 1, "closed_ms": None, "expires_ms": None}


def bits(*data: int) -> dict[str, str]:
    return {"packed": b64encode(bytes(data)).decode()}


def put(**changes):
    commit = Commit(KEYS)
    put_job({**LINE, **bits(0x80), **changes}, commit, KEYS, MODEL)
    return commit


@pytest.mark.parametrize("changes", [
    bits(), bits(0xFF, 0x80), {"tasks": 8, "closed_ms": 5, "expires_ms": 9} | bits(0xFF), {"tasks": 9} | bits(0x7F, 0x80),
])  # fmt: skip
def test_lines_that_an_export_writes_are_taken(changes):
    assert put(**changes).n_bytes > 0


@pytest.mark.parametrize(("changes", "detail"), [
    ({"job": "a|b"}, "a name"), ({"job": ""}, "a name"), ({"tasks": 0}, "1 to"), ({"tasks": 1_000_001}, "1 to"),
    ({"closed_ms": 5}, "the times of its end"), ({"expires_ms": 5}, "the times of its end"),
    (bits(0xFF, 0xC0), "the times of its end"), ({"created_ms": -1}, "times of a job line"),
    ({"closed_ms": 5, "expires_ms": 2**53}, "times of a job line"), (bits(0, 0, 0), "does not have"),
    (bits(0, 0x20), "does not have"), ({"tasks": 8} | bits(0, 0x80), "does not have"), ({"packed": "?"}, "base64"),
])  # fmt: skip
def test_lines_that_no_store_can_keep_are_rejected(changes, detail):
    with pytest.raises(EntryError, match=detail):
        put(**changes)
