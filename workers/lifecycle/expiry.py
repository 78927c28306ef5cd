"""Expiry of retained records past their model's retention: found by a slow scan, removed through the fencing token."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from calibrant_server.workers.ingest.retained_record import RetainedRecord
from calibrant_server.workers.ingest.retained_store import TALLIES, count_record, scanned
from calibrant_server.workers.join.record_format import RecordError
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.keys import RECORD_SHARDS, PartitionKeys, with_tenant
from calibrant_server.workers.store.model_config import ModelConfig

log = logging.getLogger(__name__)


def old_records(
    node: Any, keys: PartitionKeys, fencing: FencingToken, config: ModelConfig, kept_from_s: int
) -> Iterator[None]:
    """Remove records whose pane had ended by `kept_from_s`, in steps; it can be interrupted after any step.

    Labels without a prediction count from their arrival.
    """
    for name in _filled(node, keys, config):
        for fields in scanned(node, name):
            old = {
                field.decode(): record
                for field, record in (
                    (field, _readable(field, text)) for field, text in fields.items()
                )
                if record is not None and _began_s(record) < kept_from_s
            }
            if old:
                _remove(keys, fencing, config, name, old)
            yield
    yield from _drop_old_members(node, keys, fencing, config, kept_from_s)


def _filled(node: Any, keys: PartitionKeys, config: ModelConfig) -> list[str]:
    """Return the hashes of records that are not empty: most models of a fleet have none, and a worker that starts walks over all."""
    names = [keys.records(config.key, config.generation, shard) for shard in range(RECORD_SHARDS)]
    with node.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.hlen(name)
        sizes = pipe.execute()
    return [name for name, size in zip(names, sizes, strict=True) if size]


def remove_records(node: Any, keys: PartitionKeys, model: str, generation: str) -> Commit:
    """Commit the removal of everything retained of a generation. Safe to repeat."""
    commit = Commit(keys)
    tallies = keys.tallies(model, generation)
    retained = {field.decode(): int(n) for field, n in node.hgetall(tallies).items()}
    gone = {name: -retained.get(name, 0) for name in ("records", "bytes")}
    commit.add_numbers(keys.retained, with_tenant(model, gone))
    commit.unlink(tallies)
    commit.unlink(keys.unit_members(model, generation))
    for shard in range(RECORD_SHARDS):
        commit.unlink(keys.records(model, generation, shard))
    return commit


def _readable(field: bytes, text: bytes) -> RetainedRecord | None:
    """Read a record; a damaged one stays where it is and keeps no other from expiring."""
    try:
        return RetainedRecord.unpack(text)
    except RecordError as error:
        log.error("record_unreadable id=%r error=%s", field, error)
        return None


def _began_s(record: RetainedRecord) -> float:
    return record.since_s if record.prediction is None else record.prediction.event_us / 1_000_000


def _remove(
    keys: PartitionKeys,
    fencing: FencingToken,
    config: ModelConfig,
    shard: str,
    old: dict[str, RetainedRecord],
) -> None:
    tallies = dict.fromkeys(TALLIES, 0)
    for name, record in old.items():
        count_record(tallies, name, record, record.n_bytes, -1)
        tallies["expired"] += 1
        tallies["expired_unlabelled"] += record.counts and not record.is_labelled
    commit = Commit(keys)
    commit.drop_fields(shard, list(old))
    commit.add_numbers(keys.tallies(config.key, config.generation), tallies)
    gone = {name: tallies[name] for name in ("records", "bytes")}
    commit.add_numbers(keys.retained, with_tenant(config.key, gone))
    fencing.send(commit, fencing.new_token())


def _drop_old_members(
    node: Any, keys: PartitionKeys, fencing: FencingToken, config: ModelConfig, kept_from_s: int
) -> Iterator[None]:
    name = keys.unit_members(config.key, config.generation)
    for fields in scanned(node, name):
        old = [field for field in fields if int(field.partition(b"|")[0]) < kept_from_s]
        if old:
            commit = Commit(keys)
            commit.drop_fields(name, old)
            fencing.send(commit, fencing.new_token())
        yield
