"""CloudEvents 1.0 of loggers of inference servers: read from a request, and their content as columns of predictions or as labels.

Sources: `cloudevents/spec`, `http-protocol-binding.md`; `kserve/kserve`, `pkg/logger/worker.go`; `SeldonIO/seldon-core`,
`proto/prediction.proto` and `executor/logger/worker.go`. KServe sends a response under the content type of the request, so no content type of
data is believed: bytes are JSON, JSON with tensors behind it, or gzip, which their first bytes show. Scores are declared, since logits cannot be
distinguished from probabilities by their range. Seldon's feedback names its request; its reward is a number of the caller's choice, not a label.
"""

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from calibrant.contrib.open_inference import Inference, decode, seldon_classes
from calibrant.core.errors import CalibrationInputError
from calibrant.input.names import fitted
from calibrant_server.service.http.bodies import JSON, Body
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.parameters import Name
from calibrant_server.service.http.problem_responses import validated
from calibrant_server.service.http.problems import BodyTooLarge, MediaTypeUnsupported, ModelUnknown
from calibrant_server.service.ingest.batches import prediction_batch
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, object_of
from calibrant_server.service.ingest.service import IngestContext
from calibrant_server.service.settings import Settings
from calibrant_server.workers.ingest.entries import IngestBatch
from calibrant_server.workers.store.model_config import ModelConfig

STRUCTURED = "application/cloudevents+json"
PREFIX, PREDICTOR = "ce-", "predictor"
REQUEST, RESPONSE, FEEDBACK = "request", "response", "feedback"
TYPES = {
    f"{beginning}.inference.{kind}": kind
    for beginning in ("org.kubeflow.serving", "io.seldon.serving")
    for kind in (REQUEST, RESPONSE)
} | {"io.seldon.serving.feedback": FEEDBACK}
Attribute = Annotated[str, Field(max_length=8192)]  # KServe puts headers of the request into one
Reference = Annotated[str, Field(pattern=r"^(event|header|input|output):[^\s:]{1,120}$|^body:id$")]
Inputs = Mapping[str, list[str]]
NO_INPUTS: Inputs | None = {}
error = CalibrationInputError.at


class EventBody(BaseModel):
    """A structured CloudEvent; binary ones have the attributes as headers `Ce-*`."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[Attribute, WithJsonSchema({})]]

    specversion: Literal["1.0"]
    id: Attribute = Field(min_length=1)
    source: Attribute = Field(min_length=1)
    type: Attribute = Field(min_length=1)
    time: Attribute | None = Field(None, description="RFC 3339: the event time of the predictions.")
    namespace: Attribute | None = None
    inferenceservicename: Attribute | None = None
    data: Any = Field(None, description="Body of the inference server, version 1 or 2.")
    data_base64: str | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """Return attributes and extensions by name."""
        return self.model_dump(exclude={"data", "data_base64"}, exclude_none=True)

    @property
    def kind(self) -> str | None:
        """Return `request`, `response` or `feedback`; None for other types."""
        return TYPES.get(self.type)

    @property
    def model(self) -> str | None:
        """Return `<namespace>.<inference service>`; None if the event names no service."""
        namespace, service = self.namespace, self.inferenceservicename
        return f"{namespace}.{service}" if service and namespace else service

    @property
    def why_skipped(self) -> str | None:
        """Return why the event holds nothing to store; None if it does."""
        if self.kind is None:
            return f"type {self.type[:100]!r} is not one of {', '.join(TYPES)}"
        component = self.attributes.get("component", PREDICTOR)
        return None if component == PREDICTOR else f"component {component[:100]!r} is no predictor"

    @property
    def batch_id(self) -> str:
        """Return the same id for every delivery of an event: source and id identify it."""
        identity = [self.source, self.id]
        # Seldon's feedback may have the id of the request that it is about.
        parts = orjson.dumps([*identity, FEEDBACK] if self.kind == FEEDBACK else identity)
        return f"ce.{blake2b(parts, digest_size=16).hexdigest()}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the inference request in KServe's `metadata`, by lower-case name: the first value of each."""
        found: Any = None
        with suppress(orjson.JSONDecodeError):  # another logger's, of another form
            found = orjson.loads(self.attributes.get("metadata", "{}"))
        listed = found if isinstance(found, dict) else {}
        first = {
            name: each[0] if type(each) is list and each else each for name, each in listed.items()
        }
        return {name.lower(): each for name, each in first.items() if isinstance(each, str)}

    @property
    def structured(self) -> bytes:
        """Return the event in the structured form, which `read_event` reads."""
        encoded = base64.b64encode(self.data).decode()
        return orjson.dumps({**self.attributes, "data_base64": encoded})

    def body(self, settings: Settings) -> Inference:
        """Return the arrays in the data."""
        return decode(self.data, loads=lambda data: read_json(data, settings.max_objects))


