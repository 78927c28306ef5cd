"""Examples of the API document: of the two files of this folder, or of the classes of the bodies (`json_schema_extra={"example": …}`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

JSON = "application/json"


def read_file(name: str) -> dict[str, Any]:
    """Return the object in a file of this folder."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return found


# By the name of the class of a body, and by operationId. A text is of another type than JSON.
EXAMPLES, RESPONSE_EXAMPLES = map(read_file, ("request_examples.json", "response_examples.json"))


def add_examples(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add the examples of the operation's bodies; of several forms, that of the first."""
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = content.get("schema", {})
        first = schema.get("anyOf", [schema])[0]
        name = first.get("$ref", "").rpartition("/")[2]
        _show(content, EXAMPLES.get(name, _example_of(first, schemas)))
    value = RESPONSE_EXAMPLES.get(operation["operationId"])
    contents = [
        content
        for status, response in operation["responses"].items()
        for media, content in response.get("content", {}).items()
        if status.startswith("2") and (media == JSON) != isinstance(value, str)
    ]
    shown: dict[str, Any] = contents[0].get("schema", {}) if contents else {}
    value = _completed(value or _example_of(shown, schemas), shown, schemas)
    for content in contents:
        if content.get("schema", {}) == shown:
            _show(content, value)


def _show(content: dict[str, Any], value: Any) -> None:
    if value is not None:
        content["examples"] = {"example": {"value": value}}


def _completed(value: Any, schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return an example with the required fields that it lacks and that state their own: `says(…, examples=[…])`."""
    name = schema.get("anyOf", [schema])[0].get("$ref", "").rpartition("/")[2]
    model = schemas.get(name, {})
    own = {name: model["properties"][name].get("examples") for name in model.get("required", ())}
    stated = {name: each[0] for name, each in own.items() if each}
    return {**stated, **value} if isinstance(value, dict) else value


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
