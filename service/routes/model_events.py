"""Dated events of a model: what may explain a change."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from calibrant_server.service.http.lists import ListPage
from calibrant_server.service.http.parameters import PATTERN, ReadName
from calibrant_server.service.http.problems import EventUnknown, ModelConflict
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.operations import (
    Access,
    Admin,
    Created,
    Operations,
    Page,
    Reader,
)
from calibrant_server.service.reads.queries import Timestamp
from calibrant_server.workers.store.model_events import (
    MAX_EVENTS,
    MAX_NAME,
    Kind,
    ModelEvent,
    event_id,
    event_of,
    with_events,
)

router = Operations("drift")
EventId = Annotated[str, Path(description="Event id", pattern=f"^{PATTERN}$")]
NO_CACHE = {"Cache-Control": "no-cache"}


FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def check_year(at: datetime) -> datetime:
    """Return a time unchanged; reject one that no prediction can have."""
    if FIRST <= at <= LAST:
        return at
    raise PydanticCustomError("range", "expected a time in the years 1970 to 9999 (UTC)")


class NewEvent(BaseModel):
    """An event."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind
    name: Annotated[ReadName, Field(max_length=MAX_NAME)] = Field(
        description="Text: the number of a version, the name of a scanner."
    )
    at: Annotated[Timestamp, AfterValidator(check_year)] = Field(
        description="RFC 3339: when the change took effect."
    )


class ModelEventResponse(BaseModel):
    """An event of a model."""

    id: str
    kind: Kind
    name: str
    at: str


class ModelEventsResponse(ListPage):
    """Events, oldest first."""

    events: list[ModelEventResponse]


EVENTS = Collection(
    router,
    "/v1/models/{model}/events",
    "events",
    ModelEventResponse,
    Reader,
    "A page of events",
    page=ModelEventsResponse,
)


@EVENTS.lists()
async def list_events(access: Access) -> Page:
    """List the dated events of a model, oldest first."""
    found = [_shown(each) for each in (await access.config()).events]
    return EVENTS.paged(access, found, lambda each: [each["at"], each["id"]])


@EVENTS.creates(
    NewEvent,
    "The event",
    Admin,
    {201: success(ModelEventResponse, "The event", Location="The events.")},
    409,
    412,
)
async def create_event(access: Access) -> Created:
    """Add a dated event: a version, pipeline or scanner. It is drawn on curves and named with the date of a change."""
    config, wanted = await access.config(), access.body
    event = event_of(wanted.kind, wanted.name, wanted.at)
    if event not in config.events:
        if len(config.events) >= MAX_EVENTS:
            detail = f"The model has {MAX_EVENTS} events, the maximum. Delete one first."
            raise ModelConflict(detail)
        changed = with_events(config, [*config.events, event])
        await access.connection.registry.put(changed, config.revision)
    return Created(_shown(event), f"/v1/models/{config.model}/events", headers=NO_CACHE)


@EVENTS.deletes(("event", EventId), "The event is deleted", Admin, 409, 412)
async def delete_event(access: Access) -> None:
    """Delete an event."""
    config = await access.config()
    left = [each for each in config.events if event_id(each) != access.id]
    if len(left) == len(config.events):
        raise EventUnknown(f"The model has no event {access.id!r}.")
    await access.connection.registry.put(with_events(config, left), config.revision)


def _shown(event: ModelEvent) -> dict[str, Any]:
    return {"id": event_id(event), **event}
