"""CloudEvents 1.0 of loggers of inference servers: read from a request, and their content as columns of predictions or as labels.

Sources: `cloudevents/spec`, `http-protocol-binding.md`; `kserve/kserve`, `pkg/logger/worker.go`; `SeldonIO/seldon-core`,
`proto/prediction.proto` and `executor/logger/worker.go`. KServe sends a response under the content type of the request, so no content type of
data is believed: bytes are JSON, JSON with tensors behind it, or gzip, which their first bytes show. Scores are declared, since logits cannot be
distinguished from probabilities by their range. Seldon's feedback names its request; its reward is a number of the caller's choice, not a label.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field

from calibrant.contrib.open_inference import decode, seldon_array
from calibrant.core.errors import CalibrationInputError
from calibrant.input.names import fitted
from calibrant_server.service.http.bodies import JSON, Body, decoded_limit, decompressed
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.http.parameters import Name
from calibrant_server.service.http.problem_responses import validated
from calibrant_server.service.http.problems import BodyTooLarge, MediaTypeUnsupported
from calibrant_server.service.ingest.parsed_batch import ParsedBatch, object_of, some_of
from calibrant_server.service.settings import Settings

STRUCTURED = "application/cloudevents+json"
PREFIX, GZIP, PREDICTOR = "ce-", b"\x1f\x8b", "predictor"
REQUEST, RESPONSE, FEEDBACK = "request", "response", "feedback"
TYPES = {
    f"{beginning}.inference.{kind}": kind
    for beginning in ("org.kubeflow.serving", "io.seldon.serving")
    for kind in (REQUEST, RESPONSE)
} | {"io.seldon.serving.feedback": FEEDBACK}
MAX_ATTRIBUTE, MAX_HEADERS = 8192, 100  # characters: KServe puts headers of the request into one
Reference = Annotated[str, Field(pattern=r"^(event|header|input|output):[^\s:]{1,120}$|^body:id$")]
Inputs = Mapping[str, list[str]]
Tensors = Mapping[str, np.ndarray[Any, Any]]
error = CalibrationInputError.at


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


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes
    ----------
    attributes : attributes and extensions by name
    data : bytes, decompressed; or the parsed value of a structured event
    headers : headers of the inference request that the logger is configured to send, by lower-case name
    """

    attributes: Mapping[str, str]
    data: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str | None:
        """Return `request`, `response` or `feedback`; None for other types."""
        return TYPES.get(self.attributes["type"])

    @property
    def model(self) -> str | None:
        """Return `<namespace>.<inference service>`; None if the event names no service."""
        service = self.attributes.get("inferenceservicename")
        namespace = self.attributes.get("namespace")
        return f"{namespace}.{service}" if service and namespace else service

    @property
    def why_skipped(self) -> str | None:
        """Return why the event holds nothing to store; None if it does."""
        if self.kind is None:
            return f"type {self.attributes['type'][:100]!r} is not one of {', '.join(TYPES)}"
        component = self.attributes.get("component", PREDICTOR)
        return None if component == PREDICTOR else f"component {component[:100]!r} is no predictor"

    @property
    def batch_id(self) -> str:
        """Return the same id for every delivery of an event: source and id identify it."""
        identity = [self.attributes["source"], self.attributes["id"]]
        # Seldon's feedback may have the id of the request that it is about.
        parts = orjson.dumps([*identity, FEEDBACK] if self.kind == FEEDBACK else identity)
        return f"ce.{blake2b(parts, digest_size=16).hexdigest()}"