class CloudEventSettings(BaseModel):
    """How CloudEvents of an inference server become predictions.

    A reference names a value: `event:NAME` an attribute of the event, `header:NAME` a header in its attribute `metadata`,
    `body:id` the id of a version 2 body, `output:NAME` or `input:NAME` a tensor of the response or request with one value
    per row. With an input, response and request are joined by their id.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    scores: Literal["probabilities", "logits", "confidences"] = Field(
        description="Content of the output."
    )
    output: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None,
        description="Tensor, or member of a prediction, with the scores. Default: the only one.",
    )
    ids: Reference = Field(
        "event:id",
        description="Ids of predictions. One value per event is followed by `:` and the row.",
    )
    units: Reference | None = None
    slices: dict[Name, Reference] = Field({}, max_length=16)

    @property
    def inputs(self) -> set[str]:
        """Return the names of the tensors of a request that are needed."""
        references = (self.ids, self.units or "", *self.slices.values())
        found = (each.partition(":") for each in references)
        return {name for kind, _, name in found if kind == "input"}


def read_event(headers: Mapping[str, str], body: bytes, settings: Settings) -> EventBody:
    """Return the event of a request.

    Raises
    ------
    Problem
        415 for what is no single event, 400 for damaged bytes, 413 for too many.
    CalibrationInputError
        A required attribute is missing or invalid.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == STRUCTURED:
        document = object_of(read_json(body, settings.max_objects))
        data = _data_of(document.pop("data", None), document.pop("data_base64", None))
        attributes = {
            name: each if isinstance(each, str) else orjson.dumps(each).decode()
            for name, each in document.items()
        }
    elif f"{PREFIX}specversion" in headers:
        names = (name for name in headers if name.startswith(PREFIX))
        attributes = {name.removeprefix(PREFIX): unquote(headers[name]) for name in names}
        data = body
    else:
        raise MediaTypeUnsupported(
            f"Received {media_type or 'no Content-Type'} without the header Ce-Specversion; expected a CloudEvent: "
            f"{STRUCTURED}, or headers Ce-* with the data as body."
        )
    return validated(EventBody, {**attributes, "data": data})


def _data_of(data: Any, encoded: Any) -> bytes:
    if encoded is None:
        return data.encode() if isinstance(data, str) else orjson.dumps(data)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise error("/data_base64", "base64", "Received data that is not base64.") from None


def declared_by(config: ModelConfig | None, model: str) -> CloudEventSettings:
    """Return how events of a model are read."""
    if config is None:
        raise ModelUnknown(
            f"There is no model {model!r}: declare it, with its setting `cloudevents`."
        )
    if config.cloudevents is None:
        detail = (
            "Received an event of a model that does not declare how to read it. Set `cloudevents` of the model, such as "
            '{"scores": "probabilities"}.'
        )
        raise error("/cloudevents", "undeclared", detail)
    return CloudEventSettings.model_validate(config.cloudevents)


