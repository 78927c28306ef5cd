"""Examples of the API document: of the two files of this folder, or of the classes of the bodies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

JSON = "application/json"
EXAMPLE = "#/components/examples/{name}"


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return found


EXAMPLES = _read("request_examples.json")
_TEXTS: dict[str, tuple[str, str]] = {
    "getServiceMetrics": (
        "text/plain",
        '# TYPE calibrant_requests_total counter\ncalibrant_requests_total{operation="getLive",status="200"} 1.0\n',
    ),
    "getModelSeries": (
        "text/plain",
        '# TYPE calibrant_model_temperature gauge\ncalibrant_model_temperature{model="triage",tenant="default"} 1.31\n',
    ),
    "getReport": (
        "text/html",
        "<!doctype html><title>Calibration of triage</title><h2>1. Data</h2>…",
    ),
    "streamAlarms": (
        "text/event-stream",
        'retry: 3000\n\nid: 0.0.1.0\nevent: alarm\ndata: {"id": "al_003_0f1e2d3c4b5a69788796", "state": "open"}\n\n',
    ),
}
RESPONSE_EXAMPLES: dict[str, tuple[str, Any]] = {
    name: ("application/json", value) for name, value in _read("response_examples.json").items()
} | _TEXTS


def add_examples(operation: dict[str, Any], components: dict[str, Any]) -> None:
    """Refer to the examples of the operation's bodies, and add them to the shared ones; equal values are shared too.

    Examples are in the two files of this folder, or of the classes of the bodies: `json_schema_extra={"example": …}`.
    """
    shared: dict[str, Any] = components["examples"]

    def reference_to(name: str, value: Any) -> dict[str, Any]:
        text = json.dumps(value)  # True and 1 are equal, but no equal examples
        equal = (each for each, example in shared.items() if json.dumps(example["value"]) == text)
        name = next(equal, name)
        shared[name] = {"value": value}
        return {"example": {"$ref": EXAMPLE.format(name=name)}}

    for content in operation.get("requestBody", {}).get("content", {}).values():
        if "schema" not in content:
            continue  # bytes
        shape = content["schema"].get("anyOf", [content["schema"]])[0]
        name = shape["$ref"].rpartition("/")[2]
        value = EXAMPLES.get(name, _example_of(shape, components["schemas"]))
        if value is not None:
            content["examples"] = reference_to(name, value)
    name = operation["operationId"]
    media, value = RESPONSE_EXAMPLES.get(name) or _response_example(operation, components)
    if value is not None:
        found = [
            response["content"][media]
            for status, response in operation["responses"].items()
            if status.startswith("2") and media in response.get("content", {})
        ]
        for content in found:
            if content.get("schema") == found[0].get("schema"):
                content["examples"] = reference_to(name, value)


def _response_example(operation: dict[str, Any], components: dict[str, Any]) -> tuple[str, Any]:
    """Return the example of a successful JSON response that its classes have."""
    for status, response in operation["responses"].items():
        content = response.get("content", {}).get(JSON, {})
        if status.startswith("2") and "schema" in content:
            return JSON, _example_of(content["schema"], components["schemas"])
    return JSON, None


def _example_of(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return the example of a class, or a page with that of its entries; None where they have none."""
    schema = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    if "example" in schema:
        return schema["example"]
    for name, member in schema.get("properties", {}).items():
        entry = _example_of(member["items"], schemas) if "items" in member else None
        if entry is not None:
            return {name: [entry], "next": None}
    return None
