"""Middleware of every request: identity, check of the path, conditional GET, security headers, log line, metrics."""

import logging
import time
from collections.abc import MutableMapping
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calibrant.core.errors import Violation
from calibrant_server.service.http.conditional_get import not_modified
from calibrant_server.service.http.errors import InternalError, InvalidName, Problem
from calibrant_server.service.http.identifiers import identify, identity_headers
from calibrant_server.service.http.prometheus import ServiceMetrics
from calibrant_server.service.http.security_headers import SecurityHeaders
from calibrant_server.service.security.audit_record import record

log = logging.getLogger("service.access")

MAX_PATH_CHARACTERS = 500

# Tags of routes that return a result.
RESULTS = frozenset(
    ("metrics", "reliability", "temperature", "maps", "drift", "cases", "raters", "stability")
)


class RequestMiddleware:
    """Outermost layer of the app; independent of the subject of a request."""

    def __init__(
        self, app: ASGIApp, meters: ServiceMetrics, log_requests: bool, security: SecurityHeaders
    ) -> None:
        self.app = app
        self.security = security
        self.meters = meters
        self.log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = time.perf_counter()
        identify(scope)
        received = CountedBody(receive)
        response = Answering(send, scope, self.security, without_body=scope["method"] == "HEAD")
        if response.without_body:
            scope = {**scope, "method": "GET"}  # HEAD is supported wherever GET is
        try:
            if _hides_slash(scope):
                await _refuse(_slash(), scope, response)
            else:
                unchanged = await not_modified(scope) if scope["method"] == "GET" else None
                await (unchanged or self.app)(scope, received, response)
        except Exception:
            log.exception("request_failed", extra={"request_id": scope["request_id"]})
            if response.status is not None:
                raise  # a part of the response was sent: closing the connection shows that it is incomplete
            await _refuse(InternalError(), scope, response)
        finally:
            scope["app"].state.served.leave(scope)
            sizes = {"request_bytes": received.n_bytes, "response_bytes": response.n_bytes}
            self._note(scope, response.status or 499, time.perf_counter() - started, sizes)

    def _note(self, scope: Scope, status: int, seconds: float, sizes: dict[str, int]) -> None:
        route = scope.get("route")
        names = (getattr(route, "operation_id", None), getattr(route, "name", None), "unmatched")
        operation = next(filter(None, names))
        self.meters.requests.labels(operation, str(status)).inc()
        self.meters.seconds.labels(operation).observe(seconds)
        if operation.startswith("ingest"):
            self.meters.ingest_seconds.observe(seconds)
        elif not RESULTS.isdisjoint(getattr(route, "tags", ())):
            self.meters.query_seconds.observe(seconds)
        if self.log_requests:
            log_request(scope, operation, status, seconds, **sizes)


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


class Answering:
    """Sender of messages that adds security headers and records the status; changes are in the audit log before it sends."""

    def __init__(
        self, send: Send, scope: Scope, security: SecurityHeaders, without_body: bool = False
    ) -> None:
        self.send = send
        self.scope = scope
        self.security = security
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
                await _refuse(problem, self.scope, self)
                self.is_replaced = True
                return
            self.status = message["status"]
            headers = [*message.get("headers", []), *identity_headers(self.scope)]
            message = {**message, "headers": self.security.added_to(headers)}
        self.n_bytes += len(message.get("body", b""))
        await self.send(message)
        if self.without_body:
            # The end of the response also ends a stream: to HEAD, what it sends is of no use.
            self.is_complete = True
            await self.send({"type": "http.response.body", "body": b""})


def _hides_slash(scope: MutableMapping[str, Any]) -> bool:
    """Tell whether an id in the path contains an encoded slash, which routing would treat as a real one."""
    raw = scope.get("raw_path") or b""
    return raw.startswith(b"/v1/") and b"%2f" in raw.split(b"?")[0].lower()


def _slash() -> InvalidName:
    rule = Violation("/model", "id", InvalidName.message())
    return InvalidName("An id in the path holds a slash. " + rule.detail, errors=[rule])


async def _refuse(problem: Problem, scope: Scope, send: Send) -> None:
    headers = [(b"content-type", b"application/problem+json")]
    headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    body = orjson.dumps(problem.body(scope["path"], scope["request_id"]))
    await send({"type": "http.response.body", "body": body})


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
