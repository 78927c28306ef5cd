"""The workers' queues of queries, for the event loop: puts queries there, and reads their replies from one list.

All tasks of one inbox share one reply list and one reader of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from secrets import token_hex
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from calibrant_server.workers.store.key_names import Keys
from calibrant_server.workers.store.script import run_async

log = logging.getLogger(__name__)

# Number of waiting queries above which reads respond 503: by then the first ones have waited for seconds.
MAX_QUERIES = 512
# Of them, queries of one tenant from one process: the others of the tenant wait in the process, and do not delay other tenants.
MAX_QUEUED_OF_TENANT = 16


class QueuedQuery(NamedTuple):
    """A query as JSON, and how many queries of the same tenant its process had in the queues before."""

    body: bytes
    earlier: int


class QueryQueue:
    """Queries of one inbox on their way to workers, and their replies."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys
        self.reply_to = keys.replies(token_hex(8))
        self._waiting: dict[str, list[asyncio.Future[bytes]]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop reading replies."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    def expected(self, digest: str) -> asyncio.Future[bytes]:
        """Return the future reply to the query with this digest. Cancel it when no task waits for it any longer."""
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(digest, []).append(reply)
        reply.add_done_callback(lambda done: self._forget(digest, done))
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._deliver())
        return reply

    async def send(self, query: QueuedQuery) -> bool:
        """Put a query into its queue; return whether there was room."""
        arguments = [MAX_QUERIES, *query]
        return bool(await run_async(self._client, "push_query", [self._keys.queries], arguments))

    def _forget(self, digest: str, reply: asyncio.Future[bytes]) -> None:
        waiting = self._waiting.get(digest, [])
        if reply in waiting:
            waiting.remove(reply)
        if not waiting:
            self._waiting.pop(digest, None)

    async def _deliver(self) -> None:
        while self._waiting:
            try:
                popped = await self._client.blpop([self.reply_to], timeout=1)
            except RedisError as error:
                log.warning("waiting_for_results error=%s", error)
                await asyncio.sleep(0.05)
                continue
            if popped is None:
                continue
            digest, _, raw = popped[1].partition(b" ")
            for reply in self._waiting.pop(digest.decode(), ()):
                if not reply.done():
                    reply.set_result(raw)


class TenantTurns:
    """Turns of tenants: how many queries of each may be in the queues at a time, from one process."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._n_queued: Counter[str] = Counter()

    async def take(self, tenant: str, wait_s: float) -> int:
        """Wait for a turn; return how many queries the tenant has in the queues besides.

        Raises
        ------
        TimeoutError
        """
        turns = self._turns.setdefault(tenant, asyncio.Semaphore(MAX_QUEUED_OF_TENANT))
        if turns.locked():
            async with asyncio.timeout(wait_s):
                await turns.acquire()
        else:
            await turns.acquire()
        earlier = self._n_queued[tenant]
        self._n_queued[tenant] += 1
        return earlier

    def give_back(self, tenant: str) -> None:
        """End a turn."""
        self._turns[tenant].release()
        self._n_queued[tenant] -= 1
        if not self._n_queued[tenant]:
            del self._n_queued[tenant]
