"""CloudEvents of inference servers: requests, responses and feedback that a logger or a broker delivers.

KServe's logger sends an event once. Its queue holds 100, and then inference waits: so the store has a short deadline here, and
only the status 200 counts as a success there. An event that cannot be stored now is rejected with 429 or 503 at once, which a
broker repeats.
"""

import base64
from functools import partial
from typing import Any, Literal

import orjson
from anyio import from_thread
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http import problems
from calibrant_server.service.http.bodies import Body, read_body
from calibrant_server.service.http.engine_errors import engine_errors
from calibrant_server.service.http.parameters import Name, check_name
from calibrant_server.service.http.problem_responses import invalid_input
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest import cloudevents as events
from calibrant_server.service.ingest.batches import load_labels, prediction_batch
from calibrant_server.service.ingest.schemas import IngestResponse
from calibrant_server.service.ingest.service import IngestAccess, IngestContext, receipt_body
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.operations import Access, Ingester, Operations
from calibrant_server.service.security.admission import EVERYONE, Hold
from calibrant_server.workers.ingest.entries import IngestBatch
from calibrant_server.workers.store.event_halves import MAX_HALF_BYTES, HalvesFull
from calibrant_server.workers.store.model_config import ModelConfig

router = Operations("predictions")

STORE_DEADLINE_S = 1.0


class EventQuery(BaseModel):
    """Query of a CloudEvent."""

    model_config = ConfigDict(extra="forbid")

    model: Name | None = Field(
        None, description="Default: `namespace.inferenceservicename` of the event."
    )


class EventResponse(BaseModel):
    """Outcome of an event."""

    outcome: Literal["accepted", "skipped", "waiting"] = Field(
        description="`waiting`: the request or response is stored for 120 s, until the other arrives."
    )
    reason: str | None = Field(description="Why it was skipped.")
    batch: IngestResponse | None = None


@router.operation(
    "POST /v1/cloudevents",
    Ingester,
    success(EventResponse, "The event is accepted, or contains nothing to store"),
    409,
    query=EventQuery,
    takes_=takes(
        "A CloudEvent, structured or binary", {events.STRUCTURED: events.EventBody, "*/*": None}
    ),
)
async def ingest_cloud_event(access: Access) -> Response:
    """Accept a request, response or feedback of an inference server (KServe, Knative, Seldon) as CloudEvent 1.0.

    The model declares in its setting `cloudevents` which output contains the scores, and what kind of scores. Id and source make
    the batch id, so a repeated event counts once. Valid rows are accepted even if others are not. The data may be gzip,
    under any content type.
    """
    counters = access.request.app.state.metrics.events
    admission = access.ingest.admission
    try:
        admission.check(EVERYONE)
        with admission.hold() as hold, engine_errors():
            body = await read_body(access.request, access.settings, hold, takes=None)
            outcome = await _stored(access, await _read(access, body, hold), body)
    except (problems.Problem, CalibrationInputError) as error:
        counters.labels("shed" if isinstance(error, problems.RetryLater) else "refused").inc()
        raise
    counters.labels(outcome["outcome"]).inc()
    return Response(orjson.dumps(outcome), media_type="application/json")


async def _read(access: Access, body: Body, hold: Hold) -> events.Event:
    n_bytes = hold.n_bytes

    def reserve(n_decoded: int) -> None:
        from_thread.run_sync(hold.reach, n_bytes + n_decoded)

    headers = {name.lower(): text for name, text in access.request.headers.items()}
    return await in_thread(events.read_event, headers, body.data, access.settings, reserve)


async def _stored(access: Access, event: events.Event, body: Body) -> dict[str, Any]:
    """Store what an event holds; return the body of the response."""
    if event.why_skipped is not None:
        return _outcome("skipped", event.why_skipped)
    model = check_name(access.query.model or event.model or "", "/inferenceservicename")
    if not access.caller.may_use(model):
        raise access.caller.unknown(model)
    sender = IngestAccess(
        access.ingest, access.request, access.caller, model, deadline_s=STORE_DEADLINE_S
    )
    if event.kind == events.FEEDBACK:
        labels = events.feedback_labels(event, access.settings)
        if labels is None:
            return _outcome("skipped", "the feedback has no truth")
        return _outcome(
            "accepted", batch=receipt_body(model, await sender.append(labels, load_labels))
        )
    config = await sender.known_config()
    if config is None:
        raise problems.ModelUnknown(
            f"There is no model {model!r}: declare it, with its setting `cloudevents`."
        )
    found: events.Inputs | None = {}
    if _declared_by(config).inputs:
        event, found = await _joined(access, event, config)
        if found is None:
            return _outcome("waiting")
    elif event.kind != events.RESPONSE:
        return _outcome("skipped", "the model declares no value of requests")
    data = Body("", event.data if isinstance(event.data, bytes) else body.data)
    receipt = await sender.append(data, partial(_predictions, event, found or {}))
    return _outcome("accepted", batch=receipt_body(model, receipt))


def _outcome(outcome: str, reason: str | None = None, **batch: Any) -> dict[str, Any]:
    return {"outcome": outcome, "reason": reason, **batch}


async def _joined(
    access: Access, event: events.Event, config: ModelConfig
) -> tuple[events.Event, events.Inputs | None]:
    """Return the response and the inputs of its request; None if one of them has not come."""
    is_response = event.kind == events.RESPONSE
    inputs = None
    if not is_response:
        inputs = events.event_inputs(event, _declared_by(config), access.settings)
    half = _packed(event) if inputs is None else orjson.dumps(inputs)
    if len(half) > MAX_HALF_BYTES:
        raise problems.BodyTooLarge(
            f"Received {len(half)} bytes to join with the other event; expected at most {MAX_HALF_BYTES}. Name units "
            "and slices by headers instead of inputs."
        )
    halves = access.inbox.event_halves
    try:
        other = await halves.exchange(config, event.batch_id, is_response, half)
    except HalvesFull as error:
        detail = "Too many events wait for their request or response. Send this event again later."
        raise problems.BacklogFull(detail, retry_after_s=error.retry_after_s) from error
    if other is None:
        return event, None
    return (event, orjson.loads(other)) if inputs is None else (_unpacked(other), inputs)


def _predictions(
    event: events.Event, inputs: events.Inputs, _: Body, context: IngestContext
) -> IngestBatch:
    if context.config is None:
        raise problems.ModelUnknown()
    declared = _declared_by(context.config)
    return prediction_batch(
        events.event_columns(event, declared, inputs, context.settings), context
    )


def _declared_by(config: ModelConfig) -> events.CloudEventSettings:
    if config.cloudevents is None:
        detail = (
            "Received an event of a model that does not declare how to read it. Set `cloudevents` of the model, such as "
            '{"scores": "probabilities"}.'
        )
        raise invalid_input([Violation("/cloudevents", "undeclared", detail)])
    return events.CloudEventSettings.model_validate(config.cloudevents)


def _packed(event: events.Event) -> bytes:
    """Return an event as bytes."""
    data = event.data if isinstance(event.data, bytes) else orjson.dumps(event.data)
    encoded = base64.b64encode(data).decode()
    return orjson.dumps([dict(event.attributes), dict(event.headers), encoded])


def _unpacked(packed: bytes) -> events.Event:
    attributes, headers, data = orjson.loads(packed)
    return events.Event(attributes, base64.b64decode(data), headers)
