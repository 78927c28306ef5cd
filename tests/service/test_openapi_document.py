"""Properties of the API document that client generators and linters depend on."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from calibrant_server.service.openapi.__main__ import COMMITTED
from calibrant_server.service.openapi.examples import add_examples
from calibrant_server.service.openapi.schema import _documented
from tests.conforming import CONFORMING, resolved

MAX_BYTES = 450_000
BODILESS = {"204", "304"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return CONFORMING.document


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for path in document["paths"].values() for each in path.values()]


def parameters(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for operation in operations(document):
        for each in operation.get("parameters", ()):
            yield operation["operationId"], resolved(document, each)


def every_schema(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a schema and all schemas inside it."""
    yield schema
    named = [
        each
        for key in ("properties", "patternProperties", "$defs")
        for each in schema.get(key, {}).values()
    ]
    single = [schema.get(key) for key in ("items", "additionalProperties", "propertyNames", "not")]
    listed = [
        each for key in ("anyOf", "oneOf", "allOf", "prefixItems") for each in schema.get(key, ())
    ]
    for each in (*named, *single, *listed):
        if isinstance(each, dict):
            yield from every_schema(each)


def all_schemas(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for each in document["components"]["schemas"].values():
        yield from every_schema(each)
    for _, each in parameters(document):
        yield from every_schema(each["schema"])


def test_the_committed_document_is_small_and_compact():
    text = COMMITTED.read_text(encoding="utf-8")
    assert len(text.encode()) < MAX_BYTES
    compact = json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True)
    assert len(text) < 1.02 * len(compact)


def test_every_parameter_is_described(document):
    for operation, each in parameters(document):
        assert each.get("description"), (operation, each["name"])
        assert "without it" not in each["description"], (operation, each["name"])


def test_every_operation_is_described(document):
    for operation in operations(document):
        assert operation["description"] and operation["summary"], operation["operationId"]


def test_every_list_states_its_items(document):
    """Linters and generators of clients read `items` only."""
    lists = [each for each in all_schemas(document) if each.get("type") == "array"]
    assert lists and all("items" in each for each in lists)


def test_error_responses_are_shared(document):
    shared = document["components"]["responses"]
    for operation in operations(document):
        for status, response in operation["responses"].items():
            if status >= "3":
                name = response["$ref"].removeprefix("#/components/responses/")
                assert name in shared, (operation["operationId"], status)


def test_parameters_that_operations_describe_equally_are_shared(document):
    own = [
        json.dumps(each, sort_keys=True)
        for operation in operations(document)
        for each in operation.get("parameters", ())
        if "$ref" not in each
    ]
    shared = document["components"]["parameters"]
    assert shared["model"]["in"] == "path"
    assert not {json.dumps(each, sort_keys=True) for each in shared.values()} & set(own)


def test_tags_have_the_order_in_which_a_user_meets_them(document):
    tags = [each["name"] for each in document["tags"]]
    assert tags[:4] == ["models", "predictions", "labels", "histograms"]
    assert len(tags) == len(set(tags)) and all(each["description"] for each in document["tags"])
    used = {tag for operation in operations(document) for tag in operation["tags"]}
    assert used == set(tags)
    assert all(len(operation["tags"]) == 1 for operation in operations(document))


def test_servers_license_and_contact_are_stated(document):
    assert document["servers"]
    assert document["info"]["license"]["identifier"] == "Apache-2.0"
    assert document["info"]["contact"]


def test_operation_ids_are_unique(document):
    ids = [operation["operationId"] for operation in operations(document)]
    assert len(ids) == len(set(ids))


def test_every_operation_has_an_example(document):
    """Of its body or of a response; an export and responses without a body have none."""
    for operation in operations(document):
        bodies = [operation.get("requestBody", {})]
        bodies += [
            each for status, each in operation["responses"].items() if status.startswith("2")
        ]
        contents = [each for body in bodies for each in body.get("content", {}).values()]
        without = operation["operationId"] == "exportModel" or not contents
        assert without or any(each.get("examples") for each in contents), operation["operationId"]


def test_a_required_field_that_an_example_lacks_states_its_own():
    """So a field is added to a result in one file."""
    shape = {"$ref": "#/components/schemas/Share"}
    content: dict[str, Any] = {"application/json": {"schema": {"anyOf": [shape]}}}
    operation = {"operationId": "getLabelDistribution", "responses": {"200": {"content": content}}}
    fields = {"ci": {"examples": [0.5]}, "share": {"examples": [0.25]}, "note": {}}
    add_examples(operation, {"Share": {"properties": fields, "required": ["ci", "share", "note"]}})
    found = content["application/json"]["examples"]["example"]["value"]
    assert (found["ci"], found["share"]) == (0.95, 0.25) and "note" not in found


def test_examples_of_responses_fit_their_schemas(document):
    checked = 0
    for operation in operations(document):
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get("application/json", {})
            if not status.startswith("2") or "examples" not in content:
                continue
            example = resolved(document, content["examples"]["example"])["value"]
            # Of several forms, the example is of the first.
            schema = content["schema"].get("anyOf", [content["schema"]])[0]
            model = _documented[schema["$ref"].rpartition("/")[2]]
            assert model.model_validate_json(json.dumps(example), strict=True)
            checked += 1
    assert checked > 40
