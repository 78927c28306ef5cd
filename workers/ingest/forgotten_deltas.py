"""Deltas that a side partition has forwarded and forgotten, because its server lost its last writes.

The own partition of the model may be on another server, which has them. Their batches may still be in the stream of the side
partition, or a client may repeat them: both would count twice. The record of each delta in the own partition therefore names its
batches. From these the records of the batches are written again, before the side partition reduces anything more of the model. Until
then a repeat may come to another partition, because the number of partitions was changed: `forgotten_batch` finds it in the same records.

Whatever a server loses are its last writes, and a commit that makes a delta writes the records of its batches in the same step. So
if the records of a delta are there, all earlier deltas are known too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from calibrant_server.workers.ingest.deltas import DeltaName
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import Keys, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig

log = logging.getLogger(__name__)
_READ_TOGETHER = 100


async def forgotten_batch(
    client: Any, keys: Keys, config: ModelConfig, batch_id: str, last: Mapping[int, int]
) -> BatchRecord | None:
    """Return the record of a batch in a delta that its side partition has forgotten; None if no such delta has it.

    Parameters
    ----------
    last : number of the last delta of the model that each side partition knows, read after it had no record of the batch
    """
    own, of = keys.of(config), (config.key, config.generation)
    fields = [DeltaName(partition, 0).watermark_field for partition in last]
    marks = await client.hmget(own.marks(*of), fields)
    names = [
        DeltaName(partition, number)
        for (partition, known), mark in zip(last.items(), marks, strict=True)
        # Servers lose their last seconds, in which a partition makes a few deltas.
        for number in range(max(known + 1, int(mark or 1) - _READ_TOGETHER), int(mark or 1))
    ]
    if not names:
        return None
    texts = await client.mget([own.record(*of, each.batch_id) for each in names])
    for name, text in zip(names, texts, strict=True):
        contains = {} if text is None else BatchRecord.from_json(text).contains
        if batch_id in contains:
            return _in_delta(name, contains[batch_id])
    return None


def _in_delta(name: DeltaName, n_rows: int) -> BatchRecord:
    """Return the record of a batch where only its delta and its number of rows are known."""
    return BatchRecord(batch_records.ACCEPTED, "", accepted=n_rows, delta=str(name))


class ForgottenDeltas:
    """Finds them for one side partition."""

    def __init__(self, store: Store, keys: PartitionKeys):
        self._store, self._keys = store, keys
        self._node = store.node(keys.partition)

    def remember(self, config: ModelConfig, appended_to: int) -> Commit | None:
        """Return a commit with the records of the batches in forgotten deltas of a model; None if nothing was forgotten.

        Parameters
        ----------
        appended_to : number of the last delta of this partition that the own partition of the model has
        """
        commit, n, of = Commit(self._keys), 0, f"{config.key}|{config.generation}"
        if appended_to <= int(self._node.hget(self._keys.last_deltas, of) or 0):
            return None
        for name, contains in self._forgotten(config, appended_to):
            self._write(config, name, contains, commit)
            n += 1
        commit.set_fields(self._keys.last_deltas, {of: str(appended_to)})
        log.warning(
            "forgotten_deltas_found partition=%d model=%s n=%d", self._keys.partition, config.key, n
        )
        return commit

    def _forgotten(
        self, config: ModelConfig, appended_to: int
    ) -> Iterator[tuple[DeltaName, dict[str, int]]]:
        """Yield what forgotten deltas contain, from the last one back to the first one that is known."""
        own, of = self._store.keys.of(config), (config.key, config.generation)
        for last in range(appended_to, 0, -_READ_TOGETHER):
            numbers = range(last, max(0, last - _READ_TOGETHER), -1)
            names = [DeltaName(self._keys.partition, number) for number in numbers]
            texts = self._store.client.mget([own.record(*of, each.batch_id) for each in names])
            for name, text in zip(names, texts, strict=True):
                contains = {} if text is None else BatchRecord.from_json(text).contains
                if not contains:
                    continue  # of another model, expired, or of an earlier version
                if self._is_known(config, name, next(reversed(contains))):
                    return
                yield name, contains
            if not any(texts):
                return

    def _is_known(self, config: ModelConfig, name: DeltaName, batch_id: str) -> bool:
        text = self._node.get(self._keys.record(config.key, config.generation, batch_id))
        return text is not None and BatchRecord.from_json(text).delta == str(name)

    def _write(
        self, config: ModelConfig, name: DeltaName, contains: dict[str, int], commit: Commit
    ) -> None:
        of = (config.key, config.generation)
        keys = [self._keys.record(*of, batch_id) for batch_id in contains]
        texts = self._node.mget(keys)
        for key, n_rows, text in zip(keys, contains.values(), texts, strict=True):
            # A repeat may have arrived since, or the batch is still in the stream.
            record = _in_delta(name, n_rows)
            if text is not None:
                known = BatchRecord.from_json(text)
                record = known.ended(batch_records.ACCEPTED, delta=str(name))
            commit.record(key, record.to_json(), self._store.settings.idempotency_ttl_s)
