"""A commit being written: operations on the keys of one partition, sent as one script (`scripts/commit.lua`), and its bounds.

Each commit names the fencing token of the previous commit. A worker whose token differs from the store's is stale and
writes nothing. This, not the lease, makes each batch count once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from secrets import token_hex
from typing import Any, Protocol, TypeVar

from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.key_names import SCHEMA, PartitionKeys

# Kinds of keys of a model, as the letters after the partition's tag: those that end with the start of a time slice, and those that
# housekeeping does not look at or that change together with a time slice.
_OF_TIME_SLICES, _AGELESS = frozenset("tsj"), frozenset("bvlrnu")

# Lua's unpack takes some 8000 values; well below it, and an even number.
_VALUES_AN_OPERATION = 2000

WRITTEN, REPEATED, OVERTAKEN = 1, 2, 0
FIRST_TOKEN = b"0"
FIRST_ID = "0-0"


@dataclass(frozen=True)
class Cursor:
    """Position of a partition: the last consumed entry and the token of the last commit.

    Attributes
    ----------
    attempts : workers that started since the last commit
    danger_id : the last entry that a worker which ended without progress can have reached; up to it, each is filled alone
    ends_alone : workers that ended while the next entry was filled alone
    """

    id: str = FIRST_ID
    token: bytes = FIRST_TOKEN
    attempts: int = 0
    danger_id: str = FIRST_ID
    ends_alone: int = 0

    @classmethod
    def from_hash(cls, found: Mapping[bytes, bytes]) -> Cursor:
        """Read the cursor hash."""
        position = found.get(b"id", FIRST_ID.encode())
        at, _, n = found.get(b"alo", b"").partition(b" ")
        return cls(
            id=position.decode(),
            ends_alone=int(n) if at == position else 0,
            token=found.get(b"tok", FIRST_TOKEN),
            attempts=int(found.get(b"att", 0)),
            danger_id=found.get(b"chi", FIRST_ID.encode()).decode(),
        )


def id_order(entry_id: str) -> tuple[int, int]:
    """Return an entry id as a pair of numbers, for comparisons."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def next_id(entry_id: str) -> str:
    """Return the smallest id after another."""
    milliseconds, sequence = id_order(entry_id)
    return f"{milliseconds}-{sequence + 1}"


