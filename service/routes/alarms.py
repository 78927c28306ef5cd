"""Alarms: the list, acknowledgement, and a stream of changes; the messages sent to the receivers of a model's alarm, and a test message."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal
from uuid import uuid4

import orjson
from fastapi import Path, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import Violation
from calibrant.results.recommendation import Recommendation
from calibrant_server.service.engine import Connection, model_of
from calibrant_server.service.http.event_streams import EVENTS, EventStream
from calibrant_server.service.http.json_bodies import json_response
from calibrant_server.service.http.lists import PageQuery
from calibrant_server.service.http.parameters import (
    PATTERN,
    Name,
    preferred_wait,
)
from calibrant_server.service.http.problem_responses import invalid_input
from calibrant_server.service.http.problems import (
    AlarmClosed,
    AlarmUnknown,
    QuotaFull,
    WebhooksMissing,
)
from calibrant_server.service.openapi.schema import success
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.frozen_maps import who_is
from calibrant_server.service.reads.operations import Access, Admin, Operations, Page, Reader
from calibrant_server.service.reads.representations import part_of
from calibrant_server.service.security.keys import Caller
from calibrant_server.workers.alarm.alarm_commit import acknowledgement, trial
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmReader
from calibrant_server.workers.alarm.deliveries import WAITING, WebhookDelivery
from calibrant_server.workers.alarm.episodes import CLOSED, Episode, at, shown


class Acknowledgement(BaseModel):
    """An acknowledgement."""

    model_config = ConfigDict(extra="forbid", strict=True)

    note: str | None = Field(
        None,
        max_length=2000,
        description="The reason; required from people whom a proxy names.",
    )


router = Operations("alarms")

ALARM = ("alarm", Annotated[str, Path(description="Alarm id", pattern=f"^{PATTERN}$")])
HEARTBEAT_S = 15.0
# Between two checks for changed alarms: each costs one round trip to the store, and no user acts on an alarm faster.
LOOK_INTERVAL_S = 1.0
RETRY_MS = 3000
ACKNOWLEDGE_WAIT_S = 5


class AlarmResponse(BaseModel):
    """One alarm, from its start to its end."""

    id: str
    event: str | None = Field(
        None,
        description="Id shared by the alarms of one change: of the model and its slices.",
    )
    model: str
    title: str = Field(
        description="`calibration drift`, `model drift`, or `rater shift` with the names of the raters."
    )
    scope: str
    slice: str | None
    state: Literal["open", "acknowledged", "closed"]
    raised_at: str
    cohort: dict[str, str] = Field(description="The cohort that raised the alarm.")
    start_of_change: str | None
    evidence_log10: float | None = Field(
        description="−log10 of the p-value of the change when it was shown."
    )
    threshold_log10: float | None = Field(description="−log10 of the level at that time.")
    calibration: dict[str, Any] | None = Field(
        None, description="The word and its sentence when the alarm was raised, as in `GET drift`."
    )
    change: dict[str, Any] | None = Field(
        None, description="The word and its sentence when the alarm was raised, as in `GET drift`."
    )
    effect: dict[str, Any] = Field(
        description="Accuracy or rate of positive labels, and mean confidence, before and after, when the alarm was raised."
    )
    recommendation: part_of(Recommendation)  # type: ignore[valid-type]
    map_version: str | None
    changed_at: str
    acknowledged_at: str | None = Field(
        description="Null if the alarm was not acknowledged, or was closed by a version that did not store the time."
    )
    acknowledged_by: str | None
    acknowledged_role: str | None = Field(None, description="Role of that person, if known.")
    note: str | None
    closed_because: str | None


class AlarmsQuery(PageQuery):
    """Which alarms."""

    state: Literal["open", "acknowledged", "closed"] | None = Field(
        None, description="Only alarms in this state. Default: all."
    )
    acknowledged: bool | None = Field(
        None, description="Only alarms that are, or are not, acknowledged. Default: both."
    )
    model: Name | None = Field(None, description="Only alarms of this model. Default: all models.")


class StreamQuery(BaseModel):
    """Every alarm of your key's models."""

    model_config = ConfigDict(extra="forbid")


