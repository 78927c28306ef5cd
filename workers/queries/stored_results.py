"""States and cached results of several models at once, for the event loop: a page of models costs three round trips."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from calibrant_server.workers.queries.ask import OK, Reply, result_digest
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.queries.versions import SliceState, Versions
from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.registry import ModelConfig
from calibrant_server.workers.store.windows import Window

StoreRetries = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
# Models of one pipeline: each has a version for every pane that is not yet part of a day.
_TOGETHER = 100


class StatedQuery(NamedTuple):
    """A query of a window, with the name of the state that its result depends on."""

    query: Query
    window: Window
    version: str


class StoredResults:
    """Reader of states and of results that workers cached."""

    def __init__(self, client: Any, keys: Keys, versions: Versions, store_retries: StoreRetries):
        self._client, self._keys, self._versions = client, keys, versions
        self._retried = store_retries

    async def states(self, configs: Sequence[ModelConfig]) -> list[SliceState]:
        """Return the current state of all rows of each model, with that of its alarm."""
        found: list[SliceState] = []
        for first in range(0, len(configs), _TOGETHER):
            part = configs[first : first + _TOGETHER]
            found += await self._retried(partial(self._versions.states, part))
        return found

    async def cached(self, queries: Sequence[StatedQuery]) -> list[bytes | None]:
        """Return the cached result of each query as JSON; None where a worker has to compute it."""
        digests = [
            result_digest(version, query.kind, query.to_dict(), None)
            for query, _, version in queries
        ]
        replies = [
            None if raw is None else Reply.from_bytes(raw)
            for raw in await self._retried(partial(self._read, digests))
        ]
        return [each.body if each is not None and each.status == OK else None for each in replies]

    async def _read(self, digests: Sequence[str]) -> list[bytes | None]:
        async with self._client.pipeline(transaction=False) as pipe:
            for digest in digests:
                pipe.get(self._keys.cached_result(digest))
            return list(await pipe.execute())