class Commit:
    """The changes of one commit."""

    def __init__(self, keys: PartitionKeys):
        self.keys = keys
        self._names: dict[str, int] = {}
        self._operations: list[Any] = []
        self.n_bytes = 0
        for name in (keys.cursor, keys.stream, keys.dead_letters):
            self._key(name)

    def set_fields(self, key: str, values: Mapping[Any, Any]) -> None:
        """Write fields of a hash."""
        self._operate("hset", key, [part for pair in values.items() for part in pair])

    def set_many_fields(self, key: str, names: Sequence[str], values: Sequence[bytes]) -> None:
        """Write many short fields of a hash: as one argument, which client, protocol and script handle faster."""
        step = _VALUES_AN_OPERATION // 2
        for first in range(0, len(names), step):
            encoded = [name.encode() for name in names[first : first + step]]
            some = values[first : first + step]
            parts = [b""] * (4 * len(encoded))
            parts[::4], parts[1::4] = [_length_bytes(len(each)) for each in encoded], encoded
            parts[2::4], parts[3::4] = [_length_bytes(len(each)) for each in some], some
            self._append("fields", key, [2 * len(encoded), b"".join(parts)])

    def drop_fields(self, key: str, names: Sequence[Any]) -> None:
        """Remove fields of a hash."""
        self._operate("hdel", key, list(names))

    def add_member(self, key: str, member: str) -> None:
        """Add a member to a set."""
        self._operate("sadd", key, [member])

    def remove_member(self, key: str, member: str) -> None:
        """Remove a member from a set."""
        self._operate("srem", key, [member])

    def add_numbers(self, key: str, numbers: Mapping[str, int]) -> None:
        """Add to counters of a hash."""
        changed = {name: n for name, n in numbers.items() if n}
        if changed:
            self._operate("add", key, [part for pair in changed.items() for part in pair])

    def release(self, reserved: Mapping[str, int]) -> None:
        """Release a reservation of records and bytes."""
        self.add_numbers(self.keys.retained, {name: -n for name, n in reserved.items()})

    def unlink(self, key: str) -> None:
        """Remove a key."""
        self._append("unlink", key, [])

    def record(self, key: str, value: bytes, ttl_s: int) -> None:
        """Write the outcome of a batch id; with `ttl_s` 0 it does not expire until it is written again."""
        self._append("record", key, [value, ttl_s])

    def dead_letter(self, entry_id: str, why: str) -> None:
        """Copy an entry to the dead letters."""
        self._append("letter", self.keys.dead_letters, [entry_id, why])

    def park(self, entry_id: str, why: str, now_ms: int) -> None:
        """Copy an entry to the parked entries."""
        self._append("park", self.keys.parked, [entry_id, why, now_ms])

    def forget_entries(self, stream: str, ids: Sequence[str]) -> None:
        """Remove dead letters or parked entries by their ids in their stream."""
        self._operate("xdel", stream, list(ids))

    def send(
        self,
        store: Store,
        expected: bytes,
        token: bytes,
        cursor_id: str = "",
        n_batches: int = 0,
        n_bytes: int = 0,
    ) -> int:
        """Run the script; return WRITTEN, REPEATED or OVERTAKEN. After an error, the outcome is unknown."""
        keep_from = next_id(cursor_id) if cursor_id else ""
        head = [expected, token, cursor_id, keep_from, n_batches, n_bytes, SCHEMA]
        reply = store.run(
            self.keys.partition, "commit", list(self._names), [*head, *self._operations]
        )
        if self.keys.deliveries in self._names:
            store.deliveries_changed.set()
        return int(reply[0])

    @property
    def models(self) -> dict[tuple[str, str], float]:
        """Models and generations whose keys it changes, each with the start of the earliest time slice that it changes.

        The start is infinite if only records change, and minus infinity if something changes that is not of a time slice. The model
        follows the first colon after the partition's tag.
        """
        found: dict[tuple[str, str], float] = {}
        for name in self._names:
            kind, _, rest = name.removeprefix(f"{self.keys.tag}:").partition(":")
            model, *others = rest.split("|")
            if others:
                key = (model, others[0])
                found[key] = min(found.get(key, math.inf), _start_of(kind, others[-1]))
        return found

    def _operate(self, name: str, key: str, values: list[Any]) -> None:
        for first in range(0, len(values), _VALUES_AN_OPERATION):
            self._append(name, key, values[first : first + _VALUES_AN_OPERATION])

    def _append(self, name: str, key: str, values: list[Any]) -> None:
        self._operations += [name, self._key(key), len(values), *values]
        self.n_bytes += _length(values)

    def _key(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names) + 1)


@lru_cache(maxsize=4096)
def _length_bytes(length: int) -> bytes:
    return length.to_bytes(4, "little")


def _start_of(kind: str, last: str) -> float:
    if kind in _AGELESS:
        return math.inf
    return float(last) if kind in _OF_TIME_SLICES else -math.inf


def _length(values: list[Any]) -> int:
    """Return the bytes of texts among some values."""
    try:
        return sum(map(len, values))
    except TypeError:
        return sum(len(value) for value in values if isinstance(value, bytes | str))


# Entries in one commit. More save little per entry, and all of them are repeated when a commit is rejected.
MAX_COMMIT_ENTRIES = 128
# Target of one read of the stream: longer replies of large entries are slower than several short ones.
READ_BYTES = 2 << 20
# State written per commit, unless one batch changes more. The store serves no other request during a commit:
# 8 MiB take some tens of milliseconds.
COMMIT_BYTES = 8 << 20
# Retained records written per commit, unless one batch has more: about 10 ms of the store. 80,000 took 0.3 s, and no less in all.
COMMIT_RECORDS = 2_000


