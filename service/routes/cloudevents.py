"""CloudEvents of inference servers: requests, responses and feedback that a logger or a broker delivers.

KServe's logger sends an event once. Its queue holds 100, and then inference waits: so the store has a short deadline here, and
only the status 200 counts as a success there. An event that cannot be stored now is rejected with 429 or 503 at once, which a
broker repeats.
"""

import base64
from typing import Annotated, Any, Literal

import orjson
from anyio import from_thread
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.engine import engine_errors
from calibrant_server.service.http.bodies import Body, read_body
from calibrant_server.service.http.errors import (
    BacklogFull,
    BodyTooLarge,
    ModelUnknown,
    Problem,
    RetryLater,
)
from calibrant_server.service.http.parameters import Name, check_name
from calibrant_server.service.http.problem_responses import invalid_input
from calibrant_server.service.http.threads import in_thread
from calibrant_server.service.ingest.batches import load_labels, prediction_batch
from calibrant_server.service.ingest.cloudevents import FEEDBACK, RESPONSE, Event, read_event
from calibrant_server.service.ingest.event_columns import (
    CloudEventSettings,
    Inputs,
    event_columns,
    event_inputs,
    feedback_labels,
)
from calibrant_server.service.ingest.parsed_batch import ParsedBatch
from calibrant_server.service.ingest.schemas import IngestResponse
from calibrant_server.service.ingest.service import (
    IngestAccess,
    IngestContext,
    IngestService,
    receipt_body,
)
from calibrant_server.service.openapi.schema import problems, success, takes
from calibrant_server.service.reads.operations import Access, operation
from calibrant_server.service.security.admission import EVERYONE, Hold
from calibrant_server.service.security.keys import Caller, needs
from calibrant_server.workers.ingest.entries import IngestBatch
from calibrant_server.workers.ingest.inbox import BatchReceipt
from calibrant_server.workers.store.event_halves import MAX_HALF_BYTES, HalvesFull
from calibrant_server.workers.store.model_config import ModelConfig

router = APIRouter(tags=["predictions"], default_response_class=Response)

STORE_DEADLINE_S = 1.0
Ingester = Annotated[Caller, Depends(needs("ingest"))]


class EventBody(BaseModel):
    """A structured CloudEvent; binary ones have the attributes as headers `Ce-*`."""

    model_config = ConfigDict(extra="allow")

    specversion: Literal["1.0"]
    id: str = Field(min_length=1)
    source: str = Field(min_length=1)
    type: str = Field(min_length=1)
    time: str | None = Field(None, description="RFC 3339: the event time of the predictions.")
    namespace: str | None = None
    inferenceservicename: str | None = None
    data: Any = Field(None, description="Body of the inference server, version 1 or 2.")
    data_base64: str | None = None


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


@operation(
    router,
    "POST /v1/cloudevents",
    "ingestCloudEvent",
    Ingester,
    {
        200: success(EventResponse, "The event is accepted, or contains nothing to store"),
        **problems(408, 409, 413, 415, 422, 429),
    },
    query=EventQuery,
    takes_=takes("A CloudEvent, structured or binary", cloudevents=EventBody, any_type=None),
)
async def ingest_cloud_event(access: Access) -> Response:
    """Accept a request, response or feedback of an inference server (KServe, Knative, Seldon) as CloudEvent 1.0.

    The model declares in its setting `cloudevents` which output contains the scores, and what kind of scores. Id and source make
    the batch id, so a repeated event counts once. Valid rows are accepted even if others are not. The data may be gzip,
    under any content type.
    """
    counters = access.request.app.state.metrics.events
    delivery = _Delivery(access.ingest, access.request, access.caller, access.query.model)
    try:
        found = await delivery.stored()
    except (Problem, CalibrationInputError) as error:
        counters.labels("shed" if isinstance(error, RetryLater) else "refused").inc()
        raise
    counters.labels(found["outcome"]).inc()
    return Response(orjson.dumps(found), 200, media_type="application/json")


