"""Parking of one entry: a commit stores it for a replay, leaves its id open and advances the cursor."""

from __future__ import annotations

import logging
import time

from redis.exceptions import ResponseError

from calibrant_server.workers.ingest.attempts import FailedAloneError
from calibrant_server.workers.ingest.dead_letters import EntryHead
from calibrant_server.workers.ingest.entries import reservation
from calibrant_server.workers.store.batch_records import ACCEPTED, PARKED, BatchRecord
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import PartitionKeys

log = logging.getLogger(__name__)


class Parking:
    """Parks entries of one partition within a bound on the bytes that all partitions have parked."""

    def __init__(self, store: Store, keys: PartitionKeys, fencing: FencingToken):
        self._store = store
        self._node = store.node(keys.partition)
        self._keys = keys
        self._fencing = fencing
        self._limit_bytes = store.settings.parked_bytes

    def park(self, head: EntryHead, why: str) -> None:
        """Park an entry by its head: its payload stays in the store."""
        self.check_room(head.n_bytes)
        commit = Commit(self._keys)
        commit.park(head.id, why, int(time.time() * 1000))
        # The replay reserves room for its records again.
        commit.release(reservation(head.fields, head.payload_bytes))
        self._leave_open(head, commit)
        log.error("entry_parked entry_id=%s error=%s", head.id, why)
        self._fencing.send(commit, self._fencing.new_token(), head.id, 0, head.n_bytes)

    def check_room(self, n_bytes: int) -> None:
        """Raise FailedAloneError if the parked entries would exceed their bound: the partition then waits for an operator."""
        try:
            with self._store.client.pipeline(transaction=False) as pipe:
                for number in range(self._store.settings.partitions):
                    pipe.memory_usage(self._store.keys.partition(number).parked)
                n_parked_bytes = sum(n or 0 for n in pipe.execute())
        except ResponseError:
            # A managed server may hide the command; it then bounds its memory itself.
            return
        if n_parked_bytes + n_bytes > self._limit_bytes:
            raise FailedAloneError(
                f"{n_parked_bytes} bytes are parked, of {self._limit_bytes} at most: replay or discard parked entries"
            )

    def _leave_open(self, head: EntryHead, commit: Commit) -> None:
        """Write the record of the batch id: not final, and without a time to live."""
        model, generation, batch_id = (
            head.fields.get(name, b"").decode(errors="replace") for name in (b"m", b"g", b"i")
        )
        if not (model and generation and batch_id):
            return
        key = self._keys.record(model, generation, batch_id)
        text = self._node.get(key)
        if text is None:
            record = BatchRecord(ACCEPTED, head.fields.get(b"h", b"").hex())
        else:
            record = BatchRecord.from_json(text)
        if not record.is_final:
            commit.record(key, record.ended(PARKED).to_json(), 0)
