"""States and results of several models at once, for the event loop: a page of models whose results are cached costs three round trips."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.queries.ask import (
    OK,
    QueryClient,
    QueryRequest,
    Reply,
    ResultTimeoutError,
    result_digest,
    side_of,
)
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.queries.versions import SliceState, Versions
from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.windows import Window

StoreRetries = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
# Models of one pipeline: each has a version for every pane that is not yet part of a day.
_TOGETHER = 100


@dataclass(frozen=True)
class StatedQuery:
    """A query of a window of all rows of a model, with the name of the state that its result depends on."""

    config: ModelConfig
    query: Query
    window: Window
    version: str

    @cached_property
    def sent(self) -> dict[str, object]:
        """The query as transferred."""
        return self.query.to_dict()

    @cached_property
    def digest(self) -> str:
        """The identity of the result."""
        return result_digest(self.version, self.query.kind, self.sent, None)


class StoredResults:
    """Reader of states and of results, which workers cached or compute."""

    def __init__(
        self,
        client: Any,
        keys: Keys,
        versions: Versions,
        queries: QueryClient,
        store_retries: StoreRetries,
    ):
        self._client, self._keys, self._versions = client, keys, versions
        self._queries, self._retried = queries, store_retries

    async def states(self, configs: Sequence[ModelConfig]) -> list[SliceState]:
        """Return the current state of all rows of each model, with that of its alarm."""
        found: list[SliceState] = []
        for first in range(0, len(configs), _TOGETHER):
            part = configs[first : first + _TOGETHER]
            found += await self._retried(partial(self._versions.states, part))
        return found

    async def cached(self, queries: Sequence[StatedQuery]) -> list[bytes | None]:
        """Return the cached result of each query as JSON; None where a worker has to compute it."""
        digests = [each.digest for each in queries]
        replies = [
            None if raw is None else Reply.from_bytes(raw)
            for raw in await self._retried(partial(self._read, digests))
        ]
        return [each.body if each is not None and each.status == OK else None for each in replies]

    async def computed(self, queries: Sequence[StatedQuery], wait_s: float) -> list[Reply | None]:
        """Have queries of one tenant computed that are not cached; return the replies of workers, None where there is none in time."""
        requests = [self._request(each, wait_s) for each in queries]
        return list(await asyncio.gather(*map(self._reply, requests)))

    def _request(self, stated: StatedQuery, wait_s: float) -> QueryRequest:
        side = side_of(stated.config, ALL_ROWS, stated.window)
        reply_to, kind = self._queries.queue.reply_to, stated.query.kind
        return QueryRequest(stated.digest, kind, stated.sent, side, reply_to, wait_s)

    async def _reply(self, request: QueryRequest) -> Reply | None:
        try:
            reply: Reply = await self._retried(partial(self._queries.reply, request))
        except ResultTimeoutError:
            return None
        return reply

    async def _read(self, digests: Sequence[str]) -> list[bytes | None]:
        async with self._client.pipeline(transaction=False) as pipe:
            for digest in digests:
                pipe.get(self._keys.cached_result(digest))
            return list(await pipe.execute())
