"""Cached panes of a partition, as the last commit left them, and one bound on their memory per process.

Panes are changed in place while a commit is prepared. This is safe because every outcome but a written commit drops all
of them: the cache holds what the store holds, or nothing. The partitions of a process share one `PaneBudget`.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from sys import getsizeof
from typing import Protocol

from calibrant.core.packing import PackingError
from calibrant.core.pane import Pane
from calibrant_server.workers.ingest.reduce import Claim, Numerics
from calibrant_server.workers.memory import memory_limit_bytes
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import LAST_CHANGE, SOURCE_FIELD, PaneKey, PartitionKeys
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.watermarks import Watermarks
from calibrant_server.workers.store.windows import Window, rfc3339

# A partition is busy for this time after its last commit.
BUSY_S = 10.0
REPLACED, DUPLICATE, STALE, CONFLICT = "replaced", "duplicate", "stale", "conflict"
_TOTALS = struct.Struct("<q16s")


class UnreadablePane(RuntimeError):
    """The state of a pane is damaged: entries for it are parked, and the state is not changed."""

    def __init__(self, key: PaneKey, error: Exception):
        at = rfc3339(Window(key.start_s, key.start_s).from_at)
        name = f" of slice {key.slice!r}" if key.slice else ""
        super().__init__(f"the pane {at}{name} cannot be read: {error}")
        self.key = key


@dataclass
class CachedPane:
    """A pane, its parts as stored, and the running totals of its sources."""

    pane: Pane
    parts: dict[str, bytes] = field(default_factory=dict)
    sources: dict[str, bytes] = field(default_factory=dict)
    changed_sources: set[str] = field(default_factory=set)

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory: the pane, its parts as packed, and the running totals."""
        packed = (*self.parts.items(), *self.sources.items())
        return int(self.pane.memory_bytes) + sum(
            getsizeof(name) + getsizeof(value) for name, value in packed
        )


def total_field(name: str, start_s: int | None = None) -> str:
    """Return the field of a running total; in a daily pane it includes the start of the original pane."""
    return SOURCE_FIELD + (name if start_s is None else f"{start_s}@{name}")


class Evictable(Protocol):
    """A cache of panes. It is known by identity."""

    def evict(self, key: PaneKey) -> None:
        """Drop a pane; called with the lock of the budget held."""


