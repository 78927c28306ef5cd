"""Batches on their way in: what every route that takes one is given."""

from typing import Annotated

from fastapi import Depends, Request, Response

from calibrant_server.service.http.dependencies import (
    IdempotencyKey,
    Ingester,
    Prefer,
    TheReception,
)
from calibrant_server.service.http.identifiers import ModelId
from calibrant_server.service.ingest.service import IngestService, Prepare, Sender
from calibrant_server.service.security.keys import Caller


class IngestAccess:
    """A caller who may send, the model that it is for, and the reception that takes it."""

    def __init__(
        self, model: str, request: Request, caller: Caller, reception: IngestService
    ) -> None:
        self.request = request
        self.caller = caller
        self.sender = Sender(caller, model)
        self.reception = reception

    async def take(self, partial: bool, prepare: Prepare) -> Response:
        """Read, prepare and hand over the batch in the body, and answer with its receipt."""
        return await self.reception.take(self.request, self.sender, partial, prepare)

    async def take_bodiless(self, prepare: Prepare) -> Response:
        """The same of a request whose path says everything."""
        return await self.reception.take_bodiless(self.sender, self.request, prepare)


async def _arrival(
    model: ModelId,
    request: Request,
    caller: Ingester,
    reception: TheReception,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> IngestAccess:
    return IngestAccess(model, request, caller, reception)


# A coroutine: FastAPI would call the class itself in another thread.
TheArrival = Annotated[IngestAccess, Depends(_arrival)]
