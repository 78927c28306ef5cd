"""Tails, panes and samples of a process as the last commits left them: one cache in bytes, shared by its partitions.

A run of a partition takes what it needs out of the cache, changes it, and puts it back once its commit is written. So the cache has
what the store has, or nothing, and no other partition drops what a run uses.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from calibrant_server.workers.memory import memory_limit_bytes
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.key_names import PaneKey


class TailKey(NamedTuple):
    """Identity of a cached tail: the pane of all rows of its time slice."""

    pane: PaneKey


class StateCache:
    """Values of partitions, least recently used first. Each has its `memory_bytes`.

    Parameters
    ----------
    limit_bytes : of all values together, as measured when each was put back
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[int, Hashable], tuple[Any, int]] = OrderedDict()

    @classmethod
    def of(cls, settings: EngineSettings) -> StateCache:
        """Return a cache of the configured size. Default: a quarter of the memory limit."""
        given = settings.held_panes_bytes
        return cls(memory_limit_bytes() // 4 if given is None else given)

    def get(self, partition: int, key: Hashable) -> Any:
        """Return a value, which stays; None if it is not there."""
        with self._lock:
            found = self._values.get((partition, key))
        return None if found is None else found[0]

    def take(self, partition: int, key: Hashable) -> Any:
        """Take a value out; return None if it is not there."""
        with self._lock:
            return self._removed((partition, key))

    def put(self, partition: int, values: Mapping[Any, Any]) -> None:
        """Put values back, the most recently used last; drop down to the limit what was used longest ago."""
        sizes = {key: value.memory_bytes for key, value in values.items()}
        with self._lock:
            for key, value in values.items():
                self._removed((partition, key))
                self._values[partition, key] = value, sizes[key]
                self.total_bytes += sizes[key]
            while self.total_bytes > self.limit_bytes:
                self._removed(next(iter(self._values)))

    def forget(self, partition: int) -> None:
        """Drop all values of a partition."""
        with self._lock:
            for each in [each for each in self._values if each[0] == partition]:
                self._removed(each)

    def keys(self, partition: int) -> list[Hashable]:
        """Return the keys of the values of a partition, the most recently used last."""
        with self._lock:
            return [key for owner, key in self._values if owner == partition]

    def _removed(self, each: tuple[int, Hashable]) -> Any:
        value, n_bytes = self._values.pop(each, (None, 0))
        self.total_bytes -= n_bytes
        return value
