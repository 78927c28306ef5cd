"""Parameters of requests in paths and headers: ids, preferences, preconditions, accepted media types."""

import re
from collections.abc import Sequence
from secrets import token_hex
from typing import Annotated, Any, Literal

from fastapi import Header, Path, Request
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from calibrant.core.errors import Violation
from calibrant.input.names import (
    IDENTIFIER,
    IDENTIFIER_RULE,
    MAX_LENGTH,
    NAME_RULE,
    invalid_name,
    name_of,
)
from calibrant_server.service.http.problems import InvalidName, MalformedRequest, NotAcceptable

Format = Literal["json", "svg", "png"]
ChosenFormat = Annotated[
    Format | None, Field(description="Format of the response, instead of the header Accept.")
]
MEDIA_TYPES: dict[str, str] = {
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
}
PATTERN = r"[A-Za-z0-9._:@-]{1,128}"
NO_FOLDER: Any = {"not": {"enum": [".", ".."]}}


def no_folder(text: str) -> str:
    """Return an id unchanged; reject it if a path cannot end in it."""
    if IDENTIFIER.fullmatch(text):
        return text
    raise PydanticCustomError(
        "string_folder",
        "Received . or ..; expected another id: clients resolve them as path segments",
    )


def _in_path(what: str) -> Any:
    return Path(
        description=f"{what}: {IDENTIFIER_RULE}",
        pattern=f"^{PATTERN}$",
        json_schema_extra=NO_FOLDER,
    )


Name = Annotated[
    str, Field(pattern=f"^{PATTERN}$", json_schema_extra=NO_FOLDER), AfterValidator(no_folder)
]


def text_name(value: Any) -> str:
    """Return the name that a value states: any text of one line, or an integer."""
    found = name_of(value)
    if found is None:
        raise PydanticCustomError("name", "{detail}", {"detail": invalid_name(value)})
    return found


def slice_key(value: Any) -> str:
    """Return the key of a slice: a name without a colon, which separates key and value."""
    found = text_name(value)
    if ":" in found:
        detail = "received a key with a colon; expected none: a colon separates key and value"
        raise PydanticCustomError("name", detail)
    return found


_TEXT: Any = {"type": "string", "minLength": 1, "maxLength": MAX_LENGTH}
# Names of units, cases, ids, raters and slices, as people have them.
TextName = Annotated[
    str,
    BeforeValidator(text_name),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "integer"}]}),
]


def not_blank(name: str) -> str:
    """Return a name unchanged; reject one of spaces alone."""
    if name.isspace():
        raise PydanticCustomError(
            "name", "received a text of spaces; expected a name that can be read"
        )
    return name


# Names that only people read.
ReadName = Annotated[TextName, AfterValidator(not_blank)]
SliceKey = Annotated[str, BeforeValidator(slice_key), WithJsonSchema(_TEXT)]
ModelId = Annotated[str, _in_path("Model id"), AfterValidator(no_folder)]
BatchId = Annotated[str, _in_path("Batch id"), AfterValidator(no_folder)]
PredictionId = Annotated[
    str,
    Path(description=f"Prediction id, encoded: {NAME_RULE}"),
    BeforeValidator(text_name),
    WithJsonSchema(_TEXT),
]
SourceName = Annotated[str, _in_path("Source"), AfterValidator(no_folder)]
BaselineName = Annotated[str, _in_path("Baseline"), AfterValidator(no_folder)]


def check_name(name: str, pointer: str) -> str:
    """Return `name` if it satisfies the rule for ids."""
    if IDENTIFIER.fullmatch(name):
        return name
    shown = name if len(name) <= 40 else name[:40] + "…"
    detail = f"Received id {shown!r}; expected {IDENTIFIER_RULE}"
    raise InvalidName(detail, errors=[Violation(pointer, "id", detail)])


# Routes read these from the request; they are declared here for the API document.
Prefer = Annotated[
    str | None, Header(description="`wait=S`, at most 60 seconds (RFC 7240).", examples=["wait=10"])
]
IdempotencyKey = Annotated[
    str | None, Header(description="The same as `batch_id`; equal to it where both are sent.")
]
IfNoneMatch = Annotated[str | None, Header(description="An ETag that the client has.")]
IfMatch = Annotated[str | None, Header(description="The ETag of the version to change, or `*`.")]

