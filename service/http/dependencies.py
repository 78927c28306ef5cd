"""Dependencies of routes: the caller by scope, and the parts of the app.

All are coroutines: FastAPI would run a plain function in another thread at every request.
"""

from typing import Annotated

from fastapi import Depends, Request

from calibrant_server.service.engine import Connection
from calibrant_server.service.ingest.service import IngestService
from calibrant_server.service.reads.queries import refuse_unread
from calibrant_server.service.reads.service import ReadService
from calibrant_server.service.security.keys import Caller, needs
from calibrant_server.service.settings import Settings


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def _connection(request: Request) -> Connection:
    connection: Connection = request.app.state.connection
    return connection


async def _reception(request: Request) -> IngestService:
    reception: IngestService = request.app.state.reception
    return reception


async def _reading(request: Request) -> ReadService:
    reading: ReadService = request.app.state.reading
    return reading


async def only_known_parameters(request: Request) -> None:
    """Reject unknown query parameters where no key is needed; with a key, `needs` does it."""
    refuse_unread(request)


AppSettings = Annotated[Settings, Depends(_settings)]
TheConnection = Annotated[Connection, Depends(_connection)]
TheReception = Annotated[IngestService, Depends(_reception)]
TheReading = Annotated[ReadService, Depends(_reading)]

Reader = Annotated[Caller, Depends(needs("read"))]
MapReader = Annotated[Caller, Depends(needs("maps:read", "read"))]
Scorer = Annotated[Caller, Depends(needs("read", "ingest"))]
Admin = Annotated[Caller, Depends(needs("admin"))]
