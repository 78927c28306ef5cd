"""Damaged payloads of labels are errors of their entry."""

from __future__ import annotations

import pytest

from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.ingest.payloads import check_labels, unpack_labels


@pytest.mark.parametrize(
    "payload",
    [
        b'{"format":1,"rows":[["a",[[0,1]]]]}',
        b'{"format":1,"rows":[["a",5,[]]]}',
        b'{"format":1,"rows":[["a",[[0,"x"]],[]]]}',
        b'{"format":1,"rows":[["a",[[0]],[]]]}',
        b'{"format":1,"rows":[["a",[],[["r",1]]]]}',
        b'{"format":1,"rows":5}',
        b'{"format":2,"rows":[]}',
        b"{",
    ],
)
def test_damaged_payloads_are_errors_of_the_entry(payload):
    with pytest.raises(EntryError):
        check_labels(unpack_labels(payload), 3)