def read_event(
    headers: Mapping[str, str], body: bytes, settings: Settings, reserve: Callable[[int], None]
) -> Event:
    """Return the event of a request; `reserve` is called before decompressed bytes are made.

    Raises
    ------
    Problem
        415 for what is no single event, 400 for damaged bytes, 413 for too many.
    CalibrationInputError
        A required attribute is missing or invalid.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == STRUCTURED:
        document = object_of(_json(body, settings))
        data = _data_of(document)
        attributes = {
            name: each if isinstance(each, str) else orjson.dumps(each).decode()
            for name, each in document.items()
            if name not in ("data", "data_base64")
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
    validated(EventBody, attributes)
    for name, text in attributes.items():
        if len(text) > MAX_ATTRIBUTE:
            detail = f"Received {len(text)} characters; expected at most {MAX_ATTRIBUTE}."
            raise error(f"/{name[:60]}", "too_long", detail)
    if isinstance(data, bytes) and data.startswith(GZIP) and "content-encoding" not in headers:
        data = decompressed(data, "gzip", decoded_limit(len(data), settings), reserve)
    return Event(attributes, data, _headers_of(attributes.get("metadata")))


def _json(body: bytes, settings: Settings) -> Any:
    return read_json(body, 3 * settings.max_rows + 100)


def _data_of(document: dict[str, Any]) -> Any:
    encoded = document.get("data_base64")
    if encoded is None:
        data = document.get("data")
        return data.encode() if isinstance(data, str) else data
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise error("/data_base64", "base64", "Received data that is not base64.") from None


def _headers_of(metadata: str | None) -> dict[str, str]:
    """Return the first value of each header in the attribute `metadata` of KServe, a JSON object of lists."""
    found: Any = None
    with suppress(orjson.JSONDecodeError):  # another logger's, of another form
        found = orjson.loads(metadata or "{}")
    if not isinstance(found, dict) or len(found) > MAX_HEADERS:
        return {}
    first = {
        name.lower(): each[0] if isinstance(each, list) and each else each
        for name, each in found.items()
    }
    return {name: each for name, each in first.items() if isinstance(each, str)}


def event_inputs(event: Event, declared: CloudEventSettings, settings: Settings) -> Inputs:
    """Return the declared inputs of a request, one text per row."""
    tensors = decode(event.data or b"", loads=partial(_json, settings=settings)).tensors
    names = sorted(declared.inputs)
    return {name: _texts(tensors, name, f"/cloudevents/input/{name}") for name in names}


def event_columns(
    event: Event, declared: CloudEventSettings, inputs: Inputs, settings: Settings
) -> ParsedBatch:
    """Return the columns of a response.

    `inputs` are those of the request of the same id.

    Raises
    ------
    CalibrationInputError, BodyTooLarge
        The output, or a declared value, is missing or of another form; more rows than a batch may have.
    """
    found = decode(event.data or b"", loads=partial(_json, settings=settings))
    name, scores = _scores(found.tensors, declared, settings)
    n_rows = len(scores)

    def named(reference: str) -> str | list[str]:
        kind, _, name = reference.partition(":")
        pointer = f"/cloudevents/{kind}/{name}"
        values: dict[str, Callable[[], str | list[str] | None]] = {
            "event": lambda: event.attributes.get(name.lower()),
            "header": lambda: event.headers.get(name.lower()),
            "body": lambda: found.id,
            "output": lambda: _texts(found.tensors, name, pointer),
            "input": lambda: inputs.get(name),
        }
        value = values[kind]()
        if value is None:
            detail = f"Received no {reference}; the model declares it. Send it, or change its setting `cloudevents`."
            raise error(pointer, "missing", detail)
        if isinstance(value, list) and len(value) != n_rows:
            detail = f"Received {len(value)} values of {reference}; expected {n_rows}, one per prediction."
            raise error(pointer, "length", detail)
        return value

    def column(reference: str, of_row: str = "{0}") -> list[str]:
        value = named(reference)
        one = isinstance(value, str)
        every = [of_row.format(value, row) for row in range(n_rows)] if one else value
        return [fitted(each) for each in every]

    columns: dict[str, Any] = {name: scores, "ids": column(declared.ids, "{0}:{1}")}
    if "time" in event.attributes:
        columns["event_times"] = [event.attributes["time"]] * n_rows
    if declared.units is not None:
        columns["units"] = column(declared.units)
    if declared.slices:
        columns["slices"] = {key: column(each) for key, each in declared.slices.items()}
    return ParsedBatch(columns, event.batch_id)


def _scores(
    tensors: Tensors, declared: CloudEventSettings, settings: Settings
) -> tuple[str, np.ndarray[Any, Any]]:
    """Return the name of the column of scores, and its values."""
    name = declared.output or (next(iter(tensors)) if len(tensors) == 1 else None)
    if name is None or name not in tensors:
        detail = f"Received outputs {some_of(list(tensors))}; expected {name or 'one'}. Declare it as `cloudevents.output`."
        raise error("/cloudevents/output", "missing", detail)
    scores, place = tensors[name], f"/outputs/{name[:60]}"
    if scores.dtype.kind not in "iuf" or scores.ndim not in (1, 2):
        detail = f"Received {scores.ndim} dimensions of {scores.dtype}; expected a number, or one per class, in each row."
        raise error(place, "shape", detail)
    if len(scores) > settings.max_rows:
        detail = f"Received an event of {len(scores)} rows; expected at most {settings.max_rows}."
        raise BodyTooLarge(detail)
    scores = scores.astype(np.float64)
    scores = scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores
    if scores.ndim == 1:
        if declared.scores != "logits":
            return "confidences", scores
        # Of class 1 against class 0: softmax of (0, z) is the sigmoid of z.
        return "logits", np.stack([np.zeros_like(scores), scores], axis=1)
    if declared.scores == "confidences":
        detail = f"Received {scores.shape[1]} values per row; expected one, since confidences are declared."
        raise error(place, "shape", detail)
    return declared.scores, scores


def _texts(tensors: Tensors, name: str, pointer: str) -> list[str]:
    """Return a tensor with one whole number or string per row as texts."""
    values = tensors.get(name)
    if values is None:
        detail = f"Received tensors {some_of(list(tensors))}; expected {name} as well."
        raise error(pointer, "missing", detail)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1 or values.dtype.kind not in "iuO":
        detail = f"Received {values.ndim} dimensions of {values.dtype}; expected a string or whole number per row."
        raise error(pointer, "shape", detail)
    return [str(each) for each in values.tolist()]


def feedback_labels(event: Event, settings: Settings) -> Body | None:
    """Return the labels in a feedback event as a body of labels; None if it has no truth.

    Raises
    ------
    CalibrationInputError
        The truth is of another form, or the event does not name its request.
    """
    document = _json(event.data, settings) if isinstance(event.data, bytes) else event.data
    document = object_of(document)
    truth = _object_in(document, "truth").get("data")
    if not isinstance(truth, Mapping):
        return None
    request = _object_in(_object_in(document, "response"), "meta").get("puid")
    request = request if isinstance(request, str) else event.attributes.get("requestid")
    if not request:
        detail = "Received no response.meta.puid and no attribute requestid; expected the id of the request."
        raise error("/response/meta/puid", "missing", detail)
    classes = _classes(seldon_array(truth, "/truth/data"))
    ids = [fitted(f"{request}:{row}") for row in range(len(classes))]
    return Body(JSON, orjson.dumps({"batch_id": event.batch_id, "ids": ids, "labels": classes}))


def _classes(truth: np.ndarray[Any, Any]) -> list[int]:
    """Return the class of each row, from classes or from rows with one 1."""
    place = "/truth/data"
    if truth.dtype.kind not in "iufb" or truth.ndim not in (1, 2) or not np.isfinite(truth).all():
        detail = f"Received {truth.ndim} dimensions of {truth.dtype}; expected a class, or one 1, per row."
        raise error(place, "shape", detail)
    if truth.ndim == 2 and truth.shape[1] > 1:
        if (np.sort(truth, axis=1) != np.eye(truth.shape[1])[-1]).any():
            detail = "Received a row that is not zeros with one 1; expected the class as one 1."
            raise error(place, "one_hot", detail)
        truth = truth.argmax(axis=1)
    if (truth != np.floor(truth)).any():
        raise error(place, "integer", "Received a fraction; expected classes.")
    return [int(each) for each in truth.reshape(-1)]


def _object_in(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, Mapping) else {}
