"""Reads of one model: the dependency of their routes, and the response as numbers or a figure."""

from typing import Annotated, cast

from fastapi import Depends, Request

from calibrant_server.service.engine import Connection, model_of
from calibrant_server.service.http.dependencies import MapReader, Reader
from calibrant_server.service.http.parameters import IfNoneMatch, ModelId, Prefer
from calibrant_server.service.reads.compare import comparison_of
from calibrant_server.service.reads.queries import WindowQuery, resolved_query
from calibrant_server.service.reads.service import ReadQuery, ReadService
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.queries.kind import Against
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store.model_config import ModelConfig


class ReadAccess:
    """A caller with read access, the requested model, and the services that compute the response."""

    def __init__(self, model: str, request: Request, caller: Caller) -> None:
        self.model, self.request, self.caller = model, request, caller
        self.connection: Connection = request.app.state.connection
        self.reads: ReadService = request.app.state.reads

    async def config(self) -> ModelConfig:
        """Return the model; reject an unknown one."""
        return await model_of(self.connection, self.caller, self.model)

    async def read_query(self, parameters: Query, shown: tuple[str | None, ...] = ()) -> ReadQuery:
        """Return the query of a read's parameters, with its window and the other side of a comparison.

        `shown` is the part of the result that a figure shows.
        """
        config = await self.config()
        query = resolved_query(parameters, config)
        against: Against | None = getattr(parameters, "compared_with", None)
        comparison = None
        if against is not None:
            comparison = await comparison_of(against, config, self.caller, self.connection)
        return ReadQuery(
            query,
            config,
            cast("WindowQuery", parameters),
            comparison=comparison,
            shown=shown,
        )


async def _read(
    model: ModelId,
    request: Request,
    caller: Reader,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> ReadAccess:
    return ReadAccess(model, request, caller)


async def _map_read(
    model: ModelId,
    request: Request,
    caller: MapReader,
    if_none_match: IfNoneMatch = None,
    prefer: Prefer = None,
) -> ReadAccess:
    return ReadAccess(model, request, caller)


# Coroutines: FastAPI would call the class itself in another thread.
TheReadAccess = Annotated[ReadAccess, Depends(_read)]
TheMapRead = Annotated[ReadAccess, Depends(_map_read)]
