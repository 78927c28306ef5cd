"""Things used last, within a bound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The things used last, up to a total weight. Threads may share it."""

    def __init__(self, limit: int):
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: K, value: V, weight: int = 1) -> V:
        with self._lock:
            self._weight -= self._kept.pop(key, (None, 0))[1]
            self._kept[key] = (value, weight)
            self._weight += weight
            while self._weight > self._limit and len(self._kept) > 1:
                self._weight -= self._kept.popitem(last=False)[1][1]
        return value
