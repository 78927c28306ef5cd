"""Wait for the entries of many streams at once, in one thread.

On one server, a single blocking XREAD names all streams. A stream that is added later gets a request of its own. All requests
end at the same moments, and those that end without an entry continue as one. In a cluster, a command names the keys of one
slot, so each stream has its own request; waiting for many of them still takes one thread. That thread must not wait for one
node: the thread that adds a stream connects and sends the request, and later requests use the same connection.

A reply says which streams have entries; it has the first entry of each, which is dropped: the partition's loop reads it with
those behind it.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from calibrant_server.workers.store.cluster import ClusterClient
from calibrant_server.workers.store.connection import Store

# Requests end at multiples of this.
WAIT_S = 6.0
# A request that would end sooner than this waits until the next multiple.
_MIN_WAIT_S = 0.2
# Requests on one server: with more streams that were added one by one, the oldest request is given up and made with them. That
# closes its connection, so a worker with some busy partitions should not come there between two ends of all requests.
MAX_REQUESTS = 32


@dataclass
class _Request:
    """A blocking read that was sent and has no reply yet."""

    connection: Any
    pool: Any
    partitions: list[int]
    late_at: float


class StreamWatch:
    """Streams of partitions for whose entries nothing else waits.

    `add` and `remove` may be called from any thread, `poll` and `close` from one.
    """

    def __init__(self, store: Store):
        self._store = store
        self._is_cluster = isinstance(store.client, ClusterClient)
        self._lock = threading.Lock()
        self._after: dict[int, str] = {}
        self._added: set[int] = set()
        self._requests: dict[int, _Request] = {}
        self._sent: list[_Request] = []
        self._alarm, self._bell = socket.socketpair()
        self._alarm.setblocking(False)
        self._bell.setblocking(False)

    def add(self, partition: int, after_id: str) -> None:
        """Wait for the entries of a partition after one.

        Raises
        ------
        RedisError, OSError
            A node of a cluster cannot be reached.
        """
        with self._lock:
            if self._after.get(partition) == after_id:
                return  # its request goes on
            self._after[partition] = after_id
            if not self._is_cluster:
                self._added.add(partition)
        if self._is_cluster:
            try:
                self._request([partition])
            except (RedisError, OSError):
                self.remove(partition)
                raise
        self.wake()

    def remove(self, partition: int) -> None:
        """Stop to wait for a partition."""
        with self._lock:
            self._after.pop(partition, None)
            self._added.discard(partition)

    def wake(self) -> None:
        """End a `poll` at once."""
        with suppress(BlockingIOError, OSError):
            self._bell.send(b".")

    def poll(self, timeout_s: float) -> tuple[list[int], list[int]]:
        """Return partitions that have entries, and those whose wait failed: reading them shows why. Both are removed.

        Parameters
        ----------
        timeout_s : the longest wait; it also ends when a partition is added
        """
        failed = self._request_added()
        self._watch_sent()
        ready, lost = self._replied(self._readable(0.0 if failed else timeout_s))
        for request in list(self._requests.values()):
            if time.monotonic() > request.late_at:
                self._give_up(request)
                lost += request.partitions
        return self._taken(ready), failed + self._taken(lost)

    def close(self) -> None:
        """Give up all requests."""
        for request in [*self._requests.values(), *self._sent]:
            self._give_up(request)
        self._alarm.close()
        self._bell.close()

    def _request_added(self) -> list[int]:
        """Request what was added; return the partitions for which that failed."""
        with self._lock:
            added, self._added = sorted(self._added), set()
        if not added:
            return []
        if len(self._requests) >= MAX_REQUESTS:
            oldest = next(iter(self._requests.values()))
            self._give_up(oldest)
            added = sorted({*added, *oldest.partitions})
        try:
            self._request(added)
        except (RedisError, OSError):
            return self._taken(added)
        return []

    def _request(self, partitions: list[int]) -> None:
        """Connect and send a read for partitions."""
        try:
            pool = self._pool(self._store.keys.partition(partitions[0]).stream)
            connection = pool.get_connection()
            self._send(connection, pool, partitions)
        except (RedisError, OSError) as error:
            self._note(error)
            raise

    def _send(self, connection: Any, pool: Any, partitions: list[int]) -> None:
        """Send a read for those of some partitions that are still to be waited for."""
        with self._lock:
            after = {each: self._after[each] for each in partitions if each in self._after}
        wait_s = WAIT_S - time.monotonic() % WAIT_S
        wait_s += WAIT_S if wait_s < _MIN_WAIT_S else 0.0
        late_at = time.monotonic() + wait_s + self._store.settings.socket_timeout_s
        request = _Request(connection, pool, list(after), late_at)
        try:
            if after:
                names = [self._store.keys.partition(each).stream for each in after]
                command = ("XREAD", "COUNT", 1, "BLOCK", int(wait_s * 1000), "STREAMS", *names)
                connection.send_command(*command, *after.values())
                with self._lock:
                    self._sent.append(request)
            else:
                pool.release(connection)
        except (RedisError, OSError):
            self._give_up(request)
            raise

    def _watch_sent(self) -> None:
        """Take over the requests that this and other threads have sent."""
        with self._lock:
            sent, self._sent = self._sent, []
        for request in sent:
            # The only private member of redis-py that the engine uses: no public one names the socket to wait for.
            self._requests[request.connection._sock.fileno()] = request

    def _pool(self, name: str) -> Any:
        """Return the connections to the server of a stream."""
        client = self._store.client
        if not isinstance(client, ClusterClient):
            return client.connection_pool
        client.refresh()
        return client.node(client.slots.node_of(["XLEN", name])).connection_pool

    def _readable(self, timeout_s: float) -> list[int]:
        """Wait; return the requests with a reply, by number of their socket."""
        poll = select.poll()
        poll.register(self._alarm, select.POLLIN)
        for number in self._requests:
            poll.register(number, select.POLLIN)
        found = [number for number, _ in poll.poll(max(0.0, timeout_s) * 1000)]
        if self._alarm.fileno() in found:
            with suppress(BlockingIOError):
                self._alarm.recv(4096)
        return [number for number in found if number in self._requests]

    def _replied(self, numbers: Iterable[int]) -> tuple[list[int], list[int]]:
        """Read replies; return the partitions with entries and those with errors, and continue to wait for the others."""
        ready: list[int] = []
        lost: list[int] = []
        for number in numbers:
            request = self._requests[number]
            try:
                if not request.connection.can_read(timeout=0):
                    continue
                found = request.connection.read_response(disable_decoding=True) or []
            except (RedisError, OSError, MemoryError) as error:
                self._note(error)
                self._give_up(request)
                lost += request.partitions
                continue
            del self._requests[number]
            names = {bytes(name) for name, _ in found}
            streams = {
                each: self._store.keys.partition(each).stream.encode()
                for each in request.partitions
            }
            ready += [each for each, name in streams.items() if name in names]
            again = [each for each, name in streams.items() if name not in names]
            lost += self._continue(request, again)
        return ready, lost

    def _continue(self, request: _Request, partitions: list[int]) -> list[int]:
        """Wait again, all together on one server; return the partitions for which that failed."""
        if self._is_cluster:
            try:
                self._send(request.connection, request.pool, partitions)
            except (RedisError, OSError) as error:
                self._note(error)
                return partitions
            return []
        request.pool.release(request.connection)
        with self._lock:
            self._added.update(each for each in partitions if each in self._after)
        return []

    def _give_up(self, request: _Request) -> None:
        """Close the connection: a reply may still be on its way."""
        for number, each in list(self._requests.items()):
            if each is request:
                del self._requests[number]
        request.connection.disconnect()
        request.pool.release(request.connection)

    def _taken(self, partitions: Iterable[int]) -> list[int]:
        """Remove partitions, which more than one request may name; return those that were there, each once."""
        with self._lock:
            found = [each for each in dict.fromkeys(partitions) if each in self._after]
            for each in found:
                del self._after[each]
                self._added.discard(each)
        return found

    def _note(self, error: Exception) -> None:
        if isinstance(self._store.client, ClusterClient):
            self._store.client.slots.note(error)