def event_inputs(event: EventBody, declared: CloudEventSettings, settings: Settings) -> Inputs:
    """Return the declared inputs of a request, one text per row."""
    body, names = event.body(settings), sorted(declared.inputs)
    return {name: body.texts(name, f"/cloudevents/input/{name}") for name in names}


def event_batch(event: EventBody, inputs: Inputs, _: Body, context: IngestContext) -> IngestBatch:
    """Return the predictions in a response.

    `inputs` are those of the request of the same id.

    Raises
    ------
    CalibrationInputError, BodyTooLarge
        The output, or a declared value, is missing or of another form; more rows than a batch may have.
    """
    declared, body = declared_by(context.config, context.model), event.body(context.settings)
    name, scores = _scores(body, declared)
    n_rows, most = len(scores), context.settings.max_rows
    if n_rows > most:
        raise BodyTooLarge(f"Received an event of {n_rows} rows; expected at most {most}.")
    of_event: dict[str, Mapping[str, str | None]] = {
        "event": event.attributes,
        "header": event.headers,
        "body": {"id": body.id},
    }

    def column(reference: str, of_row: str = "{0}") -> list[str]:
        kind, _, name = reference.partition(":")
        pointer = f"/cloudevents/{kind}/{name}"
        if kind == "output":
            values = body.texts(name, pointer)
        elif kind == "input":
            values = inputs[name]
        else:
            value = of_event[kind].get(name.lower())
            if value is None:
                detail = f"Received no {reference}; the model declares it. Send it, or change its setting `cloudevents`."
                raise error(pointer, "missing", detail)
            values = [of_row.format(value, row) for row in range(n_rows)]
        if len(values) != n_rows:
            detail = f"Received {len(values)} values of {reference}; expected {n_rows}, one per prediction."
            raise error(pointer, "length", detail)
        return [fitted(each) for each in values]

    columns: dict[str, Any] = {name: scores, "ids": column(declared.ids, "{0}:{1}")}
    if event.time is not None:
        columns["event_times"] = [event.time] * n_rows
    if declared.units is not None:
        columns["units"] = column(declared.units)
    if declared.slices:
        columns["slices"] = {key: column(each) for key, each in declared.slices.items()}
    return prediction_batch(ParsedBatch(columns, event.batch_id), context)


def _scores(body: Inference, declared: CloudEventSettings) -> tuple[str, np.ndarray[Any, Any]]:
    """Return the name of the column of scores, and its values."""
    name = declared.output or (next(iter(body.tensors)) if len(body.tensors) == 1 else "")
    pointer = f"/outputs/{name[:60]}" if name in body.tensors else "/cloudevents/output"
    most = 1 if declared.scores == "confidences" else 2
    scores = body.numbers(name, pointer, most).astype(np.float64)
    if scores.ndim == 2:
        return declared.scores, scores
    if declared.scores != "logits":
        return "confidences", scores
    # Of class 1 against class 0: softmax of (0, z) is the sigmoid of z.
    return "logits", np.stack([np.zeros_like(scores), scores], axis=1)


def feedback_labels(event: EventBody, settings: Settings) -> Body | None:
    """Return the labels in a feedback event as a body of labels; None if it has no truth.

    Raises
    ------
    CalibrationInputError
        The truth is of another form, or the event does not name its request.
    """
    document = object_of(read_json(event.data, settings.max_objects))
    truth = _object_in(document, "truth").get("data")
    if not isinstance(truth, Mapping):
        return None
    request = _object_in(_object_in(document, "response"), "meta").get("puid")
    request = request if isinstance(request, str) else event.attributes.get("requestid")
    if not request:
        detail = "Received no response.meta.puid and no attribute requestid; expected the id of the request."
        raise error("/response/meta/puid", "missing", detail)
    classes = seldon_classes(truth, "/truth/data")
    ids = [fitted(f"{request}:{row}") for row in range(len(classes))]
    return Body(JSON, orjson.dumps({"batch_id": event.batch_id, "ids": ids, "labels": classes}))


def _object_in(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}