class Sized(Protocol):
    """Something written in one commit: an entry, or a group of them."""

    @property
    def n_bytes(self) -> int:
        """State that it changes."""

    @property
    def n_records(self) -> int:
        """Largest number of retained records that it writes."""


S = TypeVar("S", bound=Sized)


def is_full(group: Sized, n_entries: int) -> bool:
    """Return whether a group takes no more entries."""
    return (
        n_entries >= MAX_COMMIT_ENTRIES
        or group.n_bytes >= COMMIT_BYTES
        or group.n_records >= COMMIT_RECORDS
    )


def first_of(entries: Sequence[S], group: Sized) -> list[S]:
    """Return the first entries, until they fill the group with records; the others are read again."""
    left = COMMIT_RECORDS - group.n_records
    found = []
    for entry in entries:
        found.append(entry)
        left -= entry.n_records
        if left <= 0:
            break
    return found


def next_count(entries: Sequence[Sized]) -> int:
    """Return how many entries to read next, from those read last: by their bytes and records."""
    mean_bytes = sum(entry.n_bytes for entry in entries) / len(entries)
    mean_records = sum(entry.n_records for entry in entries) / len(entries)
    most = min(READ_BYTES / mean_bytes, COMMIT_RECORDS / max(mean_records, 1.0))
    return int(min(max(1.0, most), MAX_COMMIT_ENTRIES))


class StaleTokenError(RuntimeError):
    """Another worker has committed since; the prepared commit is void."""


class FencingToken:
    """Sender of a partition's commits: each names the token of the previous one.

    It has the position after the last commit (`cursor`), and collects the models that commits change.
    """

    def __init__(self, store: Store, keys: PartitionKeys):
        self._store = store
        self._keys = keys
        self.cursor = Cursor()
        self._changed: dict[tuple[str, str], float] | None = None

    def take_over(self) -> None:
        """Read the cursor and count the attempt to continue from it."""
        pairs = self._store.run(
            self._keys.partition,
            "take_over",
            [self._keys.cursor, self._keys.stream],
            [MAX_COMMIT_ENTRIES],
        )
        self._continue_from(Cursor.from_hash(dict(zip(pairs[::2], pairs[1::2], strict=True))))

    def leave(self) -> None:
        """Forget the workers that ended with the next entry: this one gives it back, and was not ended by it."""
        self._store.node(self._keys.partition).hdel(self._keys.cursor, "alo")

    def reload(self) -> None:
        """Read the cursor again after a commit that was rejected or whose outcome is unknown."""
        node = self._store.node(self._keys.partition)
        self._continue_from(Cursor.from_hash(node.hgetall(self._keys.cursor)))

    def take_changed(self) -> dict[tuple[str, str], float] | None:
        """Return what was changed since the last call, as `Commit.models`; None where another worker may have changed any."""
        changed, self._changed = self._changed, {}
        return changed

    def _continue_from(self, cursor: Cursor) -> None:
        if cursor.token != self.cursor.token:
            self._changed = None
        self.cursor = cursor

    @staticmethod
    def new_token() -> bytes:
        """Return a random token, so that no counter or entry id that recurs after a loss can equal it."""
        return token_hex(8).encode()

    def send(
        self,
        commit: Commit,
        token: bytes,
        cursor_id: str = "",
        n_batches: int = 0,
        n_bytes: int = 0,
    ) -> None:
        """Write a commit and continue from it; raise StaleTokenError if the token is stale. Any other error: the outcome is unknown."""
        if self._changed is not None:
            for name, start_s in commit.models.items():
                self._changed[name] = min(start_s, self._changed.get(name, math.inf))
        outcome = commit.send(self._store, self.cursor.token, token, cursor_id, n_batches, n_bytes)
        if outcome == OVERTAKEN:
            raise StaleTokenError
        consumed = cursor_id or self.cursor.id
        ends_alone = 0 if cursor_id else self.cursor.ends_alone
        self.cursor = replace(
            self.cursor, id=consumed, token=token, attempts=0, ends_alone=ends_alone
        )
