"""Dependencies of routes: the caller by scope, and the parts of the app.

All are coroutines: FastAPI would run a plain function in another thread at every request.
"""

from typing import Annotated

from fastapi import Depends, Request

from calibrant_server.service.engine import Connection
from calibrant_server.service.ingest.service import IngestService
from calibrant_server.service.reads.queries import reject_unread
from calibrant_server.service.reads.service import ReadService
from calibrant_server.service.security.keys import Caller, needs
from calibrant_server.service.settings import Settings


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
