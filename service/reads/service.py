"""Service of reads: resolves the window of a query, compares its ETag before the result is computed, and waits for the result.

The ETag names everything that a response depends on: the state's version, the resolved window, the query, the
code and the representation. So an unchanged response is 304 without a computation. With `Prefer: wait` and
If-None-Match, the response is sent when the state changes, or 304 when the time is over.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from cachetools import LRUCache
from fastapi import Request, Response

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.engine import Connection
from calibrant_server.service.http.parameters import entity_tags, names, negotiated, preferred_wait
from calibrant_server.service.reads.known_slices import KnownSlices, declared_slices
from calibrant_server.service.reads.queries import invalid_query
from calibrant_server.service.reads.read_query import ReadQuery, etag_of, other_of, resolved
from calibrant_server.service.security.keys import caller_of
from calibrant_server.workers.queries.ask import Other, QueryResult
from calibrant_server.workers.queries.versions import joined
from calibrant_server.workers.store.windows import Window

JSON = "application/json"
# Pause between two checks of a waiting read: each costs one round trip to the store; a commit takes longer.
POLL_INTERVAL_S = 0.25
HEADERS = {"Cache-Control": "no-cache", "Vary": "Accept, Authorization"}


@dataclass(frozen=True)
class ValidatedQuery:
    """A valid query, with the request that made it."""

    read_query: ReadQuery
    media_type: str
    route: Any


class ValidatedQueries:
    """Queries that had a response, by caller and request; the least recently used ones are dropped."""

    def __init__(self, most: int = 1024, longest: int = 1024) -> None:
        self.longest = longest
        self._queries: LRUCache[tuple[Any, ...], ValidatedQuery] = LRUCache(most)

    def keep(self, request: Request, read_query: ReadQuery, media_type: str) -> None:
        """Store a query whose response is sent."""
        scope = request.scope
        name = self._name(request)
        if sum(len(part) for part in name[1:]) <= self.longest:
            self._queries[name] = ValidatedQuery(read_query, media_type, scope.get("route"))

    def find(self, request: Request) -> ValidatedQuery | None:
        """Return the query of a request, if its caller sent the same request before."""
        return self._queries.get(self._name(request)) if self._queries else None

    def _name(self, request: Request) -> tuple[Any, ...]:
        scope = request.scope
        accept = ",".join(request.headers.getlist("accept"))
        return caller_of(request), scope["path"], scope["query_string"], accept


class _Current(NamedTuple):
    """What a response depends on now: window, name of the state, ETag, and the other side of a comparison."""

    window: Window
    version: str
    etag: str
    other: Other | None


Render = Callable[[bytes], Awaitable[bytes]]


class ReadService:
    """Reads in the HTTP service.

    Attributes
    ----------
    validated : queries that had a response before
    """

    def __init__(self, connection: Connection) -> None:
        self.inbox = connection.inbox
        self.validated = ValidatedQueries()

    async def respond(
        self,
        request: Request,
        read_query: ReadQuery,
        media_type: str | None = None,
        render: Render | None = None,
    ) -> Response:
        """Respond to `read_query` as `media_type`; `render` makes it from the JSON, unless it is JSON."""
        media_type = media_type or negotiated(request, [JSON])
        known = entity_tags(request, "if-none-match")
        wait = preferred_wait(request)
        headers = dict(HEADERS)
        if wait is not None and known is not None:
            headers["Preference-Applied"] = f"wait={wait}"
        state = await self._awaited(read_query, media_type, known, wait)
        if read_query.comparison is None:
            self.validated.keep(request, read_query, media_type)
        if names(known, state.etag):
            return Response(status_code=304, headers={**headers, "ETag": state.etag})
        result = await self._of(read_query, state)
        # The state may have changed since the check: the tag names the state that the response depends on.
        headers["ETag"] = etag_of(read_query, media_type, state.window, result.state_version)
        body = await render(result.body) if render else result.body
        return Response(body, 200, headers, media_type)

    async def together(
        self,
        request: Request,
        read_queries: dict[str, ReadQuery],
        join: Callable[[dict[str, Any]], dict[str, Any]],
        media_type: str = JSON,
        render: Render | None = None,
    ) -> Response:
        """Respond to several queries in one document, which `join` builds from the results by name.

        One is computed after the other: together they would hold the panes of all, and each would read what another has merged.
        """
        states = {
            name: await self._state(read_query, media_type)
            for name, read_query in read_queries.items()
        }
        tags = "".join(each.etag for each in states.values())
        etag = f'"{hashlib.blake2b(tags.encode(), digest_size=16).hexdigest()}"'
        headers = {**HEADERS, "ETag": etag}
        if names(entity_tags(request, "if-none-match"), etag):
            return Response(status_code=304, headers=headers)
        results: dict[str, Any] = {}
        for name, read_query in read_queries.items():
            result = await self._of(read_query, states[name])
            results[name] = orjson.loads(result.body)
        body = orjson.dumps(join(results))
        return Response(await render(body) if render else body, 200, headers, media_type)

    async def unchanged(self, request: Request) -> Response | None:
        """Return 304 for one read of the store if the same query had a response before and nothing has changed since."""
        validated = self.validated.find(request)
        if validated is None:
            return None
        read_query = validated.read_query
        state = await self.inbox.unchanged_state(
            read_query.config, read_query.slice_name, read_query.query.needs
        )
        if state is None:
            return None
        window = resolved(read_query, state.marks)
        etag = etag_of(read_query, validated.media_type, window, state.name(window))
        if not names(entity_tags(request, "if-none-match"), etag):
            return None
        # The metrics count the route that would have responded.
        request.scope["route"] = validated.route
        return Response(status_code=304, headers={**HEADERS, "ETag": etag})

    async def window(self, read_query: ReadQuery) -> Window:
        """Return the panes that the query covers now."""
        await self._check_slice(read_query)
        return resolved(
            read_query, await self.inbox.marks(read_query.config, read_query.slice_name)
        )

    async def result(self, read_query: ReadQuery, window: Window | None = None) -> QueryResult:
        """Return the workers' result.

        Parameters
        ----------
        window : default: that of the query now
        """
        if window is None:
            window = await self.window(read_query)
        other = await self._other(read_query, window)
        return await self._result(read_query, window, other)

    async def _of(self, read_query: ReadQuery, state: _Current) -> QueryResult:
        """Return the workers' result for a state that was just read."""
        return await self._result(read_query, state.window, state.other, state.version)

    async def _result(
        self,
        read_query: ReadQuery,
        window: Window,
        other: Other | None,
        version: str | None = None,
    ) -> QueryResult:
        try:
            return await self.inbox.ask(
                read_query.query,
                read_query.config,
                window,
                slice_=read_query.slice_name,
                against=other,
                version=version,
            )
        except CalibrationInputError as error:
            raise invalid_query(error) from error

    async def _other(self, read_query: ReadQuery, window: Window) -> Other | None:
        if read_query.comparison is None:
            return None
        has_start = read_query.view.from_ is not None or read_query.view.window is not None
        return await other_of(
            read_query.comparison, self.inbox, read_query.slice_name, window, has_start
        )

    async def _check_slice(self, read_query: ReadQuery) -> None:
        """Reject a slice that the model neither declares nor has data of."""
        name = read_query.view.slice
        if name is not None and name not in declared_slices(read_query.config):
            known = await KnownSlices.of(self.inbox, read_query.config)
            known.reject_others([name])

    async def _awaited(
        self, read_query: ReadQuery, media_type: str, known: list[str] | None, wait: int | None
    ) -> _Current:
        """Return the current state at once; for a long poll, when it has changed or time is over."""
        found = await self._state(read_query, media_type)
        deadline = asyncio.get_running_loop().time() + (wait or 0)
        while names(known, found.etag) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(POLL_INTERVAL_S)
            found = await self._state(read_query, media_type)
        return found

    async def _state(self, read_query: ReadQuery, media_type: str) -> _Current:
        await self._check_slice(read_query)
        state = await self.inbox.state(
            read_query.config, read_query.slice_name, read_query.query.needs
        )
        window = resolved(read_query, state.marks)
        version = state.name(window)
        other = await self._other(read_query, window)
        if other is not None:
            version = joined(
                version, await self.inbox.state_version(other.model, other.slice, other.window)
            )
        return _Current(window, version, etag_of(read_query, media_type, window, version), other)