MAX_WAIT_S = 60
WAIT = re.compile(r"wait\s*=\s*\"?(\d{1,9})\"?", re.IGNORECASE)
TAG = re.compile(r'(W/)?("[^"]*")')


def header_values(request: Request, name: str) -> list[str]:
    """Return all values of a header. Faster than by way of all headers, which each request would build again."""
    wanted = name.lower().encode("latin-1")
    return [value.decode("latin-1") for found, value in request.scope["headers"] if found == wanted]


def only(request: Request, name: str) -> str | None:
    """Return the value of a header; none if it is absent.

    Raises
    ------
    MalformedRequest
        The header is present more than once: all values but one would be ignored.
    """
    values = header_values(request, name)
    if len(values) > 1:
        detail = f"Received header {name} {len(values)} times; expected 1. Send it once."
        raise MalformedRequest(detail, errors=[Violation(f"/{name}", "repeated_header", detail)])
    return values[0] if values else None


def preferred_wait(request: Request) -> int | None:
    """Return the seconds of `Prefer: wait=S` (RFC 7240), at most 60; none if it is absent.

    A preference that cannot be parsed is ignored, as the RFC requires.
    """
    for header in header_values(request, "prefer"):
        for preference in header.split(","):
            found = WAIT.fullmatch(preference.split(";")[0].strip())
            if found:
                return min(int(found[1]), MAX_WAIT_S)
    return None


def entity_tags(request: Request, header: str) -> list[str] | None:
    """Return the tags of If-Match or If-None-Match; none if the header is absent; `*` is returned as it is.

    A weak tag names no version that could be changed: If-Match ignores it (RFC 9110, section 13.1.1).
    """
    values = request.headers.getlist(header)
    if not values:
        return None
    joined = ",".join(values)
    if joined.strip() == "*":
        return ["*"]
    return [tag for weak, tag in TAG.findall(joined) if not weak or header != "if-match"]


def names(tags: list[str] | None, etag: str) -> bool:
    """Return whether these tags include the state of `etag`."""
    return tags is not None and (tags == ["*"] or etag in tags)


def media_type_of(
    format: Format | None, request: Request, offers: Sequence[str] = (*MEDIA_TYPES.values(),)
) -> str:
    """Return the requested format: the query's, else the one of the header Accept."""
    return MEDIA_TYPES[format] if format else negotiated(request, offers)


def negotiated(request: Request, offers: Sequence[str]) -> str:
    """Return the offer with the highest weight in the header Accept; the first of equals."""
    accept = ",".join(request.headers.getlist("accept"))
    if not accept.strip():
        return offers[0]
    ranges = [_media_range(part) for part in accept.split(",") if part.strip()]
    quality = {offer: _quality(offer, ranges) for offer in offers}
    best = max(offers, key=lambda offer: quality[offer])
    if quality[best] <= 0:
        raise NotAcceptable(
            f"Received an Accept header without a supported media type; expected one of {', '.join(offers)}."
        )
    return best


def _media_range(text: str) -> tuple[str, float]:
    media, *parameters = (part.strip().lower() for part in text.split(";"))
    weights = [part[2:] for part in parameters if part.startswith("q=")]
    try:
        return media, float(weights[0]) if weights else 1.0
    except ValueError:
        return media, 1.0


def _quality(offer: str, ranges: list[tuple[str, float]]) -> float:
    """Return the weight of `offer` in the most specific matching range."""
    family = offer.split("/")[0] + "/*"
    for name in (offer, family, "*/*"):
        weights = [weight for media, weight in ranges if media == name]
        if weights:
            return max(weights)
    return 0.0


def agreed_batch_id(in_body: str | None, in_header: str | None) -> str:
    """Return the id of a batch: from the body or Idempotency-Key, which must be equal, else a new one."""
    if in_header is not None:
        in_header = check_name(_unquoted(in_header), "/Idempotency-Key")
    if in_body is not None:
        check_name(in_body, "/batch_id")
    if in_body is not None and in_header is not None and in_body != in_header:
        detail = f"Received batch_id {in_body!r} and header Idempotency-Key {in_header!r}; expected equal values. Send one of them."
        raise InvalidName(detail, errors=[Violation("/batch_id", "same_id", detail)])
    return in_body or in_header or f"b.{token_hex(16)}"


def _unquoted(key: str) -> str:
    """Return a key without the quotes of structured headers."""
    return key[1:-1] if len(key) >= 2 and key[0] == key[-1] == '"' else key
