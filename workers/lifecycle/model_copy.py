"""Copy of a model's keys from one partition to another. Nothing changes them meanwhile, and nobody reads the copy yet.

Values are read and written, not dumped and restored: this works between servers of different versions, and no command holds
a server longer than a part of `PART_BYTES` takes. Every part is written by a script that compares the attempt
(`copy_part.lua`), so that a mover that was overtaken changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from redis.exceptions import NoScriptError

from calibrant_server.workers.lifecycle.move_keys import COPIED, is_of_generation, kind_of
from calibrant_server.workers.store.batch_records import RECORD_OVERHEAD_BYTES, expiry_bucket_s
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import PartitionKeys

PART_BYTES = 1 << 20
# Lua's unpack takes some 8000 values.
_PART_VALUES = 2000
_A_SCAN = 1000
_RECORDS, _HALVES = "b", "ev"
_SCANS = {b"hash": ("hscan_iter", "HSET"), b"set": ("sscan_iter", "SADD"), b"zset": ("zscan_iter", "ZADD")}  # fmt: skip

Part = tuple[str, Sequence[Any]]


class OvertakenMove(RuntimeError):
    """Another mover of the same model has begun."""

    def __init__(self, model: str):
        super().__init__(f"another command moves {model}")


class ModelCopy:
    """Copier of one model's generation.

    Attributes
    ----------
    n_keys, n_bytes : what was written
    id_bytes, event_bytes : bytes of batch records by expiry bucket, and of halves of inferences by minute
    """

    def __init__(
        self,
        store: Store,
        source: PartitionKeys,
        target: PartitionKeys,
        model: str,
        generation: str,
        state: bytes,
    ):
        self._store, self._source, self._target = store, source, target
        self._model, self._state = model, state
        self._of = f"{model}|{generation}"
        self._bucket_s = expiry_bucket_s(store.settings.idempotency_ttl_s)
        self.n_keys = self.n_bytes = 0
        self.id_bytes: Counter[str] = Counter()
        self.event_bytes: Counter[str] = Counter()

    def run(self) -> None:
        """Copy all keys; remove before what an earlier attempt has left.

        Raises
        ------
        OvertakenMove
        """
        self.clear()
        seen: set[str] = set()
        # In a cluster, the slot may go to another server during a pass, which then misses keys.
        while self._copy_new(seen):
            pass

    def _copy_new(self, seen: set[str]) -> bool:
        """Copy what is not among `seen`; return whether there was any."""
        n_seen = len(seen)
        for names in self._pages(self._source):
            new = [name for name in names if name not in seen]
            seen.update(new)
            self._copy([name for name in new if kind_of(self._source.tag, name) in COPIED])
        return len(seen) > n_seen

    def clear(self) -> None:
        """Remove all keys of the model from the new partition."""
        for names in self._pages(self._target):
            keys = [self._target.moves, *names]
            values = [self._model, self._state]
            if not self._store.run(self._target.partition, "remove_copy", keys, values):
                raise OvertakenMove(self._model)

    def _pages(self, keys: PartitionKeys) -> Iterator[list[str]]:
        """Yield the names of the model's keys in a partition, in parts."""
        node, page = self._store.node(keys.partition), list[str]()
        for name in node.scan_iter(match=f"{keys.tag}:*:{self._of}*", count=_A_SCAN):
            if is_of_generation(keys.tag, name.decode(), self._of):
                page.append(name.decode())
            if len(page) == _A_SCAN:
                yield page
                page = []
        if page:
            yield page

    def _copy(self, names: list[str]) -> None:
        if not names:
            return
        node = self._store.node(self._source.partition)
        with node.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.type(name)
                pipe.pttl(name)
            found = pipe.execute()
        texts = [name for name, kind in zip(names, found[::2], strict=True) if kind == b"string"]
        ttls = dict(zip(names, found[1::2], strict=True))
        self._copy_texts(texts, ttls)
        for name, kind in zip(names, found[::2], strict=True):
            if kind in _SCANS:
                self._copy_collection(name, kind, ttls[name])

    def _copy_texts(self, names: list[str], ttls: dict[str, int]) -> None:
        for some in _in_runs(names, 100):
            values = self._store.node(self._source.partition).mget(some)
            writes = []
            for name, value in zip(some, values, strict=True):
                if value is not None:  # expired by now
                    self._count(name, len(value), ttls[name])
                    writes.append((self._there(name), 1, ttls[name], ("SET", (value,))))
            self._write(writes)

    def _copy_collection(self, name: str, kind: bytes, ttl_ms: int) -> None:
        self._count(name, 0, ttl_ms)
        remove = 1
        for command, values in self._parts(name, kind):
            self.n_bytes += sum(map(len, values))
            self._write([(self._there(name), remove, ttl_ms, (command, values))])
            remove = 0

    def _parts(self, name: str, kind: bytes) -> Iterator[Part]:
        scan, command = _SCANS[kind]
        values: list[Any] = []
        size = 0
        for each in getattr(self._store.node(self._source.partition), scan)(name, count=500):
            part = _arguments(kind, each)
            values += part
            size += sum(map(len, part))
            if size >= PART_BYTES or len(values) >= _PART_VALUES:
                yield command, values
                values, size = [], 0
        if values:
            yield command, values

    def _there(self, name: str) -> str:
        """Return the name of a key in the new partition."""
        return self._target.tag + name.removeprefix(self._source.tag)

    def _count(self, name: str, n_bytes: int, ttl_ms: int) -> None:
        self.n_keys += 1
        self.n_bytes += n_bytes
        kind, now_s = kind_of(self._source.tag, name), time.time()
        ends_s = now_s + max(ttl_ms, 0) / 1000
        if kind == _RECORDS:
            weight = len(name) + n_bytes + RECORD_OVERHEAD_BYTES
            self.id_bytes[str(int(ends_s // self._bucket_s) + 1)] += weight
        elif kind == _HALVES:
            self.event_bytes[str(int(ends_s // 60) + 1)] += n_bytes + 2 * len(name) + 100

    def _write(self, writes: Sequence[tuple[str, int, int, Part]]) -> None:
        """Write parts; a key, whether to remove it first, its time to live, a command and its arguments."""
        if not writes:
            return
        partition, moves = self._target.partition, self._target.moves
        calls = [
            ([moves, key], [self._model, self._state, remove, max(ttl_ms, 0), command, *values])
            for key, remove, ttl_ms, (command, values) in writes
        ]
        with self._store.node(partition).pipeline(transaction=False) as pipe:
            for keys, arguments in calls:
                self._store.queue(pipe, "copy_part", keys, arguments)
            replies = pipe.execute(raise_on_error=False)
        for (keys, arguments), reply in zip(calls, replies, strict=True):
            if isinstance(reply, NoScriptError):
                reply = self._store.run(partition, "copy_part", keys, arguments)
            if isinstance(reply, Exception):
                raise reply
            if not reply:
                raise OvertakenMove(self._model)


def _arguments(kind: bytes, each: Any) -> list[bytes]:
    """Return what a scan found as arguments of the command that writes it."""
    if kind == b"set":
        return [each]
    if kind == b"zset":
        member, score = each
        return [repr(score).encode(), member]
    return [each[0], each[1]]


def _in_runs(names: list[str], length: int) -> Iterator[list[str]]:
    for first in range(0, len(names), length):
        yield names[first : first + length]
