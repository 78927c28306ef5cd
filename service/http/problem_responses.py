"""Translation of every exception of a route into one problem document."""

import re

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from calibrant.core.errors import CalibrationInputError, Violation
from calibrant_server.service.http.errors import (
    InternalError,
    InvalidInput,
    InvalidName,
    InvalidQuery,
    MalformedRequest,
    MethodNotAllowed,
    PathRemoved,
    PathUnknown,
)
from calibrant_server.service.http.problem import Problem
from calibrant_server.service.http.validation_errors import violation_of

PROBLEM_JSON = "application/problem+json"
CLIENT_LEFT = 499  # as nginx counts requests of clients that disconnect
LISTED_VIOLATIONS = 100

# Paths of earlier versions, and what to do instead.
REMOVED_PATHS = {
    re.compile(
        r"/v1/models/[^/]+/jobs(/.*)?"
    ): "send each task with a batch_id, or with source and offsets",
}


def problem_response(problem: Problem, request: Request) -> Response:
    """Respond with the problem as `application/problem+json`."""
    return Response(
        orjson.dumps(problem.body(request.url.path, request.scope.get("request_id"))),
        status_code=problem.status,
        media_type=PROBLEM_JSON,
        headers=problem.headers,
    )


def invalid_input(violations: list[Violation], n_violations: int = 0) -> InvalidInput:
    """Return the problem of a body with these violations; its detail gives their number if only the first are listed."""
    total = max(n_violations, len(violations))
    first = f"{violations[0].pointer}: {violations[0].detail}".removeprefix(": ")
    if total == 1:
        return InvalidInput(first, errors=violations)
    listed = violations[:LISTED_VIOLATIONS]
    shown = "" if len(listed) == total else f"; the first {len(listed)} are listed"
    return InvalidInput(f"{first} ({total} violations in all{shown})", errors=listed)


def from_validation(error: RequestValidationError) -> Problem:
    """Return the problem of a rejected query, path, header or small body."""
    errors = error.errors()[:LISTED_VIOLATIONS]
    violations = [violation_of(each) for each in errors]
    detail = " ".join(violation.detail for violation in violations[:3])
    match errors[0]["loc"][0]:
        case "path":
            is_name = all(each["type"].startswith("string") for each in errors)
            return InvalidName(None if is_name else detail, errors=violations)
        case "query":
            return InvalidQuery(detail, errors=violations)
        case "header":
            return MalformedRequest(detail, errors=violations)
        case _:
            return InvalidInput(detail, errors=violations)


def from_http(error: HTTPException, request: Request) -> Problem:
    """Return the problem of a path or method that no route serves."""
    if error.status_code == 405:
        allow = ", ".join(methods_of(request))
        detail = f"{request.method} is not supported here; allowed: {allow}."
        return MethodNotAllowed(detail, headers={"Allow": allow})
    if error.status_code == 404:
        return path_removed(request.url.path) or path_unknown(request.url.path)
    return MalformedRequest(str(error.detail), headers=error.headers)


def methods_of(request: Request) -> list[str]:
    """Return the methods that routes support at the path of this request."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if isinstance(route, Route) and route.path_regex.match(request.scope["path"]):
            found |= route.methods or set()
    return sorted(found | {"HEAD"} if "GET" in found else found)


def path_removed(path: str) -> PathRemoved | None:
    """Return the 410 of a path of an earlier version; None if there was none."""
    for pattern, instead in REMOVED_PATHS.items():
        if pattern.fullmatch(path):
            return PathRemoved(f"Received a path that was removed; {instead}.")
    return None


def path_unknown(path: str) -> PathUnknown:
    """Return the 404 of a path; under models it states the rule for ids, which exclude the slash."""
    if not path.startswith("/v1/models/") or path.endswith("/"):
        ended = "; paths have no slash at the end" if path.endswith("/") and path != "/" else ""
        return PathUnknown(f"Nothing is served at {path[:200]}{ended}. /docs lists what is.")
    rule = Violation("/model", "id", InvalidName.message())
    return PathUnknown(f"Nothing is served at {path}. A model id contains no slash.", errors=[rule])


def problem_of(error: Exception, request: Request) -> Problem:
    """Return the problem of an error of a request."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return from_validation(error)
        case CalibrationInputError():
            return invalid_input(error.violations, error.n_violations)
        case HTTPException():
            return from_http(error, request)
        case _:
            return InternalError()


FORESEEN: tuple[type[Exception], ...] = (
    Problem,
    RequestValidationError,
    CalibrationInputError,
    HTTPException,
)


def install(app: FastAPI) -> None:
    """Register the handlers that turn expected errors of `app` into problem documents.

    `calibrant_server.service.http.middleware`, the outermost layer, handles unexpected errors.
    """

    async def respond(request: Request, error: Exception) -> Response:
        return problem_response(problem_of(error, request), request)

    async def left(request: Request, error: Exception) -> Response:
        # The client has gone: the status is for the log and the metrics.
        return Response(status_code=CLIENT_LEFT)

    app.add_exception_handler(ClientDisconnect, left)
    for kind in FORESEEN:
        app.add_exception_handler(kind, respond)
