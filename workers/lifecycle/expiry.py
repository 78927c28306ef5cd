"""Expiry of retained records past their model's retention: found by a slow scan, removed through the fencing token."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant_server.workers.ingest.record_store import TALLIES, scanned, tallies_of
from calibrant_server.workers.join.record_format import RecordError
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.key_names import RECORD_SHARDS, PartitionKeys, with_tenant
from calibrant_server.workers.store.model_config import ModelConfig

log = logging.getLogger(__name__)


def old_records(
    node: Any, keys: PartitionKeys, fencing: FencingToken, config: ModelConfig, kept_from_s: int
) -> Iterator[None]:
    """Remove records whose pane had ended by `kept_from_s`, in steps; it can be interrupted after any step.

    Labels without a prediction count from their arrival.
    """
    for name in filled_shards(node, keys, config):
        for fields in scanned(node, name):
            if fields:
                _remove_old(keys, fencing, config, name, _readable(fields), kept_from_s)
            yield
    yield from _drop_old_members(node, keys, fencing, config, kept_from_s)


def filled_shards(node: Any, keys: PartitionKeys, config: ModelConfig) -> list[str]:
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


def _readable(fields: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the records that can be read; a damaged one stays where it is and keeps no other from expiring."""
    try:
        Records.read(list(fields.values()))
    except RecordError as error:
        if len(fields) > 1:
            some = list(fields.items())
            middle = len(some) // 2
            return _readable(dict(some[:middle])) | _readable(dict(some[middle:]))
        log.error("record_unreadable id=%r error=%s", *fields, error)
        return {}
    return fields


def _began_s(records: Records) -> NDArray[np.float64]:
    """Return the time of each prediction, and of labels without one when the first of them was received."""
    began = records.since_s.astype(np.float64)
    own = records.has_prediction
    began[own] = records.predictions.event_us[records.prediction[own]] / 1_000_000
    return began


def _remove_old(
    keys: PartitionKeys,
    fencing: FencingToken,
    config: ModelConfig,
    shard: str,
    fields: dict[bytes, bytes],
    kept_from_s: int,
) -> None:
    names, packed = [name.decode() for name in fields], list(fields.values())
    records = Records.read(packed)
    old = np.flatnonzero(_began_s(records) < kept_from_s)
    if not len(old):
        return
    own = [names[i] for i in old.tolist()]
    gone = tallies_of(own, records, old, [packed[i] for i in old.tolist()])
    tallies = dict.fromkeys(TALLIES, 0) | {name: -n for name, n in gone.items()}
    tallies |= {"expired": len(old), "expired_unlabelled": gone["pending"]}
    commit = Commit(keys)
    commit.drop_fields(shard, own)
    commit.add_numbers(keys.tallies(config.key, config.generation), tallies)
    retained = {name: tallies[name] for name in ("records", "bytes")}
    commit.add_numbers(keys.retained, with_tenant(config.key, retained))
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
