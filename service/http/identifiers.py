"""Ids: one rule for models, batches and predictions; the id of a request and its place in a trace.

`X-Request-Id` and `traceparent` (W3C Trace Context) of the client are accepted if they are valid; otherwise they are
created. Both are returned.
"""

import re
import secrets
import uuid
from typing import Annotated, Any

from fastapi import Path
from opentelemetry import trace
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from starlette.types import Scope

from calibrant.core.errors import Violation
from calibrant.input.name_columns import NAME, NAME_RULE
from calibrant_server.service.http.errors import InvalidName

PATTERN = r"[A-Za-z0-9._:@-]{1,128}"
REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
NO_FOLDER: Any = {"not": {"enum": [".", ".."]}}

_VALID_ID = re.compile(rb"[A-Za-z0-9._:@/+=-]{1,128}")
_VALID_PARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")


def no_folder(text: str) -> str:
    """Return an id unchanged; reject it if a path cannot end in it."""
    if NAME.fullmatch(text):
        return text
    raise PydanticCustomError(
        "string_folder",
        "Received . or ..; expected another id: clients resolve them as path segments",
    )


def _in_path(what: str) -> Any:
    return Path(
        description=f"{what}: {NAME_RULE}", pattern=f"^{PATTERN}$", json_schema_extra=NO_FOLDER
    )


Name = Annotated[
    str, Field(pattern=f"^{PATTERN}$", json_schema_extra=NO_FOLDER), AfterValidator(no_folder)
]
ModelId = Annotated[str, _in_path("Model id"), AfterValidator(no_folder)]
BatchId = Annotated[str, _in_path("Batch id"), AfterValidator(no_folder)]
PredictionId = Annotated[str, _in_path("Prediction id"), AfterValidator(no_folder)]
BaselineName = Annotated[str, _in_path("Baseline"), AfterValidator(no_folder)]


def check_name(name: str, pointer: str) -> str:
    """Return `name` if it satisfies the rule for ids."""
    if NAME.fullmatch(name):
        return name
    shown = name if len(name) <= 40 else name[:40] + "…"
    detail = f"{shown!r} breaks the rule for ids: {NAME_RULE}"
    raise InvalidName(detail, errors=[Violation(pointer, "id", detail)])


def agreed_batch_id(in_body: str | None, in_header: str | None) -> str:
    """Return the id of a batch: from the body or Idempotency-Key, which must be equal, else a new one."""
    if in_header is not None:
        in_header = check_name(_unquoted(in_header), "/Idempotency-Key")
    if in_body is not None:
        check_name(in_body, "/batch_id")
    if in_body is not None and in_header is not None and in_body != in_header:
        detail = f"Received batch_id {in_body!r} and header Idempotency-Key {in_header!r}; expected equal values. Send one of them."
        raise InvalidName(detail, errors=[Violation("/batch_id", "same_id", detail)])
    return in_body or in_header or f"b.{uuid.uuid4().hex}"


def _unquoted(key: str) -> str:
    """Return a key without the quotes of structured headers."""
    return key[1:-1] if len(key) >= 2 and key[0] == key[-1] == '"' else key


def identify(scope: Scope) -> None:
    """Give a request its id and its place in a trace."""
    sent = dict(scope["headers"])
    once = [name for name, _ in scope["headers"]].count(REQUEST_ID) == 1
    named = sent.get(REQUEST_ID, b"")
    is_valid = once and _VALID_ID.fullmatch(named)
    scope["request_id"] = named.decode() if is_valid else secrets.token_hex(16)
    scope["traceparent"] = _traceparent(sent.get(TRACEPARENT, b""))


def _traceparent(sent: bytes) -> str:
    """Return the span of this request: the one that is exported, else a new one in the client's trace."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    found = _VALID_PARENT.fullmatch(sent)
    trace_id, flags = (found[1].decode(), found[2].decode()) if found else (_trace_id(), "00")
    return f"00-{trace_id}-{secrets.token_hex(8)}-{flags}"


def _trace_id() -> str:
    return secrets.token_hex(16)


def identity_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers that name a request in its response, and its caller's limits."""
    named = ((REQUEST_ID, "request_id"), (TRACEPARENT, "traceparent"))
    limits = ((b"ratelimit", "rate_limit"), (b"ratelimit-policy", "rate_policy"))
    return [(header, scope[name].encode()) for header, name in (*named, *limits) if scope.get(name)]
