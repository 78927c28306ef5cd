"""The API document, generated from the app (OpenAPI 3.1); `fixed.json` has the parts that do not depend on operations.

Large bodies, and bodies made by the workers, are read and written without pydantic models. Their
models are added to the document as schemas, so that it describes every body.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from calibrant_server.service.http.problems import PROBLEMS, ProblemDocument
from calibrant_server.service.openapi.examples import JSON, add_examples, read_file

COMPONENTS = "#/components/"
REFERENCE = COMPONENTS + "schemas/{model}"
# 405 is the response to a method that a path does not have; it belongs to no operation.
ANYWHERE = (400, 401, 403, 404, 422, 429, 500, 503)

Models = type[BaseModel] | tuple[type[BaseModel], ...]
_documented: dict[str, type[BaseModel]] = {}


def reference(model: type[BaseModel]) -> dict[str, str]:
    """Return a reference to the schema of `model`, and add the schema to the document."""
    _documented[model.__name__] = model
    return {"$ref": REFERENCE.format(model=model.__name__)}


def success(model: type[BaseModel], description: str, **headers: str) -> dict[str, Any]:
    """Describe a JSON response and its headers."""
    described = {
        name.replace("_", "-"): {"description": text, "schema": {"type": "string"}}
        for name, text in headers.items()
    }
    content = {JSON: {"schema": reference(model)}}
    return {"description": description, "content": content} | (
        {"headers": described} if described else {}
    )


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that an operation may return, in addition to those of every operation."""
    content = {"application/problem+json": {"schema": reference(ProblemDocument)}}
    return {
        status: {"description": "; ".join(_links(status)), "content": content}
        for status in sorted({*ANYWHERE, *statuses})
    }


def _links(status: int) -> list[str]:
    found = (each for each in PROBLEMS.values() if each.status == status)
    return [f"[{each.title}](/v1/problems/{each.slug})" for each in found]


def takes(description: str, models: Mapping[str, Models | None]) -> dict[str, Any]:
    """Describe a request body: by media type its model, or any of several; None for bytes."""
    content = {
        media: {} if each is None else {"schema": _any_of(each)} for media, each in models.items()
    }
    return {"requestBody": {"description": description, "required": True, "content": content}}


def _any_of(models: Models) -> dict[str, Any]:
    if isinstance(models, tuple):
        return {"anyOf": [reference(model) for model in models]}
    return reference(models)


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of `app`."""
    made = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    fixed = read_file("fixed.json")
    _, definitions = models_json_schema(
        [(model, "serialization") for model in _documented.values()], ref_template=REFERENCE
    )
    schemas, operations = definitions["$defs"], []
    for route in app.state.routes:
        for method in route.methods if route.include_in_schema else ():
            operation = made["paths"][route.path_format][method.lower()]
            _complete(operation, _scopes(route))
            add_examples(operation, schemas)
            operations.append(operation)
    shared = {
        "schemas": schemas,
        "responses": _shared_responses(operations),
        "parameters": _shared_parameters(operations),
    }
    paths = dict(sorted(made["paths"].items()))
    info, components = made["info"] | fixed["info"], fixed["components"] | shared
    return made | fixed | {"info": info, "paths": paths, "components": components}


def _scopes(route: APIRoute) -> list[str]:
    """Return the scopes that allow an operation: a key needs one of them. None if the operation needs no key."""
    taken = (getattr(each.call, "scopes", ()) for each in route.dependant.dependencies)
    return sorted({scope for scopes in taken for scope in scopes})


def _complete(operation: dict[str, Any], scopes: list[str]) -> None:
    """Derive summary, description and security of an operation."""
    summary, _, body = operation["description"].partition("\n\n")
    operation["summary"] = summary.rstrip(".")
    allowed = " or ".join(f"`{scope}`" for scope in scopes)
    needed = f"Key scope: {allowed}." if scopes else "Needs no key."
    operation["description"] = f"{body}\n\n{needed}" if body else needed
    # Bearer keys have scopes of ours; validators know scopes of OAuth only.
    operation["security"] = [{"key": []}] if scopes else []
    operation["x-scopes"] = scopes
    for status in () if scopes else ("401", "403", "429"):
        operation["responses"].pop(status, None)


def _shared_responses(operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one response per status of an error, and 304; operations refer to it."""
    shared: dict[str, Any] = {}
    for operation in operations:
        for status, response in operation["responses"].items():
            if status >= "3":
                name = (
                    f"E{status}"  # a letter first: generators of clients make identifiers of names
                )
                shared.setdefault(name, response)
                operation["responses"][status] = {"$ref": f"{COMPONENTS}responses/{name}"}
    return shared


def _shared_parameters(operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return of each parameter the form that most operations have, if several do; they refer to it."""
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for operation in operations:
        for parameter in operation.get("parameters", ()):
            forms[parameter["name"]][json.dumps(parameter)] += 1
    most = {name: forms[name].most_common(1)[0] for name in forms}
    shared = {name: json.loads(form) for name, (form, times) in most.items() if times > 1}
    for operation in operations:
        parameters = operation.get("parameters", [])
        for index, each in enumerate(parameters):
            if shared.get(each["name"]) == each:
                parameters[index] = {"$ref": f"{COMPONENTS}parameters/{each['name']}"}
    return shared
