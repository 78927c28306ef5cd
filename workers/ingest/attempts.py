"""Attempts of a partition's entries: which are committed alone, the pause before the next attempt, and which are parked.

Entries are consumed in order. Those of a failed group, and those that may have ended a reader, are committed one by one, so that only
the first entry can fail alone. Failures are counted in memory, ends of readers in the cursor. After a restart the failures are counted
again, which only costs further attempts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from redis.exceptions import ResponseError

from calibrant_server.workers.ingest.dead_letters import EntryHead
from calibrant_server.workers.ingest.entries import reservation
from calibrant_server.workers.store.batch_records import ACCEPTED, PARKED, BatchRecord
from calibrant_server.workers.store.commit import FIRST_ID, Commit, Cursor, FencingToken, id_order
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.transient_errors import is_transient

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 10
# Readers that end while an entry is alone, before it is parked: one end may be that of another partition's entry.
MAX_ENDS_ALONE = 2
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
MAX_TRANSIENT_PAUSE_S = 0.5


class FailedAloneError(RuntimeError):
    """An entry in a commit of its own failed with an unexpected error; it is tried again, then parked."""


class Attempts:
    """Failures since the last success of one partition."""

    def __init__(self) -> None:
        self._one_by_one_to = FIRST_ID
        self._failing = ""
        self._n_alone = 0
        self._n_transient = 0
        self._why = ""

    def is_alone(self, entry_id: str, cursor: Cursor) -> bool:
        """Return whether an entry is committed alone: its group failed, or a reader ended that may have reached it."""
        limits = (self._one_by_one_to, cursor.danger_id)
        return id_order(entry_id) <= max(map(id_order, limits))

    def separate(self, to_id: str) -> None:
        """Have the entries up to this one committed alone."""
        self._one_by_one_to = to_id

    def spent(self, cursor: Cursor) -> tuple[str, str] | None:
        """Return the id of an entry that is to be parked ("" for the next one), and why; None without one."""
        if cursor.ends_alone >= MAX_ENDS_ALONE:
            return "", f"its reader died {cursor.ends_alone} times while it was alone"
        return (self._failing, self._why) if self._n_alone >= MAX_ATTEMPTS else None

    def succeeded(self) -> None:
        """Reset the count after a written commit."""
        self._failing, self._n_alone, self._n_transient = "", 0, 0

    def failed(self, entry_ids: Sequence[str], error: BaseException, cursor: Cursor) -> float:
        """Record a failure of these entries; return the pause in seconds before the next try."""
        if is_transient(error):
            self._n_transient += 1
            return _pause_s(self._n_transient, MAX_TRANSIENT_PAUSE_S)
        if len(entry_ids) != 1 or not self.is_alone(entry_ids[0], cursor):
            # Another entry may be the cause, or the reading of further ones.
            self.separate(entry_ids[-1] if entry_ids else self._one_by_one_to)
            return FIRST_PAUSE_S
        if entry_ids[0] != self._failing:
            self._failing, self._n_alone = entry_ids[0], 0
        self._n_alone += 1
        self._why = f"{type(error).__name__}: {error}"[:500]
        log.warning(
            "entry_failed_alone entry_id=%s attempt=%d error=%s",
            self._failing,
            self._n_alone,
            self._why,
        )
        return _pause_s(self._n_alone, MAX_PAUSE_S)


def _pause_s(n: int, longest_s: float) -> float:
    return min(longest_s, FIRST_PAUSE_S * 2.0 ** min(n - 1, 20))


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
