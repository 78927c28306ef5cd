"""Webhooks: the messages sent to the receivers of a model's alarm, and a test message."""

from typing import Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from calibrant_server.service.http.errors import QuotaFull, WebhooksMissing
from calibrant_server.service.http.json_bodies import json_response
from calibrant_server.service.openapi.schema import problems, success
from calibrant_server.service.reads.collection import Collection
from calibrant_server.service.reads.operations import Access, Admin, Page, operation
from calibrant_server.workers.alarm.alarm_commit import trial
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.deliveries import WAITING, WebhookDelivery
from calibrant_server.workers.alarm.episodes import at

router = APIRouter(tags=["alarms"], default_response_class=Response)


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


@DELIVERIES.lists("listDeliveries")
async def list_deliveries(access: Access) -> Page:
    """List the messages sent to the receivers of a model's alarm, and those that wait."""
    found = await access.connection.inbox.alarms.deliveries(await access.config())
    return DELIVERIES.paged(access, found, lambda each: [-each.made_s, each.id], _shown)


@operation(
    router,
    "POST /v1/models/{model}/alarm/test",
    "testWebhooks",
    Admin,
    {202: success(TestResponse, "The test is being sent"), **problems(409, 422, 429)},
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
