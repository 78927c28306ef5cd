"""Dated events of a model: what may explain a change."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant_server.service.engine import engine_errors, model_of
from calibrant_server.service.http.bodies import JSON, read_body
from calibrant_server.service.http.dependencies import (
    Admin,
    Reader,
    TheConnection,
    TheIngestService,
)
from calibrant_server.service.http.errors import EventUnknown, ModelConflict, PreconditionFailed
from calibrant_server.service.http.json_bodies import json_response, read_json
from calibrant_server.service.http.lists import (
    NOT_MODIFIED,
    PAGE_HEADERS,
    ListPage,
    PageQuery,
    list_response,
    page_of,
)
from calibrant_server.service.http.parameters import PATTERN, IfNoneMatch, ModelId, TextName
from calibrant_server.service.http.validation_errors import validated
from calibrant_server.service.ingest.parsed_batch import object_of
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.service.reads.queries import Timestamp
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.model_events import (
    MAX_EVENTS,
    MAX_NAME,
    Kind,
    ModelEvent,
    event_id,
    event_of,
    with_events,
)
from calibrant_server.workers.store.registry import RevisionConflict

router = APIRouter(tags=["drift"], default_response_class=Response)
EventId = Annotated[str, Path(description="Event id", pattern=f"^{PATTERN}$")]
MAX_OBJECTS = 16


class NewEvent(BaseModel):
    """An event."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind
    name: Annotated[TextName, Field(max_length=MAX_NAME)] = Field(
        description="Text: the number of a version, the name of a scanner."
    )
    at: Timestamp = Field(description="RFC 3339: when the change took effect.")


class ModelEventResponse(BaseModel):
    """An event of a model."""

    id: str
    kind: Kind
    name: str
    at: str


class ModelEventsResponse(ListPage):
    """Events, oldest first."""

    events: list[ModelEventResponse]


@router.get(
    "/v1/models/{model}/events",
    operation_id="listEvents",
    responses={
        200: success(ModelEventsResponse, "A page of events", **PAGE_HEADERS),
        304: NOT_MODIFIED,
        **problems(422),
    },
)
async def list_events(
    model: ModelId,
    request: Request,
    caller: Reader,
    query: Annotated[PageQuery, Query()],
    connection: TheConnection,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the dated events of a model, oldest first."""
    config = await model_of(connection, caller, model)
    found = [_shown(each) for each in config.events]
    page, following = page_of(found, lambda each: [each["at"], each["id"]], query)
    return list_response(request, {"events": page}, following)


@router.post(
    "/v1/models/{model}/events",
    operation_id="createEvent",
    status_code=201,
    responses={
        201: success(ModelEventResponse, "The event", Location="The events."),
        **problems(408, 409, 412, 413, 415, 422),
    },
    openapi_extra=takes("The event", json=NewEvent),
)
async def create_event(
    model: ModelId,
    request: Request,
    caller: Admin,
    connection: TheConnection,
    ingest: TheIngestService,
) -> Response:
    """Add a dated event: a version, pipeline or scanner. It is drawn on curves and named with the date of a change."""
    config = await model_of(connection, caller, model)
    with ingest.admission.hold() as hold:
        body = await read_body(request, ingest.settings, hold, (JSON,))
        wanted = validated(NewEvent, object_of(read_json(body.data, MAX_OBJECTS)))
    event = event_of(wanted.kind, wanted.name, wanted.at)
    if event not in config.events:
        if len(config.events) >= MAX_EVENTS:
            detail = f"The model has {MAX_EVENTS} events, the maximum. Delete one first."
            raise ModelConflict(detail)
        await _put(ingest, config, [*config.events, event])
    location = f"/v1/models/{model}/events"
    return json_response(_shown(event), 201, Location=location)


@router.delete(
    "/v1/models/{model}/events/{event}",
    operation_id="deleteEvent",
    status_code=204,
    responses={204: {"description": "The event is deleted"}, **problems(409, 412, 422)},
)
async def delete_event(
    model: ModelId,
    event: EventId,
    caller: Admin,
    connection: TheConnection,
    ingest: TheIngestService,
) -> Response:
    """Delete an event."""
    config = await model_of(connection, caller, model)
    left = [each for each in config.events if event_id(each) != event]
    if len(left) == len(config.events):
        raise EventUnknown(f"The model has no event {event!r}.")
    await _put(ingest, config, left)
    return Response(status_code=204)


async def _put(ingest: Any, config: ModelConfig, events: list[ModelEvent]) -> None:
    """Write the events of a model over the version that was read."""
    try:
        with engine_errors():
            await ingest.registry.put(with_events(config, events), config.revision)
    except RevisionConflict as error:
        raise PreconditionFailed() from error


def _shown(event: ModelEvent) -> dict[str, Any]:
    return {"id": event_id(event), **event}
