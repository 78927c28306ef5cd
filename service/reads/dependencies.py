"""Dependencies of routes: the caller by scope, the parts of the app, and the model that a request reads or computes for.

All are coroutines: FastAPI would run a plain function, or the class itself, in another thread at every request."""

from collections.abc import Callable
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request

from calibrant_server.service.engine import Connection, model_of
from calibrant_server.service.http.bodies import JSON, Body, read_body
from calibrant_server.service.http.parameters import IfNoneMatch, ModelId, Prefer
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.service import IngestService
from calibrant_server.service.reads.compare import comparison_of
from calibrant_server.service.reads.queries import WindowQuery, reject_unread, resolved_query
from calibrant_server.service.reads.service import ReadQuery, ReadService
from calibrant_server.service.security.keys import Caller, needs
from calibrant_server.service.settings import Settings
from calibrant_server.workers.queries.kind import Against
from calibrant_server.workers.queries.query import Query
from calibrant_server.workers.store.keys import model_key
from calibrant_server.workers.store.model_config import ModelConfig


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def _connection(request: Request) -> Connection:
    connection: Connection = request.app.state.connection
    return connection


async def _ingest(request: Request) -> IngestService:
    ingest: IngestService = request.app.state.ingest
    return ingest


async def _reads(request: Request) -> ReadService:
    reads: ReadService = request.app.state.reads
    return reads


async def only_known_parameters(request: Request) -> None:
    """Reject unknown query parameters where no key is needed; with a key, `needs` does it."""
    reject_unread(request)


AppSettings = Annotated[Settings, Depends(_settings)]
TheConnection = Annotated[Connection, Depends(_connection)]
TheIngestService = Annotated[IngestService, Depends(_ingest)]
TheReadService = Annotated[ReadService, Depends(_reads)]

Reader = Annotated[Caller, Depends(needs("read"))]
MapReader = Annotated[Caller, Depends(needs("maps:read", "read"))]
Scorer = Annotated[Caller, Depends(needs("read", "ingest"))]
Admin = Annotated[Caller, Depends(needs("admin"))]


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


T = TypeVar("T")


class Posted:
    """A request with its caller, and the services that compute the response."""

    def __init__(self, request: Request, caller: Caller, model: str = "") -> None:
        self.request, self.caller, self.model = request, caller, model
        self.connection: Connection = request.app.state.connection
        self.reads: ReadService = request.app.state.reads
        self.ingest: IngestService = request.app.state.ingest
        self.settings: Settings = request.app.state.settings

    async def config(self) -> ModelConfig:
        """Return the model; reject an unknown one, and one that may not be used now."""
        self.ingest.admission.check(model_key(self.caller.tenant, self.model))
        return await model_of(self.connection, self.caller, self.model)

    async def computed(
        self, compute: Callable[..., T], *arguments: object, takes: tuple[str, ...] = (JSON,)
    ) -> T:
        """Return what `compute` makes of the body and further arguments, in a thread."""
        with self.ingest.admission.hold() as hold:
            body: Body = await read_body(self.request, self.settings, hold, takes)
            return await in_thread(compute, body, *arguments)


async def _of_scorer(request: Request, caller: Scorer) -> Posted:
    return Posted(request, caller)


async def _of_model(model: ModelId, request: Request, caller: MapReader) -> Posted:
    return Posted(request, caller, model)


PostedToScore = Annotated[Posted, Depends(_of_scorer)]
PostedOfModel = Annotated[Posted, Depends(_of_model)]
