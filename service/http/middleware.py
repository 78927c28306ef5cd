"""Middleware of every request: id and trace, check of the path, conditional GET, security headers, log line, metrics.

`X-Request-Id` and `traceparent` (W3C Trace Context) of the client are accepted if they are valid; otherwise they are
created. Both are returned.

A client that watches a model repeats a request with the ETag that it has. If the same request was valid before, one read
of the store shows whether its response has changed: then the response is 304. In every other case, and on any error, the
request is routed. Batches are taken before the router too (`service/reads/direct.py`).

A JSON response needs nothing, so its security policy allows nothing. Figures and reports carry their own
styles: under that policy a browser would show figures in black.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, MutableMapping, Sequence
from secrets import token_hex
from typing import Any

import orjson
from opentelemetry import trace
from prometheus_client import Counter, Histogram
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calibrant.core.errors import Violation
from calibrant_server.service.http.problems import (
    InternalError,
    InvalidName,
    Problem,
    StoreUnavailable,
)
from calibrant_server.service.http.prometheus import RequestLog, ServiceMetrics
from calibrant_server.service.reads.service import ReadService
from calibrant_server.service.security.audit import record
from calibrant_server.workers.ingest import inbox_errors

log = logging.getLogger("service.access")

REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
_VALID_ID = re.compile(rb"[A-Za-z0-9._:@/+=-]{1,128}")
_VALID_PARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")
_OF_PREDICTION = re.compile(rb"/v1/models/[^/]+/predictions/[^/]+")
Headers = list[tuple[bytes, bytes]]
# Images and pages that carry their own styles.
SVG = b"image/svg+xml"
STYLED = (SVG, b"text/html")
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}
CORS_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
CORS_REQUEST_HEADERS = (
    "Accept", "Authorization", "Content-Encoding", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match",
    "Prefer", "Traceparent", "X-Request-Id",
)  # fmt: skip
CORS_RESPONSE_HEADERS = (
    "Content-Disposition", "ETag", "Link", "Location", "Preference-Applied", "Retry-After", "Traceparent", "X-Request-Id",
)  # fmt: skip
# Served before the store was reached for the first time.
WITHOUT_STORE = frozenset(("/livez", "/version"))
NOT_REACHED = "The service has started and waits for the store, which cannot be reached yet."
CONDITION, PREFERENCE = b"if-none-match", b"prefer"

# Tags of routes that return a result.
RESULTS = frozenset(
    ("metrics", "reliability", "temperature", "maps", "drift", "cases", "raters", "stability")
)


class RequestMiddleware:
    """Outermost layer of the app; independent of the subject of a request."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServiceMetrics,
        log_requests: bool,
        security: SecurityHeaders,
        direct: Callable[[Scope], ASGIApp | None],
    ) -> None:
        self.app = app
        self.direct = direct
        self.security = security
        self.metrics = metrics
        self.log_requests = log_requests
        self._log = RequestLog()
        # Counter and histogram of each operation and status: to find them by their labels takes longer than to count.
        self._counters: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = time.perf_counter()
        identify(scope)
        received = CountedBody(receive)
        response = ResponseWriter(
            send, scope, self.security, received, without_body=scope["method"] == "HEAD"
        )
        if response.without_body:
            scope = {**scope, "method": "GET"}  # HEAD is supported wherever GET is
        try:
            if scope["app"].state.connection is None and scope["path"] not in WITHOUT_STORE:
                await _reject(StoreUnavailable(NOT_REACHED, retry_after_s=2), scope, response)
            elif _hides_slash(scope):
                await _reject(_slash(), scope, response)
            else:
                await self._served(scope, received, response)
        except Exception:
            log.exception("request_failed", extra={"request_id": scope["request_id"]})
            if response.status is not None:
                raise  # a part of the response was sent: closing the connection shows that it is incomplete
            await _reject(InternalError(), scope, response)
        finally:
            scope["app"].state.served.leave(scope)
            sizes = {"request_bytes": received.n_bytes, "response_bytes": response.n_bytes}
            self._note(scope, response.status or 499, time.perf_counter() - started, sizes)

    async def _served(self, scope: Scope, receive: Receive, response: ResponseWriter) -> None:
        is_read = scope["method"] == "GET"
        early = await not_modified(scope) if is_read else self.direct(scope)
        await (early or self.app)(scope, receive, response)

    def _note(self, scope: Scope, status: int, seconds: float, sizes: dict[str, int]) -> None:
        route = scope.get("route")
        names = (getattr(route, "operation_id", None), getattr(route, "name", None), "unmatched")
        operation = next(filter(None, names))
        counters = self._counters.get((operation, status))
        if counters is None:
            requests = self.metrics.requests.labels(operation, str(status))
            counters = requests, self.metrics.seconds.labels(operation)
            self._counters[operation, status] = counters
        counters[0].inc()
        counters[1].observe(seconds)
        if operation.startswith("ingest"):
            self.metrics.ingest_seconds.observe(seconds)
        elif not RESULTS.isdisjoint(getattr(route, "tags", ())):
            self.metrics.query_seconds.observe(seconds)
        if self.log_requests:
            self._log.note(scope, operation, status, seconds, **sizes)


