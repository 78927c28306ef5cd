"""A cache of what was used last, for several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cachetools import LRUCache

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The values used last, up to a total size. Without `size_of`, each has size 1."""

    def __init__(self, limit: int, size_of: Callable[[V], int] | None = None):
        self._lock = threading.Lock()
        self._cache: LRUCache[K, V] = LRUCache(limit, size_of)

    def get(self, key: K) -> V | None:
        """Return the value of a key, if it is cached."""
        with self._lock:
            return self._cache.get(key)

    def put(self, key: K, value: V) -> V:
        """Cache a value unless it alone exceeds the limit; return it."""
        with self._lock:
            if self._cache.getsizeof(value) <= self._cache.maxsize:
                self._cache[key] = value
        return value
