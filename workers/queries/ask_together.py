"""Client of many queries of one tenant at once, such as those of a page of models.

The page needs all results, and none of them first. So queries are sent in groups, a group by one call of the store, and the
caller is woken when half of those in the queues have a reply: a reply costs a fifth of what it costs a query alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from calibrant_server.workers.queries import ask
from calibrant_server.workers.queries.ask import QueryRequest, Reply
from calibrant_server.workers.queries.query_queue import QueryQueue, QueuedQuery, TenantTurns


class QueriesTogether:
    """Some queries of one tenant on their way to workers.

    Parameters
    ----------
    wait_s : how long the caller waits for all of them together
    """

    def __init__(self, queue: QueryQueue, turns: TenantTurns, tenant: str, wait_s: float):
        self._queue, self._turns, self._tenant = queue, turns, tenant
        self._until_s = time.monotonic() + wait_s
        self._open: dict[str, asyncio.Future[bytes]] = {}
        self._sent: dict[str, tuple[QueryRequest, float]] = {}
        self._enough = asyncio.Event()
        self._n_enough = 0

    async def replies(self, requests: Iterable[QueryRequest]) -> dict[str, Reply]:
        """Return the reply to each query by its digest; without those that are not there in time."""
        left = deque({each.digest: each for each in requests}.values())
        replied: dict[str, Reply] = {}
        try:
            while (left or self._open) and self._left_s() > 0:
                await self._send_group(left)
                await self._wait_for_half()
                for digest in [digest for digest, reply in self._open.items() if reply.done()]:
                    replied[digest] = Reply.from_bytes(self._open.pop(digest).result())
                await self._send_again()
        finally:
            for reply in self._open.values():
                reply.cancel()
        return replied

    def _left_s(self) -> float:
        return self._until_s - time.monotonic()

    async def _send_group(self, left: deque[QueryRequest]) -> None:
        """Send the queries that have a turn now; if none is in the queues, wait for one turn."""
        group: list[QueryRequest] = []
        while left and (self._turns.is_free(self._tenant) or not (group or self._open)):
            try:
                earlier = await self._turns.take(self._tenant, self._left_s())
            except TimeoutError:
                break
            request = replace(left.popleft(), wait_s=self._left_s(), earlier=earlier)
            reply = self._queue.expected(request.digest)
            reply.add_done_callback(self._end_turn)
            self._open[request.digest] = reply
            group.append(request)
        if group:
            await self._send(group)

    async def _send(self, group: list[QueryRequest]) -> None:
        now_s = time.monotonic()
        n = await self._queue.send([QueuedQuery(each.to_json(), each.earlier) for each in group])
        self._sent |= {each.digest: (each, now_s) for each in group}
        for each in group[n:]:  # too many queries wait for workers
            if not self._open[each.digest].done():
                self._open.pop(each.digest).cancel()

    async def _send_again(self) -> None:
        """Send again what may have been lost with its worker."""
        before_s = time.monotonic() - ask.REASK_S
        sent = [self._sent[digest] for digest in self._open]
        lost = [
            replace(request, wait_s=self._left_s()) for request, at_s in sent if at_s <= before_s
        ]
        if lost:
            await self._send(lost)

    def _end_turn(self, reply: asyncio.Future[bytes]) -> None:
        self._turns.give_back(self._tenant)
        if sum(not each.done() for each in self._open.values()) <= self._n_enough:
            self._enough.set()

    async def _wait_for_half(self) -> None:
        """Wait until half of the queries in the queues have a reply, or some may be lost, or time is over."""
        n_open = sum(not each.done() for each in self._open.values())
        if not n_open:
            return
        self._n_enough = n_open // 2
        self._enough.clear()
        try:
            async with asyncio.timeout(min(ask.REASK_S, max(self._left_s(), 0.0))):
                await self._enough.wait()
        except TimeoutError:
            return