class ResponseWriter:
    """Sender of messages that adds security headers and records the status; changes are in the audit log before it sends."""

    def __init__(
        self,
        send: Send,
        scope: Scope,
        security: SecurityHeaders,
        received: CountedBody,
        without_body: bool = False,
    ) -> None:
        self.send = send
        self.scope = scope
        self.security = security
        self.received = received
        self.without_body = without_body
        self.status: int | None = None
        self.n_bytes = 0
        self.is_replaced = False
        self.is_complete = False

    async def __call__(self, message: Message) -> None:
        """Send one message."""
        if self.is_replaced or self.is_complete:
            return
        if message["type"] == "http.response.start":
            problem = await record(self.scope, message["status"]) if "audit" in self.scope else None
            if problem is not None:
                await _reject(problem, self.scope, self)
                self.is_replaced = True
                return
            self.status = message["status"]
            most = self.scope["app"].state.settings.max_body_bytes
            await self.received.drain(self.scope, self.status, most)
            headers = [*message.get("headers", []), *identity_headers(self.scope)]
            message = {**message, "headers": self.security.added_to(headers)}
        self.n_bytes += len(message.get("body", b""))
        await self.send(message)
        if self.without_body:
            # The end of the response also ends a stream: to HEAD, what it sends is of no use.
            self.is_complete = True
            await self.send({"type": "http.response.body", "body": b""})


def _hides_slash(scope: MutableMapping[str, Any]) -> bool:
    """Return whether an id in the path contains an encoded slash, which routing would treat as a real one.

    The id of a prediction is the rest of its path, and may have one.
    """
    raw = (scope.get("raw_path") or b"").split(b"?")[0].lower()
    if not raw.startswith(b"/v1/") or b"%2f" not in raw:
        return False
    return b"%2f" in (raw.rpartition(b"/")[0] if _OF_PREDICTION.fullmatch(raw) else raw)


def _slash() -> InvalidName:
    rule = Violation("/model", "id", InvalidName.message())
    return InvalidName("An id in the path holds a slash. " + rule.detail, errors=[rule])


async def _reject(problem: Problem, scope: Scope, send: Send) -> None:
    headers = [(b"content-type", b"application/problem+json")]
    headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    body = orjson.dumps(problem.body(scope["path"], scope["request_id"]))
    await send({"type": "http.response.body", "body": body})


async def not_modified(scope: Scope) -> ASGIApp | None:
    """Return the 304 for a GET whose response is unchanged; None if it must be routed."""
    sent = {name for name, _ in scope["headers"]}
    if CONDITION not in sent or PREFERENCE in sent:
        return None
    reads: ReadService = scope["app"].state.reads
    try:
        return await reads.unchanged(Request(scope))
    except (Problem, inbox_errors.StoreUnavailableError):
        return None