class PaneBudget:
    """Bytes of cached panes, least recently used first, over all caches of a process.

    Every partition loop caches its own panes in its own thread. A cache changes only while its loop is in a run, and then
    only by that loop. Between runs any loop that ends a run may evict from it, under the lock: no pane is evicted during a
    run that uses it.

    After every commit the caches together are within the limit, or hold only what must not be evicted: panes of a cache
    in a run, and of each busy partition the pane used last. What a run loads and fills comes on top until its end.

    Parameters
    ----------
    limit_bytes : int
    clock : monotonic seconds
    """

    def __init__(self, limit_bytes: int, clock: Callable[[], float] = time.monotonic):
        self.limit_bytes = limit_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._sizes: OrderedDict[tuple[Evictable, PaneKey], int] = OrderedDict()
        self._total = 0
        self._running: set[Evictable] = set()
        self._latest: dict[Evictable, tuple[PaneKey, float]] = {}

    @classmethod
    def of(cls, settings: EngineSettings) -> PaneBudget:
        """Return the configured budget. Default: a quarter of the memory limit."""
        given = settings.held_panes_bytes
        return cls(memory_limit_bytes() // 4 if given is None else given)

    @property
    def total_bytes(self) -> int:
        """Bytes of all cached panes, as measured at the end of the last run that used each."""
        with self._lock:
            return self._total

    def begin(self, cache: Evictable) -> None:
        """Note that a run begins or continues: until `end` or `drop` only its own loop changes the cache."""
        with self._lock:
            self._running.add(cache)

    def end(self, cache: Evictable, used: Mapping[PaneKey, int]) -> None:
        """Note that a run ended with these panes (bytes by key, most recent last); evict down to the limit."""
        with self._lock:
            for key, n_bytes in used.items():
                self._remove(cache, key)
                self._sizes[cache, key] = n_bytes
                self._total += n_bytes
                self._latest[cache] = key, self._clock()
            self._running.discard(cache)
            for owner, key in self._victims():
                self._remove(owner, key)
                owner.evict(key)

    def drop(self, cache: Evictable, keys: Iterable[PaneKey]) -> None:
        """Note that the cache dropped these, all of its panes."""
        with self._lock:
            for key in keys:
                self._remove(cache, key)
            self._running.discard(cache)
            self._latest.pop(cache, None)

    def _remove(self, cache: Evictable, key: PaneKey) -> None:
        self._total -= self._sizes.pop((cache, key), 0)

    def _victims(self) -> list[tuple[Evictable, PaneKey]]:
        """Return what to evict, least recently used first; at most down to the limit."""
        excess = self._total - self.limit_bytes
        busy_since = self._clock() - BUSY_S
        victims: list[tuple[Evictable, PaneKey]] = []
        for (cache, key), n_bytes in self._sizes.items():
            if excess <= 0:
                break
            latest, used_at = self._latest[cache]
            if cache in self._running or (key == latest and used_at > busy_since):
                continue
            victims.append((cache, key))
            excess -= n_bytes
        return victims


class PaneCache:
    """Cached panes of one partition; their memory is bounded by a budget that partitions share."""

    def __init__(self, store: Store, keys: PartitionKeys, ground: Numerics, budget: PaneBudget):
        self._store = store
        self._keys = keys
        self._ground = ground
        self._budget = budget
        self._held: dict[PaneKey, CachedPane] = {}
        self._used: dict[PaneKey, int] = {}
        self._marks: dict[tuple[str, str], dict[bytes, bytes]] = {}

    def forget(self) -> None:
        """Drop everything: the state of the store is unknown."""
        self._budget.begin(self)
        dropped = list(self._held)
        self._held.clear()
        self._used.clear()
        self._budget.drop(self, dropped)
        self._marks.clear()

    def fetch(
        self, wanted: Iterable[PaneKey], configs: Mapping[tuple[str, str], ModelConfig]
    ) -> None:
        """Load panes that are not cached, in one round trip; raise UnreadablePane.

        Until `trim` or `forget` no other partition evicts from this cache.
        """
        self._budget.begin(self)
        wanted = list(wanted)
        node = self._store.node(self._keys.partition)
        for model in {(key.model, key.generation) for key in wanted} - self._marks.keys():
            self._marks[model] = node.hgetall(self._keys.marks(*model))
        places = dict.fromkeys(map(self.place, wanted))
        missing = [key for key in places if key not in self._held]
        if not missing:
            return
        with node.pipeline(transaction=False) as pipe:
            for key in missing:
                pipe.hgetall(self._keys.pane(key))
            found = pipe.execute()
        for key, fields in zip(missing, found, strict=True):
            self._held[key] = self._read(key, fields, configs[key.model, key.generation])

    def _read(self, key: PaneKey, fields: dict[bytes, bytes], config: ModelConfig) -> CachedPane:
        named = {name.decode(): value for name, value in fields.items()}
        sources = {name: value for name, value in named.items() if name.startswith(SOURCE_FIELD)}
        parts = {name: value for name, value in named.items() if name not in sources}
        spec = self._ground.spec(config)
        try:
            pane = self._ground.pane.from_parts(spec, parts) if parts else self._ground.pane(spec)
        except PackingError as error:
            raise UnreadablePane(key, error) from error
        return CachedPane(pane, parts, sources)

    def place(self, key: PaneKey) -> PaneKey:
        """Return the pane that stores what is filled into `key`: itself, or the day that it was merged into."""
        return replace(key, start_s=self._marks_of(key).start(key.start_s))

    def _marks_of(self, key: PaneKey) -> Watermarks:
        return Watermarks.of(key.slice, self._marks[key.model, key.generation])

    def merge(self, key: PaneKey, delta: Pane) -> None:
        """Add a delta to a fetched pane."""
        self._held[self.place(key)].pane.merge(delta)

    def exchange(self, key: PaneKey, lost: Pane, gained: Pane) -> None:
        """Add rows to a fetched pane, then subtract rows: in this order no cell passes through a count of zero."""
        pane = self._held[self.place(key)].pane
        pane.merge(gained)
        pane.subtract(lost)

    def claim(self, claim: Claim) -> str:
        """Replace the earlier running total of a source by a newer one; return the outcome.

        The new totals are added before the old ones are subtracted, so that no cell passes through a count of zero,
        at which its sums would be dropped.
        """
        held, update = self._held[self.place(claim.pane)], claim.update
        is_daily = claim.pane.start_s < self._marks_of(claim.pane).daily_to
        name = total_field(claim.name, claim.pane.start_s if is_daily else None)
        digest = blake2b(update.packed, digest_size=16).digest()
        sequence = int(update.sequence or 0)
        earlier = held.sources.get(name)
        if earlier is not None:
            last_sequence, last_digest = _TOTALS.unpack_from(earlier)
            if sequence < last_sequence:
                return STALE
            if sequence == last_sequence:
                return DUPLICATE if digest == last_digest else CONFLICT
        held.pane.fill_histogram(self._ground.histogram.unpack(update.packed))
        if earlier is not None:
            replaced = self._ground.histogram.unpack(earlier[_TOTALS.size :])
            held.pane.fill_histogram(replaced.negated())
        held.sources[name] = _TOTALS.pack(sequence, digest) + update.packed
        held.changed_sources.add(name)
        return REPLACED

    def write(self, touched: Iterable[PaneKey], commit: Commit, version: bytes) -> None:
        """Write the changes of touched panes into a commit."""
        for key in dict.fromkeys(map(self.place, touched)):
            self._write(key, commit, version)
            self._held[key].pane.tighten()
            self._used[key] = self._held[key].memory_bytes

    def _write(self, key: PaneKey, commit: Commit, version: bytes) -> None:
        held = self._held[key]
        parts = held.pane.parts()
        changed: dict[str, bytes] = {
            name: value for name, value in parts.items() if held.parts.get(name) != value
        }
        changed |= {name: held.sources[name] for name in held.changed_sources}
        gone = [name for name in held.parts if name not in parts]
        if not (changed or held.parts or held.sources):
            return
        if not held.parts and not held.sources.keys() - held.changed_sources:
            commit.add_member(self._keys.slices(key.model, key.generation), key.slice)
        if changed:
            commit.set_fields(self._keys.pane(key), changed)
        if gone:
            commit.drop_fields(self._keys.pane(key), gone)
        held.parts = dict(parts)
        held.changed_sources = set()
        versions = self._keys.versions(key.model, key.generation, key.slice)
        commit.set_fields(versions, {str(key.start_s): version, LAST_CHANGE: version})

    def trim(self) -> None:
        """Evict the least recently used panes of any partition, down to the limit. Call it only right after a written commit."""
        used, self._used = self._used, {}
        self._budget.end(self, used)

    def evict(self, key: PaneKey) -> None:
        """Drop one pane, as the budget asks."""
        self._held.pop(key, None)
