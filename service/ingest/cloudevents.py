"""CloudEvents 1.0 over HTTP, structured and binary, of loggers of inference servers.

Sources: `cloudevents/spec`, `http-protocol-binding.md`; `kserve/kserve`, `pkg/logger/worker.go` and `handler.go`. The logger of
KServe sends a response under the content type of the request. So no content type of data is believed: bytes are JSON, JSON
with tensors behind it, or gzip, which their first bytes show.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from urllib.parse import unquote

import orjson

from calibrant.core.errors import CalibrationInputError
from calibrant_server.service.http.bodies import decoded_limit, decompressed
from calibrant_server.service.http.errors import MediaTypeUnsupported
from calibrant_server.service.http.json_bodies import read_json
from calibrant_server.service.settings import Settings

STRUCTURED = "application/cloudevents+json"
PREFIX = "ce-"
REQUEST, RESPONSE, FEEDBACK = "request", "response", "feedback"
# Of KServe and of Seldon.
TYPES = {
    f"{beginning}.inference.{kind}": kind
    for beginning in ("org.kubeflow.serving", "io.seldon.serving")
    for kind in (REQUEST, RESPONSE)
} | {"io.seldon.serving.feedback": FEEDBACK}
PREDICTOR = "predictor"
GZIP = b"\x1f\x8b"
MAX_ATTRIBUTE = 8192  # characters; KServe puts headers of the request into one
MAX_HEADERS = 100


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


def media_type_of(content_type: str) -> str:
    """Return the media type in the value of a Content-Type."""
    return content_type.partition(";")[0].strip().lower()


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
    media_type = media_type_of(headers.get("content-type", ""))
    if media_type == STRUCTURED:
        document = read_json(body, 3 * settings.max_rows + 100)
        if not isinstance(document, dict):
            raise CalibrationInputError.at(
                "", "object", "Received another type; expected an event as JSON object."
            )
        attributes, data = _attributes_of(document), _data_of(document)
    elif f"{PREFIX}specversion" in headers:
        names = (name for name in headers if name.startswith(PREFIX))
        attributes = {name.removeprefix(PREFIX): unquote(headers[name]) for name in names}
        data = body
    else:
        raise MediaTypeUnsupported(
            f"Received {media_type or 'no Content-Type'} without the header Ce-Specversion; expected a CloudEvent: "
            f"{STRUCTURED}, or headers Ce-* with the data as body."
        )
    _check(attributes)
    if isinstance(data, bytes) and data.startswith(GZIP) and "content-encoding" not in headers:
        data = decompressed(data, "gzip", decoded_limit(len(data), settings), reserve)
    return Event(attributes, data, _headers_of(attributes.get("metadata")))


def _attributes_of(document: dict[str, Any]) -> dict[str, str]:
    found = {name: each for name, each in document.items() if name not in ("data", "data_base64")}
    texts = {name: each for name, each in found.items() if isinstance(each, str)}
    return texts | {
        name: orjson.dumps(each).decode() for name, each in found.items() if name not in texts
    }


def _data_of(document: dict[str, Any]) -> Any:
    encoded = document.get("data_base64")
    if encoded is None:
        data = document.get("data")
        return data.encode() if isinstance(data, str) else data
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise CalibrationInputError.at(
            "/data_base64", "base64", "Received data that is not base64."
        ) from None


def _check(attributes: Mapping[str, str]) -> None:
    if attributes.get("specversion") != "1.0":
        given = attributes.get("specversion", "none")[:20]
        raise CalibrationInputError.at(
            "/specversion", "specversion", f"Received {given}; expected version 1.0."
        )
    for name in ("id", "source", "type"):
        if not attributes.get(name):
            raise CalibrationInputError.at(
                f"/{name}", "missing", f"Received no attribute {name}; expected one."
            )
    for name, text in attributes.items():
        if len(text) > MAX_ATTRIBUTE:
            detail = f"Received {len(text)} characters; expected at most {MAX_ATTRIBUTE}."
            raise CalibrationInputError.at(f"/{name[:60]}", "too_long", detail)


def _headers_of(metadata: str | None) -> dict[str, str]:
    """Return the first value of each header in the attribute `metadata` of KServe, a JSON object of lists."""
    if metadata is None:
        return {}
    try:
        found = orjson.loads(metadata)
    except orjson.JSONDecodeError:
        return {}  # another logger's, of another form
    if not isinstance(found, dict) or len(found) > MAX_HEADERS:
        return {}
    lists = {name.lower(): each for name, each in found.items()}
    lists = {name: [each] if isinstance(each, str) else each for name, each in lists.items()}
    return {
        name: each[0]
        for name, each in lists.items()
        if isinstance(each, list) and each and isinstance(each[0], str)
    }
