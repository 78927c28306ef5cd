"""The API document, made from the app (OpenAPI 3.1).

Request and response bodies are read and written without models where they are large or made by the
workers; their models stand here as schemas, so that the document says all the same what they hold.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from calibrant_server.service.http.errors import PROBLEMS
from calibrant_server.service.openapi.examples import EXAMPLES

REFERENCE = "#/components/schemas/{model}"
JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
ANYWHERE = (400, 401, 403, 404, 405, 422, 500, 503)

KEYS = "Where keys are configured. The list of an operation names the scopes of which the key carries one."

_documented: dict[str, type[BaseModel]] = {}


class ProblemError(BaseModel):
    """One broken rule: where, which, and a sentence."""

    pointer: str
    rule: str
    detail: str


class ProblemDocument(BaseModel):
    """An error, as RFC 9457 writes it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[ProblemError] = []


def reference(model: type[BaseModel]) -> dict[str, str]:
    """Return a reference to the schema of `model`, which the document then holds."""
    _documented[model.__name__] = model
    return {"$ref": REFERENCE.format(model=model.__name__)}


def answers(model: type[BaseModel], description: str, **headers: str) -> dict[str, Any]:
    """Describe a JSON answer and its headers."""
    described = {
        name.replace("_", "-"): {"description": text, "schema": {"type": "string"}}
        for name, text in headers.items()
    }
    content = {JSON: {"schema": reference(model)}}
    return {"description": description, "content": content} | (
        {"headers": described} if described else {}
    )


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that an operation may answer with, beside those of every operation."""
    schema = reference(ProblemDocument)
    return {
        status: {
            "description": "; ".join(_slugs(status)),
            "content": {PROBLEM_JSON: {"schema": schema}},
        }
        for status in sorted({*ANYWHERE, *statuses})
    }


def _slugs(status: int) -> list[str]:
    return [
        f"[{each.title}](/v1/problems/{each.slug})"
        for each in PROBLEMS.values()
        if each.status == status
    ]


Models = type[BaseModel] | tuple[type[BaseModel], ...]


def takes(description: str, **models: Models) -> dict[str, Any]:
    """Describe a request body: by `json`, `ndjson` or `merge_patch` its model, or any of several."""
    media = {
        "json": JSON,
        "ndjson": "application/x-ndjson",
        "merge_patch": "application/merge-patch+json",
    }
    content = {media[key]: {"schema": _any_of(each)} for key, each in models.items()}
    return {"requestBody": {"description": description, "required": True, "content": content}}


def _any_of(models: Models) -> dict[str, Any]:
    if isinstance(models, tuple):
        return {"anyOf": [reference(model) for model in models]}
    return reference(models)


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of `app`."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    _, definitions = models_json_schema(
        [(model, "serialization") for model in _documented.values()], ref_template=REFERENCE
    )
    made["paths"] = dict(sorted(made["paths"].items()))
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas.update(definitions["$defs"])
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": KEYS}
    }
    for route in app.state.routes:
        if route.include_in_schema:
            for method in route.methods:
                _complete(made["paths"][route.path][method.lower()], _scopes(route))
    return made


def _scopes(route: APIRoute) -> tuple[str, ...]:
    """Return the scopes of which a key must carry one; none where no key is asked for."""
    waiting, found = [route.dependant], set[str]()
    while waiting:
        each = waiting.pop()
        found |= set(getattr(each.call, "scopes", ()))
        waiting += each.dependencies
    return tuple(sorted(found))


def _complete(operation: dict[str, Any], scopes: tuple[str, ...]) -> None:
    """Add what follows from the rest: a summary, who may, and examples beside the bodies that they are of."""
    operation["summary"] = operation.pop("description").rstrip(".")
    operation["security"] = [{"key": [scope]} for scope in scopes]
    if not scopes:
        for status in ("401", "403"):
            operation["responses"].pop(status, None)
    for content in operation.get("requestBody", {}).get("content", {}).values():
        shape = content["schema"].get("anyOf", [content["schema"]])[0]
        example = EXAMPLES.get(shape["$ref"].rpartition("/")[2])
        if example is not None:
            content["example"] = example
