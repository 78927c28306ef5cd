"""Identity of a request and its line in the log.

`X-Request-Id` and `traceparent` (W3C Trace Context) of the client are accepted if they are valid; otherwise they are
created. Both are returned.
"""

import logging
import re
import secrets
from typing import Any

from opentelemetry import trace
from starlette.types import Message, Receive, Scope

REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
MAX_PATH_CHARACTERS = 500

_VALID_ID = re.compile(rb"[A-Za-z0-9._:@/+=-]{1,128}")
_VALID_PARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")

log = logging.getLogger("service.access")


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
    """Return the headers that name a request in its response."""
    return [
        (REQUEST_ID, scope["request_id"].encode()),
        (TRACEPARENT, scope["traceparent"].encode()),
    ]


class CountedBody:
    """Receiver of a request that counts the bytes of the body as sent."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.n_bytes = 0

    async def __call__(self) -> Message:
        """Receive one message."""
        message = await self.receive()
        self.n_bytes += len(message.get("body", b""))
        return message


def log_request(scope: Scope, operation: str, status: int, seconds: float, **sizes: int) -> None:
    """Write the line of a request that has ended."""
    caller, client = scope.get("caller"), scope.get("client")
    fields: dict[str, Any] = {
        "request_id": scope["request_id"],
        "trace_id": scope["traceparent"].split("-")[1],
        "method": scope["method"],
        "path": scope["path"][:MAX_PATH_CHARACTERS],
        "operation": operation,
        "model": scope.get("path_params", {}).get("model"),
        "tenant": caller.tenant if caller else None,
        "key": caller.name if caller else None,
        "key_id": caller.key_id if caller else None,
        "client": client[0] if client else None,
        "status": status,
        "duration_ms": round(seconds * 1000, 1),
        **sizes,
    }
    log.info("request", extra=fields)
