"""Translation of every exception of a route into one problem document; sentences for values that a query, a path, a header or a small
body cannot have: what came, and what is expected."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from calibrant.core.errors import CalibrationInputError, Violation, nearest
from calibrant_server.service.http.engine_errors import ENGINE_ERRORS, problem_of_engine
from calibrant_server.service.http.problems import (
    InternalError,
    InvalidInput,
    InvalidName,
    InvalidQuery,
    MalformedRequest,
    MethodNotAllowed,
    PathRemoved,
    PathUnknown,
    Problem,
    escaped,
)

Model = TypeVar("Model", bound=BaseModel)
KEY_ITSELF = "[key]"  # pydantic's marker for an invalid name, as opposed to an invalid value
QUOTED = 60  # characters of a text that an error repeats

# Rules whose names here differ from pydantic's.
RULES = {
    "extra_forbidden": "unknown_field",
    "literal_error": "unknown_value",
    "string_pattern_mismatch": "pattern",
    "string_type": "string",
    "string_folder": "id",
    "int_type": "integer",
    "int_parsing": "integer",
    "float_type": "number",
    "float_parsing": "number",
    "dict_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "list_type": "list",
    "bool_type": "boolean",
    "bool_parsing": "boolean",
}
# What is expected, by pydantic's own name of the rule; the names in braces are pydantic's.
EXPECTED = {
    "literal_error": "{expected}",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "string_type": "a text",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "list_type": "a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "an object"),
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}


def validated(model: type[Model], document: Any, at: tuple[str, ...] = ()) -> Model:
    """Return the model of a document.

    Parameters
    ----------
    at : where the document is in the body

    Raises
    ------
    CalibrationInputError
        Every rule that the document breaks.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        found = [
            violation_of(
                {**each, "loc": ("body", *at, *each["loc"])}, fields_at(model, each["loc"])
            )
            for each in error.errors()
        ]
        raise CalibrationInputError(found) from error


def violation_of(error: dict[str, Any], known: list[str] | None = None) -> Violation:
    """Return one validation error of pydantic as pointer, rule and detail.

    Parameters
    ----------
    known : names of the fields where the error is, if there are some
    """
    parts = [part for part in error["loc"][1:] if part != KEY_ITSELF]
    place = "".join(f"/{escaped(part)}" for part in parts)
    rule = RULES.get(error["type"], error["type"])
    name = next((each[:QUOTED] for each in reversed(parts) if isinstance(each, str)), "body")
    if rule == "unknown_field":
        instead = f"expected one of {', '.join(known)}" if known else "remove it"
        hint = nearest(name, known or ())
        return Violation(place, rule, f"Received unknown field {name!r}; {instead}.{hint}")
    if rule == "missing" and parts:
        return Violation(place, rule, f"Received no {name}; it is required.")
    return Violation(place, rule, _sentence(error, name, known))


def fields_at(model: type[BaseModel], parts: tuple[Any, ...]) -> list[str]:
    """Return the names of the fields next to an unknown one, or inside of the place of an error; none if names are free there."""
    found: Any = model
    for part in parts:
        inner = _inner(found, part)
        if inner is None:
            return [] if part in found.model_fields else _names_of(found)
        found = inner
    return _names_of(found)


def _names_of(model: type[BaseModel]) -> list[str]:
    """Return the names of the fields as clients send them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _inner(model: type[BaseModel], part: Any) -> type[BaseModel] | None:
    """Return the model of a field, of its items or alternatives; the model itself for the index of an item."""
    if not isinstance(part, str):
        return model
    field = model.model_fields.get(part)
    return None if field is None else _model_in(field.annotation)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each))), None)


def _sentence(error: dict[str, Any], name: str, known: list[str] | None) -> str:
    text = EXPECTED.get(_kind(error))
    if text is None:
        return _given(error, name)
    expected = text.format_map(error.get("ctx", {}))
    if "secret" in name:
        return f"Received another {name}; expected {expected}."
    if expected == "an object" and known:
        expected = f"an object with {', '.join(known)}"
    given: Any = error.get("input")
    received = (
        f"{len(given)} entries" if _kind(error) in ("too_short", "too_long") else shown(given)
    )
    return f"Received {received} for {name}; expected {expected}."


def _kind(error: dict[str, Any]) -> str:
    """Return pydantic's name of the rule; a text whose length is checked after it was read has characters, not entries."""
    kind = str(error["type"])
    is_text = kind in ("too_short", "too_long") and isinstance(error.get("input"), str)
    return f"string_{kind}" if is_text else kind


def _given(error: dict[str, Any], name: str) -> str:
    """Return a sentence around the text of a check of ours, or of a rule without a text here."""
    text = str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    if text.lower().startswith("received"):
        return f"{text[:1].upper()}{text[1:]}."
    return f"Received {shown(error.get('input'))} for {name}; {text[:1].lower()}{text[1:]}."


def shown(value: Any) -> str:
    """Return how an error repeats a value: texts and numbers as sent, and the kind of everything else."""
    if isinstance(value, str):
        return repr(value if len(value) <= QUOTED else f"{value[:QUOTED]}…")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return f"{value!r}"[:QUOTED]
    return "a list" if isinstance(value, list | tuple) else "an object"


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
            return problem_of_engine(error) or InternalError()


FORESEEN: tuple[type[Exception], ...] = (
    Problem,
    RequestValidationError,
    CalibrationInputError,
    HTTPException,
    *ENGINE_ERRORS,
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