def identify(scope: Scope) -> None:
    """Give a request its id and its place in a trace."""
    sent = dict(scope["headers"])
    once = [name for name, _ in scope["headers"]].count(REQUEST_ID) == 1
    named = sent.get(REQUEST_ID, b"")
    is_valid = once and _VALID_ID.fullmatch(named)
    new = token_hex(40)
    scope["request_id"] = named.decode() if is_valid else new[:32]
    scope["traceparent"] = _traceparent(sent.get(TRACEPARENT, b""), new[32:64], new[64:])


def _traceparent(sent: bytes, new_trace: str, new_span: str) -> str:
    """Return the span of this request: the one that is exported, else a new one in the client's trace, or in a new one."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    found = _VALID_PARENT.fullmatch(sent)
    trace_id, flags = (found[1].decode(), found[2].decode()) if found else (new_trace, "00")
    return f"00-{trace_id}-{new_span}-{flags}"


def identity_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the headers that name a request in its response, and its caller's limits."""
    named = ((REQUEST_ID, "request_id"), (TRACEPARENT, "traceparent"))
    limits = ((b"ratelimit", "rate_limit"), (b"ratelimit-policy", "rate_policy"))
    return [(header, scope[name].encode()) for header, name in (*named, *limits) if scope.get(name)]


class SecurityHeaders:
    """Headers that every response gets unless its route sets them.

    Parameters
    ----------
    allowed_origins : origins of pages that may read and embed responses
    """

    def __init__(self, allowed_origins: Sequence[str] = ()) -> None:
        ancestors = b"frame-ancestors " + (" ".join(allowed_origins).encode() or b"'none'")
        resources = b"cross-origin" if allowed_origins else b"same-origin"
        # What is due to a response without styles and with its own, once for all responses.
        self._due = {
            is_styled: (
                *HEADERS.items(),
                (
                    b"content-security-policy",
                    b"default-src 'none';"
                    + (b" style-src 'unsafe-inline'; " if is_styled else b" ")
                    + ancestors,
                ),
                (b"cross-origin-resource-policy", resources),
            )
            for is_styled in (False, True)
        }

    def added_to(self, headers: Headers) -> Headers:
        """Return the headers of a response with those that it lacks."""
        present = {name.lower(): value for name, value in headers}
        due = self._due[_is_styled(present)]
        return [*headers, *(each for each in due if each[0] not in present)]


def _is_styled(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower() in STYLED


# Bytes of a body whose sender is not known, and the time for any.
MAX_UNKNOWN_BYTES = 1024 * 1024
DRAIN_S = 10.0
# Headers of a request with a body.
_ANNOUNCES = (b"content-length", b"transfer-encoding")
# Too large, too many: here the rest of the body is what is rejected.
_UNDRAINED = frozenset((413, 429))


class CountedBody:
    """Receiver of a request that counts the bytes of the body as sent, and knows whether all have arrived."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.n_bytes = 0
        self.is_complete = False

    async def __call__(self) -> Message:
        """Receive one message."""
        message = await self.receive()
        self.n_bytes += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)
        return message

    async def drain(self, scope: Scope, status: int, max_bytes: int) -> None:
        """Receive what is left of the body of a rejected request, within bounds of bytes and time."""
        if self.is_complete or not 400 <= status < 500 or status in _UNDRAINED:
            return
        sent = {name for name, _ in scope["headers"]}
        if sent.isdisjoint(_ANNOUNCES) or b"expect" in sent:
            return  # there is no body, or the client waits for permission to send it
        limit = max_bytes if "caller" in scope else MAX_UNKNOWN_BYTES
        try:
            async with asyncio.timeout(DRAIN_S):
                while not self.is_complete and self.n_bytes <= limit:
                    await self()
        except TimeoutError:
            return
