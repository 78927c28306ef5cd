"""Parked entries: list them, and replay each exactly once.

An entry that failed alone ten times without a verdict about its content is parked. The commit that moves the cursor past
it removes it from the partition's stream and stores it with its payload. Its batch id stays open. `python -m workers.ingest.parked`
prints one line of JSON per parked entry; `python -m workers.ingest.parked replay ID ...` (or `--all`) moves entries back to the
end of their streams. A replayed entry counts like a batch that arrives late: under its own id, once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from redis.exceptions import RedisError

from calibrant_server.workers.ingest.entries import coming, fields_bytes
from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store import batch_records
from calibrant_server.workers.store.batch_records import BatchRecord
from calibrant_server.workers.store.commit import next_id
from calibrant_server.workers.store.connection import Store, StoreMismatch
from calibrant_server.workers.store.embedded import EmbeddedServerError, store_of
from calibrant_server.workers.store.keys import PartitionKeys

_A_READ = 8
_OF_THE_PARKING = 3


@dataclass(frozen=True)
class ParkedEntry:
    """One parked entry.

    Attributes
    ----------
    id : `partition:id`, the argument of `replay`
    why : the last error
    parked_ms : milliseconds since the epoch
    n_bytes : of the entry as received
    """

    id: str
    model: str
    generation: str
    batch_id: str
    kind: str
    why: str
    parked_ms: int
    n_bytes: int


def parked_entries(store: Store) -> Iterator[ParkedEntry]:
    """Yield every parked entry, by partition, oldest first."""
    for number in range(store.settings.partitions):
        for entry_id, fields in parked_fields(store.node(number), store.keys.partition(number)):
            yield _parked(number, entry_id, fields)


def parked_fields(node: Any, keys: PartitionKeys) -> Iterator[tuple[str, dict[bytes, bytes]]]:
    """Yield ids and fields of the parked entries of a partition, with few payloads in memory at a time."""
    after = "-"
    while found := node.xrange(keys.parked, after, "+", count=_A_READ):
        for entry_id, fields in found:
            yield entry_id.decode(), fields
        after = next_id(found[-1][0].decode())


def replay(store: Store, partition: int, entry_id: str) -> bool:
    """Move a parked entry back to its stream; return False if no entry has this id (any more)."""
    keys, node = store.keys.partition(partition), store.node(partition)
    found = node.xrange(keys.parked, entry_id, entry_id)
    if not found:
        return False
    fields = _as_it_came(found[0][1])
    reserved = coming(fields)
    key, before, after = keys.parked, b"", b""
    if fields.get(b"i"):
        key = keys.record(*(fields[name].decode() for name in (b"m", b"g", b"i")))
        before = node.get(key) or b""
        record = BatchRecord.from_json(before) if before else None
        if record is not None and not record.is_final:
            after = record.ended(batch_records.ACCEPTED).to_json()
        else:
            # A final record stays: the id counted after another arrival, and the replayed entry is dropped.
            before = b""
    names = [keys.parked, keys.stream, keys.bytes_in, keys.retained, key]
    values = [entry_id, reserved["coming"], reserved["coming_bytes"], before, after]
    return bool(store.run(partition, "replay_parked", names, values)[0])


def _parked(partition: int, entry_id: str, fields: Mapping[bytes, bytes]) -> ParkedEntry:
    entry = _as_it_came(fields)
    model, generation, batch_id, kind = (
        entry.get(name, b"").decode(errors="replace") for name in (b"m", b"g", b"i", b"k")
    )
    why = fields[b"why"].decode(errors="replace")
    n_bytes = fields_bytes(entry)
    return ParkedEntry(
        f"{partition}:{entry_id}",
        model,
        generation,
        batch_id,
        kind,
        why,
        int(fields[b"at"]),
        n_bytes,
    )


def _as_it_came(fields: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return dict(list(fields.items())[_OF_THE_PARKING:])


def main(arguments: Sequence[str] | None = None) -> int:
    """List or replay entries; exit with 1 if a named entry is not parked."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.ingest.parked", description="List or replay parked entries."
    )
    parser.add_argument("what", nargs="?", choices=("list", "replay"), default="list")
    parser.add_argument("ids", nargs="*", metavar="ID", help="as listed")
    parser.add_argument("--all", action="store_true", help="replay every parked entry")
    given = parser.parse_args(arguments)
    if given.what == "replay" and bool(given.ids) == given.all:
        parser.error("replay takes ids, or --all")
    try:
        with store_of(EngineSettings()) as settings, closing(Store(settings)) as store:
            store.fix_properties()
            return _replayed(store, given.ids) if given.what == "replay" else _listed(store)
    except (RedisError, SettingsError, StoreMismatch, EmbeddedServerError) as error:
        print(json.dumps({"error": str(error)}))
        return 1


def _listed(store: Store) -> int:
    for each in parked_entries(store):
        print(json.dumps(asdict(each)))
    return 0


def _replayed(store: Store, ids: Sequence[str]) -> int:
    n_missing = 0
    for name in ids or [each.id for each in parked_entries(store)]:
        partition, _, entry_id = name.partition(":")
        known = partition.isdigit() and int(partition) < store.settings.partitions
        done = known and replay(store, int(partition), entry_id)
        n_missing += not done
        print(json.dumps({"id": name, "replayed": done}))
    return min(n_missing, 1)


if __name__ == "__main__":
    sys.exit(main())
