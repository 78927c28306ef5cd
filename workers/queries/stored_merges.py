"""Merged panes in the store: a cache that survives a restart, which other workers read too.

Each accumulator of a merge is stored under the state of its panes: the digest of their starts and versions. A reader compares this with
the versions of the panes, so a merge of former versions is never used, and no write needs to be ordered with commits. Above `stored_merges_bytes`
in the whole store, a partition with more than an equal part of them drops its oldest. Housekeeping drops those whose panes have changed or are gone.

The stored sample is left out: a prediction that is deleted leaves no copy of its row.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from calibrant.core.content_digest import PART
from calibrant.core.packing import PackingError
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.queries.window_state import LruCache, Wanted, WindowPart
from calibrant_server.workers.store.connection import Store, run_script
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.merge_index import SPAN, STATE_BYTES, drop_oldest_merges
from calibrant_server.workers.store.model_config import ModelConfig

log = logging.getLogger(__name__)

UNLIKE_SUMS = frozenset({"sample"})
# A merge of fewer panes of a slice takes as long to write as they take to read. Those of all rows serve several queries of a report.
MIN_PANES_OF_SLICE = 24
# The same of complete panes, which an archived report reads: most of their accumulators are read only once.
MIN_PANES_COMPLETE = 48
# A merge whose panes change all the time is written this often.
_PAUSE_S = 60.0


class StoredMerges:
    """Reader and writer of merged panes in the store; several threads may share one object."""

    def __init__(self, store: Store, numerics: Numerics):
        self._store = store
        self._numerics = numerics
        self._most_bytes = store.settings.stored_merges_bytes
        self._part_bytes = self._most_bytes // store.settings.partitions
        self._written: LruCache[str, float] = LruCache(4096)

    def supports(self, wanted: Wanted) -> bool:
        """Whether these accumulators are stored."""
        if wanted is None:
            return self._most_bytes > 0 and self._numerics.pane is Pane
        return self._most_bytes > 0 and not UNLIKE_SUMS & set(wanted)

    def read(
        self,
        config: ModelConfig,
        slice_: str,
        from_s: int,
        wanted: Wanted,
        parts: list[WindowPart],
    ) -> dict[WindowPart, Any]:
        """Return the merges that the store has of these parts."""
        names = self._names(config, wanted)
        keys, node = self._place(config)
        with node.pipeline(transaction=False) as pipe:
            for part in parts:
                pipe.hmget(keys.merge(_member(config, slice_, part, from_s)), names)
            replies = pipe.execute()
        found = {}
        for part, values in zip(parts, replies, strict=True):
            pane = self._pane(config, wanted, part.state, dict(zip(names, values, strict=True)))
            if pane is not None:
                found[part] = pane
        return found

    def write(
        self,
        config: ModelConfig,
        slice_: str,
        from_s: int,
        wanted: Wanted,
        part: WindowPart,
        pane: Any,
    ) -> bool:
        """Store a merge of panes that have ended; return whether it is stored, and no other had to be dropped for it."""
        if (
            len(part.panes) < _min_panes(slice_, wanted)
            or part.panes[-1][0] + config.pane_s > time.time()
        ):
            return False
        keys, node = self._place(config)
        member = _member(config, slice_, part, from_s)
        now = time.monotonic()
        last = self._written.get(f"{member}|{wanted}")
        if last is not None and now < last + _PAUSE_S:
            return False
        self._written.put(f"{member}|{wanted}", now)
        packed, state = pane.parts(), part.state
        span = b"%d|%d" % (part.panes[0][0], part.panes[-1][0])
        values = [SPAN, state + span]
        values += [
            word
            for name in self._names(config, wanted)
            for word in (name, state + packed.get(name, b""))
        ]
        named = [keys.merge(member), keys.merge_times, keys.merge_bytes]
        try:
            total_bytes = run_script(
                node, "keep_merge", named, [member, time.time(), state, *values]
            )
            has_room = True
            while (excess := self._excess_bytes(total_bytes)) > 0:
                has_room = False
                total_bytes = drop_oldest_merges(node, keys, excess)
        except RedisError as error:
            # A full store has no room for a cache.
            log.info("merge_not_stored error=%s", error)
            return False
        return has_room

    def _excess_bytes(self, partition_bytes: int) -> int:
        """Return how many bytes a partition must drop: of what the store has above its bound, at most what is above the equal part."""
        above_part = partition_bytes - self._part_bytes
        if above_part <= 0:
            return 0
        with self._store.client.pipeline(transaction=False) as pipe:
            for number in range(self._store.settings.partitions):
                pipe.hget(self._store.keys.partition(number).merge_bytes, "")
            total_bytes = sum(int(each or 0) for each in pipe.execute())
        return min(above_part, total_bytes - self._most_bytes)

    def _names(self, config: ModelConfig, wanted: Wanted) -> Sequence[str]:
        """Return the fields of a merge: accumulators, and the digest of a complete pane."""
        if wanted is not None:
            return wanted
        names = Pane(self._numerics.spec(config)).names
        return [*(name for name in names if name not in UNLIKE_SUMS), PART]

    def _pane(
        self,
        config: ModelConfig,
        wanted: Wanted,
        state: bytes,
        values: dict[str, bytes | None],
    ) -> Any:
        if any(value is None or value[:STATE_BYTES] != state for value in values.values()):
            return None
        packed = {
            name: value[STATE_BYTES:]
            for name, value in values.items()
            if value is not None and len(value) > STATE_BYTES
        }
        try:
            return self._numerics.pane.from_parts(self._numerics.spec(config), packed, only=wanted)
        except PackingError as error:
            log.warning("merge_unreadable model=%s error=%s", config.key, error)
            return None

    def _place(self, config: ModelConfig) -> tuple[PartitionKeys, Any]:
        partition = self._store.keys.partition_of(config.key)
        return self._store.keys.partition(partition), self._store.node(partition)


def _min_panes(slice_: str, wanted: Wanted) -> int:
    """Return the number of panes below which a merge is not stored."""
    if wanted is None:
        return MIN_PANES_COMPLETE
    return 0 if slice_ == ALL_ROWS else MIN_PANES_OF_SLICE


def _member(config: ModelConfig, slice_: str, part: WindowPart, from_s: int) -> str:
    return f"{config.key}|{config.generation}|{slice_}|{part.name(from_s)}"