class _Delivery:
    """One event on its way into the stream."""

    def __init__(
        self, service: IngestService, request: Request, caller: Caller, model: str | None
    ) -> None:
        self.service, self.request, self.caller, self.model = service, request, caller, model

    async def stored(self) -> dict[str, Any]:
        """Store what the event holds; return the body of the response."""
        admission = self.service.admission
        admission.check(EVERYONE)
        with admission.hold() as hold:
            body = await read_body(self.request, self.service.settings, hold, takes=None)
            event = await self._read(body, hold)
            why = event.why_skipped
            if why is not None:
                return {"outcome": "skipped", "reason": why}
            model = check_name(self.model or event.model or "", "/inferenceservicename")
            if not self.caller.may_use(model):
                raise ModelUnknown(f"There is no model {model!r} among the models of your key.")
            access = IngestAccess(
                self.service, self.request, self.caller, model, deadline_s=STORE_DEADLINE_S
            )
            if event.kind == FEEDBACK:
                return await self._labelled(access, event)
            config, declared = await self._declared(access)
            inputs: Inputs | None = {}
            if declared.inputs:
                event, inputs = await self._joined(event, config, declared)
            elif event.kind != RESPONSE:
                return {"outcome": "skipped", "reason": "the model declares no value of requests"}
            if inputs is None:
                return {"outcome": "waiting", "reason": None}
            return await self._appended(access, event, inputs, body)

    async def _read(self, body: Body, hold: Hold) -> Event:
        n_bytes = hold.n_bytes

        def reserve(n_decoded: int) -> None:
            from_thread.run_sync(hold.reach, n_bytes + n_decoded)

        headers = {name.lower(): text for name, text in self.request.headers.items()}
        return await in_thread(read_event, headers, body.data, self.service.settings, reserve)

    async def _declared(self, access: IngestAccess) -> tuple[ModelConfig, CloudEventSettings]:
        """Return the model, and how it reads events."""
        with engine_errors():
            config = await access.known_config()
        if config is None:
            raise ModelUnknown(
                f"There is no model {access.model!r}: declare it, with its setting `cloudevents`."
            )
        return config, _declared_by(config)

    async def _joined(
        self, event: Event, config: ModelConfig, declared: CloudEventSettings
    ) -> tuple[Event, Inputs | None]:
        """Return the response and the inputs of its request; None if one of them has not come."""
        is_response = event.kind == RESPONSE
        inputs = None if is_response else event_inputs(event, declared, self.service.settings)
        half = _packed(event) if inputs is None else orjson.dumps(inputs)
        if len(half) > MAX_HALF_BYTES:
            raise BodyTooLarge(
                f"Received {len(half)} bytes to join with the other event; expected at most {MAX_HALF_BYTES}. Name units "
                "and slices by headers instead of inputs."
            )
        with engine_errors():
            try:
                other = await self.service.inbox.event_halves.exchange(
                    config, event.batch_id, is_response, half
                )
            except HalvesFull as error:
                raise BacklogFull(
                    "Too many events wait for their request or response. Send this event again later.",
                    retry_after_s=error.retry_after_s,
                ) from error
        if other is None:
            return event, None
        return (event, orjson.loads(other)) if inputs is None else (_unpacked(other), inputs)

    async def _labelled(self, access: IngestAccess, event: Event) -> dict[str, Any]:
        """Append the labels in an event of feedback."""
        found = feedback_labels(event, self.service.settings)
        if found is None:
            return {"outcome": "skipped", "reason": "the feedback has no truth"}
        receipt = await access.append(found, load_labels)
        return _accepted(access, receipt)

    async def _appended(
        self, access: IngestAccess, event: Event, inputs: Inputs, body: Body
    ) -> dict[str, Any]:
        def prepare(_: Body, context: IngestContext) -> IngestBatch:
            if context.config is None:
                raise ModelUnknown()
            declared = _declared_by(context.config)
            posted: ParsedBatch = event_columns(event, declared, inputs, context.settings)
            return prediction_batch(posted, context)

        data = event.data if isinstance(event.data, bytes) else body.data
        return _accepted(access, await access.append(Body("", data), prepare))


def _accepted(access: IngestAccess, receipt: BatchReceipt) -> dict[str, Any]:
    return {"outcome": "accepted", "reason": None, "batch": receipt_body(access.model, receipt)}


def _declared_by(config: ModelConfig) -> CloudEventSettings:
    if config.cloudevents is None:
        detail = (
            "Received an event of a model that does not declare how to read it. Set `cloudevents` of the model, such as "
            '{"scores": "probabilities"}.'
        )
        raise invalid_input([Violation("/cloudevents", "undeclared", detail)])
    return CloudEventSettings.model_validate(config.cloudevents)


def _packed(event: Event) -> bytes:
    """Return an event as bytes."""
    data = event.data if isinstance(event.data, bytes) else orjson.dumps(event.data)
    return orjson.dumps(
        [dict(event.attributes), dict(event.headers), base64.b64encode(data).decode()]
    )


def _unpacked(packed: bytes) -> Event:
    attributes, headers, data = orjson.loads(packed)
    return Event(attributes, base64.b64decode(data), headers)
