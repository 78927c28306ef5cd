"""One bound on the memory of the cached tails, panes and samples of a process, shared by its partitions."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from calibrant_server.workers.ingest.sample_cache import SampleKey
from calibrant_server.workers.memory import memory_limit_bytes
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.keys import PaneKey

# A partition is busy for this time after its last commit.
BUSY_S = 10.0


class TailKey(NamedTuple):
    """Identity of a cached tail: the pane of all rows of its time slice."""

    pane: PaneKey


CacheKey = PaneKey | TailKey | SampleKey


class Evictable(Protocol):
    """A cache of panes and tails. It is known by identity."""

    def evict(self, key: CacheKey) -> None:
        """Drop a pane or tail; called with the lock of the budget held."""


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
        self._sizes: OrderedDict[tuple[Evictable, CacheKey], int] = OrderedDict()
        self._total = 0
        self._running: set[Evictable] = set()
        self._latest: dict[Evictable, tuple[CacheKey, float]] = {}

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

    def end(self, cache: Evictable, used: Mapping[CacheKey, int]) -> None:
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

    def drop(self, cache: Evictable, keys: Iterable[CacheKey]) -> None:
        """Note that the cache dropped these, all of its panes."""
        with self._lock:
            for key in keys:
                self._remove(cache, key)
            self._running.discard(cache)
            self._latest.pop(cache, None)

    def _remove(self, cache: Evictable, key: CacheKey) -> None:
        self._total -= self._sizes.pop((cache, key), 0)

    def _victims(self) -> list[tuple[Evictable, CacheKey]]:
        """Return what to evict, least recently used first; at most down to the limit."""
        excess = self._total - self.limit_bytes
        busy_since = self._clock() - BUSY_S
        victims: list[tuple[Evictable, CacheKey]] = []
        for (cache, key), n_bytes in self._sizes.items():
            if excess <= 0:
                break
            latest, used_at = self._latest[cache]
            if cache in self._running or (key == latest and used_at > busy_since):
                continue
            victims.append((cache, key))
            excess -= n_bytes
        return victims
