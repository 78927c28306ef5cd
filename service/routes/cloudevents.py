"""CloudEvents of inference servers: requests, responses and feedback that a logger or a broker delivers.

KServe's logger sends an event once. Its queue holds 100, and then inference waits: so the store has a short deadline here, and
only the status 200 counts as a success there. An event that cannot be stored now is rejected with 429 or 503 at once, which a
broker repeats.
"""

from functools import partial
from typing import Any, Literal, cast

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.http import problems
from calibrant_server.service.http.bodies import Body, content_coding, decoded, read_body
from calibrant_server.service.http.engine_errors import engine_errors
from calibrant_server.service.http.parameters import Name, check_name
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest import cloudevents as events
from calibrant_server.service.ingest.batches import load_labels
from calibrant_server.service.ingest.schemas import IngestResponse
from calibrant_server.service.ingest.service import IngestAccess, receipt_body
from calibrant_server.service.openapi.schema import success, takes
from calibrant_server.service.reads.operations import Access, Ingester, Operations
from calibrant_server.service.security.admission import EVERYONE, Hold
from calibrant_server.workers.store.model_config import ModelConfig

router = Operations("predictions")

STORE_DEADLINE_S = 1.0
GZIP = b"\x1f\x8b"


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
            event = await _read(access, hold)
            skipped = {"outcome": "skipped", "reason": event.why_skipped}
            outcome = await _stored(access, event) if event.why_skipped is None else skipped
    except (problems.Problem, CalibrationInputError) as error:
        counters.labels("shed" if isinstance(error, problems.RetryLater) else "refused").inc()
        raise
    counters.labels(outcome["outcome"]).inc()
    return Response(orjson.dumps(outcome), media_type="application/json")


async def _read(access: Access, hold: Hold) -> events.EventBody:
    request, settings = access.request, access.settings
    body = await read_body(request, settings, hold, takes=None)
    event = await in_thread(events.read_event, request.headers, body.data, settings)
    if not event.data.startswith(GZIP) or content_coding(request) is not None:
        return event
    return event.model_copy(update={"data": await decoded(event.data, "gzip", settings, hold)})


async def _stored(access: Access, event: events.EventBody) -> dict[str, Any]:
    """Store what an event holds; return the body of the response."""
    model = check_name(access.query.model or event.model or "", "/inferenceservicename")
    if not access.caller.may_use(model):
        raise access.caller.unknown(model)
    sender = IngestAccess(
        access.ingest, access.request, access.caller, model, deadline_s=STORE_DEADLINE_S
    )
    if event.kind == events.FEEDBACK:
        labels = events.feedback_labels(event, access.settings)
        if labels is None:
            return {"outcome": "skipped", "reason": "the feedback has no truth"}
        receipt = await sender.append(labels, load_labels)
    else:
        config, inputs = await sender.known_config(), events.NO_INPUTS
        declared = events.declared_by(config, model)
        if declared.inputs:
            event, inputs = await _joined(access, event, declared, cast("ModelConfig", config))
        elif event.kind != events.RESPONSE:
            return {"outcome": "skipped", "reason": "the model declares no value of requests"}
        if inputs is None:
            return {"outcome": "waiting", "reason": None}
        prepare = partial(events.event_batch, event, inputs)
        receipt = await sender.append(Body("", event.data), prepare)
    return {"outcome": "accepted", "reason": None, "batch": receipt_body(model, receipt)}


async def _joined(
    access: Access,
    event: events.EventBody,
    declared: events.CloudEventSettings,
    config: ModelConfig,
) -> tuple[events.EventBody, events.Inputs | None]:
    """Return the response and the inputs of its request; None if one of them has not come."""
    settings, exchange = access.settings, access.inbox.event_halves.exchange
    if event.kind == events.RESPONSE:
        request = await exchange(config, event.batch_id, True, event.structured)
        return event, None if request is None else orjson.loads(request)
    inputs = events.event_inputs(event, declared, settings)
    response = await exchange(config, event.batch_id, False, orjson.dumps(inputs))
    if response is None:
        return event, None
    return events.read_event({"content-type": events.STRUCTURED}, response, settings), inputs
