"""Wait for the entries of many streams at once, in one thread.

Each stream that is added gets a blocking XREAD of its own; an event loop waits for all of them. On one server, requests that end
without an entry continue as one that names all their streams: all end at the same moments. In a cluster, a command names the keys
of one slot, so each stream keeps its own request.

A reply says which streams have entries; it has the first entry of each, which is dropped: the partition's loop reads it with
those behind it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from calibrant_server.workers.store.cluster import ClusterClient
from calibrant_server.workers.store.connection import Store, connect_async

# Requests end at multiples of this.
WAIT_S = 2.0
# A request that would end sooner than this waits until the next multiple.
_MIN_WAIT_S = 0.2
# Requests that end within this time continue as one.
_TOGETHER_S = 0.005


class StreamWatch:
    """Streams of partitions for whose entries nothing else waits.

    `add`, `remove` and `wake` may be called from any thread, `poll` and `close` from one.
    """

    def __init__(self, store: Store):
        self._settings, self._keys = store.settings, store.keys
        self._is_cluster = isinstance(store.client, ClusterClient)
        self._lock = threading.Lock()
        self._after: dict[int, str] = {}
        self._added: list[int] = []
        self._ready: list[tuple[int, str]] = []
        self._failed: list[tuple[int, str]] = []
        self._requests: set[asyncio.Task[None]] = set()
        self._bell = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None

    def add(self, partition: int, after_id: str) -> None:
        """Wait for the entries of a partition after one."""
        with self._lock:
            if self._after.get(partition) == after_id:
                return  # its request goes on
            self._after[partition] = after_id
            self._added.append(partition)
        self._soon(self._request_added)

    def remove(self, partition: int) -> None:
        """Stop to wait for a partition."""
        with self._lock:
            self._after.pop(partition, None)

    def wake(self) -> None:
        """End a `poll` at once."""
        self._soon(self._bell.set)

    def _soon(self, call: Callable[[], None]) -> None:
        """Call a function in the thread that polls; what comes before the first poll is found by it."""
        if self._loop is not None:
            with suppress(RuntimeError):  # closed
                self._loop.call_soon_threadsafe(call)

    def poll(self, timeout_s: float) -> tuple[list[int], list[int]]:
        """Return partitions that have entries, and those whose wait failed: reading them shows why. Both are removed.

        Parameters
        ----------
        timeout_s : the longest wait
        """
        loop = self._loop or self._opened()
        end = loop.call_later(max(0.0, timeout_s), self._bell.set)
        loop.run_until_complete(self._bell.wait())
        end.cancel()
        self._bell.clear()
        ready, self._ready = self._ready, []
        failed, self._failed = self._failed, []
        return self._taken(ready), self._taken(failed)

    def _opened(self) -> asyncio.AbstractEventLoop:
        """Open the loop in the thread that polls: not before a fork."""
        patient_s = WAIT_S + _MIN_WAIT_S + self._settings.socket_timeout_s
        patient = self._settings.replace(socket_timeout_s=patient_s)
        self._client = connect_async(patient, 2 * self._keys.partitions)
        self._loop = asyncio.new_event_loop()
        self._loop.call_soon(self._request_added)
        return self._loop

    def close(self) -> None:
        """Give up all requests."""
        if self._loop is not None:
            with self._lock:
                self._after.clear()
            self._loop.run_until_complete(self._end())
            self._loop.close()

    async def _end(self) -> None:
        """Close the connections, which ends the requests; cancel those that have none yet."""
        await self._client.aclose()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    def _request_added(self) -> None:
        """Send a request for the partitions that were added, or one for each in a cluster."""
        with self._lock:
            added, self._added = sorted(set(self._added)), []
            after = {each: self._after[each] for each in added if each in self._after}
        several = [{each: after[each]} for each in after] if self._is_cluster else [after]
        for some in filter(None, several):
            assert self._loop is not None
            task = self._loop.create_task(self._read(some))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    async def _read(self, after: Mapping[int, str]) -> None:
        """Wait for the entries of partitions, and report those that have some; the others are added again."""
        streams = {self._keys.partition(each).stream: last for each, last in after.items()}
        wait_s = WAIT_S - time.monotonic() % WAIT_S
        wait_s += WAIT_S if wait_s < _MIN_WAIT_S else 0.0
        try:
            found = await self._client.xread(streams, count=1, block=int(wait_s * 1000))
        except (RedisError, OSError, MemoryError):
            self._failed += after.items()
            self._bell.set()
            return
        names = {name for name, _ in found or ()}
        ready = {each for each in after if self._keys.partition(each).stream.encode() in names}
        if ready:
            self._ready += [(each, after[each]) for each in sorted(ready)]
            self._bell.set()
        if len(ready) < len(after):
            with self._lock:
                self._added += [each for each in after if each not in ready]
            asyncio.get_running_loop().call_later(_TOGETHER_S, self._request_added)

    def _taken(self, found: list[tuple[int, str]]) -> list[int]:
        """Remove partitions that are still waited for after the same entry; return them, each once."""
        with self._lock:
            own = {each for each, last in found if self._after.get(each) == last}
            for each in own:
                del self._after[each]
        return sorted(own)
