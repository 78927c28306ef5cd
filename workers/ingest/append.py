"""The step that hands a batch over to its partition, with the room that its records will need.

What is on its way counts as retained until the commit that consumes it, so that the bounds on retained records hold however
much is sent at once (`state/scripts/append.lua`).
"""

from __future__ import annotations

import time
from typing import Any

from calibrant_server.workers.ingest.entries import Entry
from calibrant_server.workers.ingest.receipts import ModelMismatch
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.connection import scripts
from calibrant_server.workers.store.keys import PartitionKeys

_KNOWN, _DONE, _GONE, _FULL = range(4)


class NoRoom(RuntimeError):
    """There is no room for the records that may come of an entry; so much is retained or on its way."""

    def __init__(self, n_records: int, n_bytes: int):
        super().__init__(f"{n_records} records of {n_bytes} bytes are retained")
        self.n_records = n_records
        self.n_bytes = n_bytes


class Appending:
    """Appends entries, for the event loop."""

    def __init__(self, client: Any, settings: EngineSettings):
        self._settings = settings
        self._script = client.register_script(scripts()["append"])

    async def append(
        self, keys: PartitionKeys, entry: Entry, record: BatchRecord
    ) -> BatchRecord | None:
        """Entry, record and counters in one step; returns the record that was there before.

        Raises
        ------
        NoRoom
            `entry.n_records` further records would pass the bounds on what is retained.
        ModelMismatch
            The model was deleted meanwhile.
        """
        settings = self._settings
        name, text = keys.record(entry.model, entry.generation, entry.batch_id), record.to_json()
        ttl_s = settings.idempotency_ttl_s
        weight = len(name) + len(text) + batch_records.RECORD_OVERHEAD_BYTES
        fields = [part for pair in entry.to_fields().items() for part in pair]
        kind, *told = await self._script(
            keys=[name, keys.stream, keys.bytes_in, keys.record_bytes, keys.retained, keys.models],
            args=[
                *(
                    text,
                    ttl_s,
                    batch_records.expiry_bucket(time.time(), ttl_s),
                    weight,
                    entry.n_bytes,
                ),
                *(
                    entry.model,
                    f'"generation":"{entry.generation}"',
                    entry.n_records,
                    entry.record_bytes,
                ),
                *(settings.retained_records, settings.retained_bytes, *fields),
            ],
        )
        if kind == _GONE:
            raise ModelMismatch(None)
        if kind == _FULL:
            raise NoRoom(int(told[0]), int(told[1]))
        return BatchRecord.from_json(told[0]) if kind == _KNOWN else None
