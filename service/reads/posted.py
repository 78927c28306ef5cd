"""Results computed directly from a posted batch; nothing is stored."""

from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from calibrant_server.service.engine import Connection, model_of
from calibrant_server.service.http.bodies import JSON, Body, read_body
from calibrant_server.service.http.dependencies import MapReader, Scorer
from calibrant_server.service.http.parameters import ModelId
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.service import IngestService
from calibrant_server.service.reads.service import ReadService
from calibrant_server.service.security.keys import Caller
from calibrant_server.service.settings import Settings
from calibrant_server.workers.store.keys import model_key
from calibrant_server.workers.store.model_config import ModelConfig

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