ALARMS = Collection(
    router, "/v1/alarms", "alarms", AlarmResponse, Reader, "A page of alarms", AlarmsQuery
)


@ALARMS.lists()
async def list_alarms(access: Access) -> Page:
    """List the alarms of your key's models, newest first."""
    query, connection = access.query, access.connection
    if query.model is not None:
        await model_of(connection, access.caller, query.model)
    found = await connection.inbox.alarms.episodes(access.caller.tenant)
    chosen = [
        each
        for each in found
        if access.caller.may_use(each.model)
        and query.state in (None, each.status)
        and query.acknowledged in (None, each.is_acknowledged)
        and query.model in (None, each.model)
    ]
    return ALARMS.paged(access, chosen, lambda each: [-each.raised_s, each.id], shown)


@router.operation(
    "GET /v1/alarms/events",
    Reader,
    {
        "description": "Server-sent events `alarm`, each with an alarm as it is now.",
        "content": {EVENTS: {"schema": {"type": "string"}}},
    },
    query=StreamQuery,
    headers=("last_event_id",),
)
async def stream_alarms(access: Access) -> Response:
    """Send every change of an alarm as it happens, from now on or from the last event that you have."""
    state, tenant, settings = access.request.app.state, access.caller.tenant, access.settings
    share = state.keyring.share_of_tenant(settings.tenant_share)
    state.streams.check(settings.max_streams, tenant, share)  # before the store is read
    alarms = access.inbox.alarms
    now = await alarms.recent_numbers(LOOK_INTERVAL_S)
    after = _numbers(access.request.headers.get("last-event-id"), len(now)) or now
    events = _events(alarms, access.caller, after, LOOK_INTERVAL_S)
    return EventStream(events, state.streams, settings.max_streams, tenant, share)


async def _events(
    alarms: AlarmReader, caller: Caller, after: list[int], pause_s: float
) -> AsyncIterator[bytes]:
    """Yield every change after `after` as an event, with comments as heartbeats."""
    yield b"retry: %d\n\n" % RETRY_MS
    said_at = time.monotonic()
    while True:
        now = await alarms.recent_numbers(pause_s)
        if any(new > old for new, old in zip(now, after, strict=True)):
            # Numbers first, then what changed: a change in between is sent now, and its number passed next time.
            for partition, each in await alarms.changed_since(caller.tenant, after):
                after[partition] = max(after[partition], each.number)
                if not caller.may_use(each.model):
                    continue
                yield _event(after, each)
                said_at = time.monotonic()
            after = [max(pair) for pair in zip(after, now, strict=True)]
        if time.monotonic() - said_at >= HEARTBEAT_S:
            yield b": still here\n\n"
            said_at = time.monotonic()
        await asyncio.sleep(pause_s)


def _event(after: list[int], episode: Episode) -> bytes:
    name = ".".join(map(str, after)).encode()
    return b"id: %s\nevent: alarm\ndata: %s\n\n" % (name, orjson.dumps(shown(episode)))


def _numbers(text: str | None, length: int) -> list[int] | None:
    """Return the numbers in an event's id; none if it is not an id of this store."""
    parts = (text or "").split(".")
    if len(parts) != length or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return [int(part[:18]) for part in parts]


@ALARMS.returns(ALARM, "The alarm")
async def get_alarm(access: Access) -> dict[str, Any]:
    """Return one alarm."""
    return shown(await _alarm(access.connection, access.caller, access.id))


