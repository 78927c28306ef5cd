"""Retained records in the store: read by the worker that owns the partition, written by its commit.

An index of the records of a pane finds rows by time, until it is sealed and the alarm has processed it. The commit that first joins a
prediction to its pane writes the index, one field per commit, so that existing fields are never written again. Models without a label
horizon have no index; `index_of_records` writes it when they declare one. Deleted ids stay listed; their records report the deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.ingest.entries import FIELD_OVERHEAD_BYTES
from calibrant_server.workers.ingest.joined_model import Group, JoinedModel
from calibrant_server.workers.ingest.label_join import LabelJoin, RowOutcomes
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.segments.ragged import Ints
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.key_names import Keys, PartitionKeys, by_shard, with_tenant
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import (
    ERASED,
    INDEXED,
    RATED,
    Watermarks,
    fields_of,
)

_A_READ = 500


def note(
    commit: Commit, keys: PartitionKeys, config: ModelConfig, ids: Mapping[int, Sequence[str]]
) -> None:
    """Add to a commit the ids that are new in each pane, by its start in seconds."""
    for start, names in ids.items():
        listed = _SEPARATOR.join(names).encode()
        field = blake2b(listed, digest_size=8).hexdigest()
        commit.set_fields(keys.unsealed(config.key, config.generation, start), {field: listed})


def ids_in(node: Any, keys: PartitionKeys, config: ModelConfig, starts: Sequence[int]) -> list[str]:
    """Return the ids of some panes, sorted and each once."""
    found: set[str] = set()
    for first in range(0, len(starts), _A_READ):
        with node.pipeline(transaction=False) as pipe:
            for start in starts[first : first + _A_READ]:
                pipe.hvals(keys.unsealed(config.key, config.generation, start))
            for listed in pipe.execute():
                for names in listed:
                    found.update(names.decode().split(_SEPARATOR))
    return sorted(found)


def forget(commit: Commit, keys: PartitionKeys, config: ModelConfig, starts: Iterable[int]) -> None:
    """Delete the indices of some panes in a commit."""
    for start in starts:
        commit.unlink(keys.unsealed(config.key, config.generation, start))


_SEPARATOR = "\x1f"
_A_SCAN = 500
TALLIES = (
    "records",
    "bytes",
    "pending",
    "waiting",
    "joined",
    "deleted",
    "conflicts",
    "duplicates",
    "expired",
    "expired_unlabelled",
)


class RecordStore:
    """Reader of records and members of units, many per round trip."""

    def __init__(self, node: Any, keys: PartitionKeys):
        self._node = node
        self._keys = keys

    def packed(self, config: ModelConfig, names: list[str]) -> dict[str, bytes]:
        """Return the stored bytes of the records of some ids; ids without one are left out."""
        shards = [(shard, [names[i] for i in places]) for shard, places in by_shard(names)]
        with self._node.pipeline(transaction=False) as pipe:
            for shard, some in shards:
                pipe.hmget(self._keys.records(config.key, config.generation, shard), some)
            replies = pipe.execute()
        found: dict[str, bytes] = {}
        for (_, some), texts in zip(shards, replies, strict=True):
            if texts.count(None) < len(texts):
                found |= {name: t for name, t in zip(some, texts, strict=True) if t is not None}
        return found

    def unit_members(self, config: ModelConfig, groups: list[Group]) -> dict[Group, list[str]]:
        """Return the ids of each unit of a pane; units without one are left out."""
        name = self._keys.unit_members(config.key, config.generation)
        texts = self._node.hmget(name, [group_field(group) for group in groups])
        return {
            group: text.decode().split(_SEPARATOR)
            for group, text in zip(groups, texts, strict=True)
            if text is not None
        }

    def slices(self, config: ModelConfig) -> list[str]:
        """Return the slices of a model that have panes."""
        members = self._node.smembers(self._keys.slices(config.key, config.generation))
        return [member.decode() for member in members]

    def marks(self, config: ModelConfig) -> Watermarks:
        """Return the limits up to which the model's panes are dropped and sealed."""
        name = self._keys.marks(config.key, config.generation)
        return Watermarks.read(self._node.hmget(name, fields_of(ALL_ROWS)))


