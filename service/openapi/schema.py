"""The API document, generated from the app (OpenAPI 3.1).

Large bodies, and bodies made by the workers, are read and written without pydantic models. Their
models are added to the document as schemas, so that it describes every body.
"""

import json
import re
from collections import Counter, defaultdict
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from calibrant_server.service.http.problems import PROBLEMS
from calibrant_server.service.openapi.examples import add_examples

TAGS: dict[str, str] = {
    "models": "The registry: what is declared for each model; export and import.",
    "predictions": "Batches of predictions, with or without labels.",
    "labels": "Labels for predictions sent earlier or later, by id.",
    "histograms": "Histogram updates, packed panes and confidence histograms.",
    "batches": "The state of a batch: accepted, merged or rejected.",
    "catalogue": "The metrics and calibrators that exist, with their options.",
    "metrics": "Metrics over a window, for one or several models.",
    "reliability": "Tables and figures: reliability, ROC, uncertainty, label distribution.",
    "temperature": "The fitted temperature and the losses around it.",
    "maps": "Calibration maps: fitted on request, frozen versions, promotion.",
    "drift": "Whether calibration has changed, with the evidence.",
    "alarms": "Alarms, their acknowledgement, and webhooks.",
    "baselines": "Named windows that later windows are compared with.",
    "cases": "Segmentation: metrics per image or study.",
    "raters": "Disagreement of raters, metrics per rater, posterior class probabilities.",
    "stability": "How an estimate changes as data shrink.",
    "score": "Metrics of one posted batch; nothing is stored.",
    "keys": "Keys of callers, the audit log, limits and usage of your tenant.",
    "problems": "The meaning of each error.",
    "operations": "Health, version and Prometheus metrics of the service.",
}


REFERENCE = "#/components/schemas/{model}"
JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
# 405 is the response to a method that a path does not have; it belongs to no operation.
ANYWHERE = (400, 401, 403, 404, 422, 429, 500, 503)

KEYS = (
    "Required if the service has keys configured. The key must carry one of the scopes that the "
    "operation lists."
)
DESCRIPTION = (
    "Calibrant stores a small mergeable state per model and time slice. For any window it reports "
    "calibration metrics with intervals, fits calibration maps and detects changes. Errors are "
    "`application/problem+json` (RFC 9457); times are RFC 3339 in UTC; intervals are half open."
)
LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
CONTACT = {"name": "The Calibrant developers"}
SERVERS = [{"url": "/", "description": "The server that returned this document."}]

PARAMETERS = "#/components/parameters/"
RESPONSES = "#/components/responses/"
# Names begin with a letter: a client generator may make identifiers of them.
RESPONSE_NAME = "E{status}"
SHARED_STATUS = re.compile(r"304|[45]\d\d")

# Descriptions of parameters that several operations share; an operation's own description takes precedence.
DESCRIPTIONS = {
    "raters": "Label policy: how several ratings of one prediction count.",
    "binning": "Binning method.",
    "bins": "Number of bins.",
    "edges": "`right`: bins are (a, b], and 0 is in the first; `left`: bins are [a, b).",
    "min_count": "Bins with less weight are left out.",
    "scope": "The probability to bin: top_label, positive, class:NAME or all. "
    "Default: positive for binary models, else top_label.",
    "objective": "The loss that the temperature minimises.",
    "ci": "Level of the intervals.",
}

_documented: dict[str, type[BaseModel]] = {}


class ProblemError(BaseModel):
    """One violated rule."""

    pointer: str = Field(
        description="JSON Pointer of the value; in NDJSON it begins with the line."
    )
    rule: str = Field(description="A stable code of the rule.")
    detail: str = Field(description="What was received, what was expected and what to do.")


class ProblemDocument(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="Path of the page that explains the problem.")
    title: str
    status: int
    detail: str
    instance: str = Field(description="Path of the request.")
    request_id: str | None = Field(
        description="Id of the request in the log, also in the header X-Request-Id."
    )
    retryable: bool = Field(
        description="Whether the same request may succeed later; Retry-After states when to repeat it."
    )
    errors: list[ProblemError] = Field([], description="The violations, where there are any.")


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


def takes(description: str, **models: Models | None) -> dict[str, Any]:
    """Describe a request body: by `json`, `ndjson` or `merge_patch` its model, or any of several; None for bytes."""
    media = {
        "json": JSON,
        "ndjson": "application/x-ndjson",
        "merge_patch": "application/merge-patch+json",
        "arrow": "application/vnd.apache.arrow.stream",
        "npy": "application/x-npy",
        "csv": "text/csv",
        "pane": "application/x-calibrant-pane",
        "cloudevents": "application/cloudevents+json",
        "any_type": "*/*",
    }
    content = {
        media[key]: {} if each is None else {"schema": _any_of(each)}
        for key, each in models.items()
    }
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
        description=DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        servers=SERVERS,
        contact=CONTACT,
        license_info=LICENSE,
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
    components["examples"] = {}
    for route in app.state.routes:
        if route.include_in_schema:
            for method in route.methods:
                operation = made["paths"][route.path_format][method.lower()]
                _complete(operation, _scopes(route))
                add_examples(operation, components)
    operations = [each for path in made["paths"].values() for each in path.values()]
    _describe_parameters(operations)
    components["responses"] = _shared_responses(operations)
    components["parameters"] = _shared_parameters(operations)
    return made


def _scopes(route: APIRoute) -> tuple[str, ...]:
    """Return the scopes that allow an operation: a key needs one of them. None if the operation needs no key."""
    waiting, found = [route.dependant], set[str]()
    while waiting:
        each = waiting.pop()
        found |= set(getattr(each.call, "scopes", ()))
        waiting += each.dependencies
    return tuple(sorted(found))


def _complete(operation: dict[str, Any], scopes: tuple[str, ...]) -> None:
    """Derive summary, description and security of an operation."""
    summary, _, body = operation["description"].partition("\n\n")
    operation["summary"] = summary.rstrip(".")
    if scopes:
        allowed = " or ".join(f"`{scope}`" for scope in scopes)
        needed = f"Key scope: {allowed}."
    else:
        needed = "Needs no key."
    operation["description"] = f"{body}\n\n{needed}" if body else needed
    # Bearer keys have scopes of ours; validators know scopes of OAuth only.
    operation["security"] = [{"key": []}] if scopes else []
    operation["x-scopes"] = list(scopes)
    if not scopes:
        for status in ("401", "403", "429"):
            operation["responses"].pop(status, None)


def _describe_parameters(operations: list[dict[str, Any]]) -> None:
    """Describe common parameters that have no description of their own."""
    for operation in operations:
        for parameter in operation.get("parameters", ()):
            if parameter["name"] in DESCRIPTIONS:
                parameter.setdefault("description", DESCRIPTIONS[parameter["name"]])


def _shared_responses(operations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one response per status of an error, and 304; operations refer to it."""
    shared: dict[str, Any] = {}
    for operation in operations:
        for status, response in operation["responses"].items():
            if SHARED_STATUS.fullmatch(str(status)):
                name = RESPONSE_NAME.format(status=status)
                shared.setdefault(name, response)
                operation["responses"][status] = {"$ref": RESPONSES + name}
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
                parameters[index] = {"$ref": PARAMETERS + each["name"]}
    return shared