@router.operation(
    "POST /v1/alarms/{alarm}/acknowledge",
    Admin,
    {
        200: success(AlarmResponse, "The alarm as it is now"),
        202: success(AlarmResponse, "Accepted, not yet in effect"),
    },
    409,
    id=ALARM,
    headers=("prefer",),
    body=("A note", Acknowledgement),
)
async def acknowledge_alarm(access: Access) -> Response:
    """Acknowledge an alarm, with those of its event if it is the model's or the first: Before restarts at the change."""
    caller, connection = access.caller, access.connection
    said = with_reason(access.body, caller)
    episode = await _alarm(connection, caller, access.id)
    if episode.status == CLOSED:
        raise AlarmClosed()
    wait_s = preferred_wait(access.request)
    deadline = time.monotonic() + (ACKNOWLEDGE_WAIT_S if wait_s is None else wait_s)
    if not episode.is_acknowledged:
        config = await connection.registry.get(caller.tenant, episode.model)
        if config is None or config.generation != episode.generation:
            raise AlarmClosed()
        command = acknowledgement(episode.id, who_is(caller), said.note, caller.role or None)
        await connection.inbox.order(config, command)
    while not (is_done := episode.is_acknowledged or episode.status == CLOSED):
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(0.02)
        episode = await _alarm(connection, caller, access.id)
    return json_response(shown(episode), 200 if is_done else 202)


async def _alarm(connection: Connection, caller: Caller, alarm: str) -> Episode:
    found = await connection.inbox.alarms.episode(caller.tenant, alarm)
    if found is None or not caller.may_use(found.model):
        raise AlarmUnknown()
    return found


def with_reason(said: Acknowledgement, caller: Caller) -> Acknowledgement:
    """Return an acknowledgement; a person gives a reason, which is recorded with their name."""
    if caller.is_person and not (said.note or "").strip():
        detail = "Received no note; expected the reason of the acknowledgement."
        raise invalid_input([Violation("/note", "missing", detail)])
    return said


class Attempt(BaseModel):
    """One attempt to deliver."""

    at: str
    status: int | None = Field(
        description="Status of the receiver's response; null if there was none."
    )
    error: str | None


class DeliveryResponse(BaseModel):
    """One message to one receiver."""

    id: str = Field(description="Header `webhook-id` of the message, the same at every attempt.")
    type: str
    url: str
    status: Literal["waiting", "delivered", "given_up"]
    made_at: str
    due_at: str | None = Field(description="Time of the next attempt.")
    attempts: list[Attempt]


class TestResponse(BaseModel):
    """A test message that is being sent; the log has its deliveries."""

    test: str
    receivers: int


DELIVERIES = Collection(
    router,
    "/v1/models/{model}/alarm/deliveries",
    "deliveries",
    DeliveryResponse,
    Admin,
    "A page of deliveries",
)


@DELIVERIES.lists()
async def list_deliveries(access: Access) -> Page:
    """List the messages sent to the receivers of a model's alarm, and those that wait."""
    found = await access.connection.inbox.alarms.deliveries(await access.config())
    return DELIVERIES.paged(access, found, lambda each: [-each.made_s, each.id], _shown)


@router.operation(
    "POST /v1/models/{model}/alarm/test",
    Admin,
    {202: success(TestResponse, "The test is being sent")},
    409,
)
async def test_webhooks(access: Access) -> Response:
    """Send every receiver of the model's alarm a signed message of type alarm.test."""
    config = await access.config()
    receivers = len(AlarmSettings.of(config).webhooks)
    if not receivers:
        raise WebhooksMissing()
    wait_s = await access.inbox.webhook_test_limit.wait_s(config.key)
    if wait_s:
        detail = "Received another test within a minute; expected at most one per model and ten per tenant. Wait, and send it again."
        raise QuotaFull(detail, retry_after_s=wait_s)
    name = uuid4().hex
    await access.inbox.order(config, trial(name))
    return json_response({"test": name, "receivers": receivers}, 202)


def _shown(delivery: WebhookDelivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "type": delivery.type,
        "url": delivery.url,
        "status": delivery.status,
        "made_at": at(delivery.made_s),
        "due_at": at(delivery.due_s) if delivery.status == WAITING else None,
        "attempts": [
            {"at": at(each["at_s"]), "status": each["status"], "error": each["error"]}
            for each in delivery.attempts
        ],
    }
