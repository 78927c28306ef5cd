"""Middleware of every request: check of the path, conditional GET, security headers, log line, metrics."""

import logging
import time
from collections.abc import MutableMapping
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calibrant.core.errors import Violation
from calibrant_server.service.http.conditional_get import not_modified
from calibrant_server.service.http.errors import InternalError, InvalidName, Problem
from calibrant_server.service.http.prometheus import ServiceMetrics
from calibrant_server.service.security.audit_record import record

log = logging.getLogger("service.access")

# Tags of routes that return a result.
RESULTS = frozenset(
    ("metrics", "reliability", "temperature", "maps", "drift", "cases", "raters", "stability")
)
SECURITY_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cache-control": b"no-store",
}


class RequestMiddleware:
    """Outermost layer of the app; independent of the subject of a request."""

    def __init__(self, app: ASGIApp, meters: ServiceMetrics, log_requests: bool) -> None:
        self.app = app
        self.meters = meters
        self.log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = time.perf_counter()
        response = Answering(send, scope, without_body=scope["method"] == "HEAD")
        if response.without_body:
            scope = {**scope, "method": "GET"}  # HEAD is supported wherever GET is
        try:
            if _hides_slash(scope):
                await _refuse(_slash(), scope, response)
            else:
                unchanged = await not_modified(scope) if scope["method"] == "GET" else None
                await (unchanged or self.app)(scope, receive, response)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if response.status is not None:
                raise  # a part of the response was sent: closing the connection shows that it is incomplete
            await _refuse(InternalError(), scope, response)
        finally:
            self._note(scope, response.status or 499, time.perf_counter() - started)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
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
            line = (scope["method"], scope["path"], status, seconds * 1000)
            log.info("%s %s %d %.1fms", *line)


class Answering:
    """Sender of messages that adds security headers and records the status; changes are in the audit log before it sends."""

    def __init__(self, send: Send, scope: Scope, without_body: bool = False) -> None:
        self.send = send
        self.scope = scope
        self.without_body = without_body
        self.status: int | None = None
        self.is_replaced = False

    async def __call__(self, message: Message) -> None:
        """Send one message."""
        if self.is_replaced:
            return
        if message["type"] == "http.response.start":
            problem = await record(self.scope, message["status"]) if "audit" in self.scope else None
            if problem is not None:
                await _refuse(problem, self.scope, self)
                self.is_replaced = True
                return
            self.status = message["status"]
            message = {**message, "headers": _with_security(message.get("headers", []))}
        elif self.without_body:
            message = {**message, "body": b""}
        await self.send(message)


def _with_security(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    present = {name.lower() for name, _ in headers}
    added = [(name, value) for name, value in SECURITY_HEADERS.items() if name not in present]
    return [*headers, *added]


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
    body = orjson.dumps(problem.body(scope["path"]))
    await send({"type": "http.response.body", "body": body})
