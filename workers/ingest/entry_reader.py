"""Reading of a partition's entries, several at once, with the record of each batch and the configuration of each model."""

from __future__ import annotations

from typing import Any

from calibrant_server.workers.ingest.commit_group import Item
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.commit import next_count
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import parsed_configs

FIRST_COUNT = 16


class EntryReader:
    """Reader of the stream of one partition.

    Attributes
    ----------
    count : entries to read next
    """

    def __init__(self, node: Any, keys: PartitionKeys) -> None:
        self._node = node
        self._keys = keys
        self.count = FIRST_COUNT

    def read(self, after_id: str, block_s: float) -> tuple[list[Item], bool]:
        """Return the entries after one, and whether the stream had no more of them."""
        reply = self._node.xread(
            {self._keys.stream: after_id},
            count=self.count,
            block=max(1, int(block_s * 1000)) if block_s > 0 else None,
        )
        items = [
            Item.read(entry_id.decode(), fields) for _, found in reply for entry_id, fields in found
        ]
        dry = len(items) < self.count
        if items:
            self.count = next_count(items)
        return items, dry

    def look_up(self, items: list[Item]) -> None:
        """Read the record and the model of entries."""
        entries = [item.entry for item in items if item.entry is not None]
        if not entries:
            return
        names = [self._keys.record(e.model, e.generation, e.batch_id) for e in entries]
        models = sorted({e.model for e in entries})
        with self._node.pipeline(transaction=False) as pipe:
            pipe.mget(names)
            pipe.hmget(self._keys.models, models)
            records, texts = pipe.execute()
        found = iter(records)
        configs = parsed_configs(models, texts)
        for item in items:
            if item.entry is not None:
                text = next(found)
                item.record = None if text is None else BatchRecord.from_json(text)
                item.config = configs.get(item.entry.model)