def scanned(node: Any, name: str, count: int = _A_SCAN) -> Iterator[dict[bytes, bytes]]:
    """Yield the fields of a hash in pieces of about `count`; a hash that changes meanwhile may yield a field twice."""
    cursor = 0
    while True:
        cursor, fields = node.hscan(name, cursor, count=count)
        yield fields
        if cursor == 0:
            return


def group_field(group: Group) -> str:
    """Return the field that stores a unit's members."""
    return f"{group[0]}|{group[1]}"


def write_records(
    join: LabelJoin,
    outcomes: Iterable[tuple[ModelConfig, RowOutcomes]],
    commit: Commit,
    keys: PartitionKeys,
) -> None:
    """Add a join's changes to a commit: records, members of units, counts of each model."""
    noted: dict[tuple[str, str], dict[str, int]] = {}
    for config, each in outcomes:
        counts = noted.setdefault(
            (config.key, config.generation), {"conflicts": 0, "duplicates": 0}
        )
        counts["conflicts"] += len(each.errors)
        counts["duplicates"] += each.duplicates
    for model in join.joined():
        name = (model.config.key, model.config.generation)
        _write_model(model, noted.get(name, {}), commit, keys)


def _write_model(
    model: JoinedModel, counts: dict[str, int], commit: Commit, keys: PartitionKeys
) -> None:
    key, generation = model.config.key, model.config.generation
    names = [model.ids[i] for i in model.changed.tolist()]
    for shard, places in by_shard(names):
        own = [names[i] for i in places], [model.written[i] for i in places]
        commit.set_many_fields(keys.records(key, generation, shard), *own)
    members = {
        group_field(group): _SEPARATOR.join(names)
        for group, names in model.members.items()
        if names != model.members_before.get(group, [])
    }
    if members:
        commit.set_fields(keys.unit_members(key, generation), members)
    commit.add_numbers(keys.marks(key, generation), {ERASED: model.n_erased})
    if model.config.label_horizon_s is not None:
        note(commit, keys, model.config, model.newly_predicted())
        if model.has_raters:
            commit.set_fields(keys.marks(key, generation), {RATED: "1"})
    elif model.marks.indexed:
        commit.drop_fields(keys.marks(key, generation), [INDEXED])
    tallies = dict.fromkeys(TALLIES, 0) | counts | _tallies(model, names)
    commit.add_numbers(keys.tallies(key, generation), tallies)
    retained = {name: tallies[name] for name in ("records", "bytes")}
    commit.add_numbers(keys.retained, with_tenant(key, retained))


def _tallies(model: JoinedModel, names: list[str]) -> dict[str, int]:
    """Return by how much the model's counts change."""
    known = model.changed[model.is_known[model.changed]]
    stored = [each for i in known.tolist() if (each := model.stored[i]) is not None]
    before = tallies_of([model.ids[i] for i in known.tolist()], model.before, known, stored)
    after = tallies_of(names, model.after, model.changed, model.written)
    return {name: after[name] - before[name] for name in after}


def tallies_of(
    names: Sequence[str], records: Records, chosen: Ints, packed: Sequence[bytes]
) -> dict[str, int]:
    """Count some records by their state.

    Parameters
    ----------
    names, packed : id and stored bytes of each chosen record
    """
    n_bytes = sum(map(len, packed)) + sum(map(len, names)) + FIELD_OVERHEAD_BYTES * len(names)
    states = {name: int(each[chosen].sum()) for name, each in records.states().items()}
    return {"records": len(names), "bytes": n_bytes} | states


def complete_tallies(found: Mapping[bytes, bytes]) -> dict[str, int]:
    """Return counts as stored, each of `TALLIES`; empty if no record was ever retained."""
    tallies = {field.decode(): int(n) for field, n in found.items()}
    return dict.fromkeys(TALLIES, 0) | tallies if tallies else {}


async def read_tallies(
    client: Any, keys: Keys, configs: Sequence[ModelConfig]
) -> dict[str, dict[str, int]]:
    """Return counts by `tenant/model`; models without records are left out."""
    async with client.pipeline(transaction=False) as pipe:
        for config in configs:
            pipe.hgetall(keys.of(config).tallies(config.key, config.generation))
        found = await pipe.execute()
    tallies = {
        config.key: complete_tallies(each) for config, each in zip(configs, found, strict=True)
    }
    return {name: each for name, each in tallies.items() if each}
