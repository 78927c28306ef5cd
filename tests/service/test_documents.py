"""The API document, its pages, health, headers."""

import subprocess
import sys
from pathlib import Path

import pytest

import calibrant
from calibrant_server.service.openapi.__main__ import COMMITTED
from calibrant_server.service.openapi.examples import EXAMPLES
from calibrant_server.service.openapi.schema import _documented
from calibrant_server.service.security.keys import SCOPES
from tests.conforming import resolved

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
WRITTEN = """
import sys
from calibrant_server.service.app import create_app
from calibrant_server.service.openapi.__main__ import written
from calibrant_server.service.settings import Settings
sys.stdout.write(written(create_app(Settings())))
"""
OPERATIONS = {
    "scoreOnce": ("post", "/v1/score"),
    "listModels": ("get", "/v1/models"),
    "putModel": ("put", "/v1/models/{model}"),
    "getModel": ("get", "/v1/models/{model}"),
    "patchModel": ("patch", "/v1/models/{model}"),
    "deleteModel": ("delete", "/v1/models/{model}"),
    "ingestPredictions": ("post", "/v1/models/{model}/predictions"),
    "ingestHistograms": ("post", "/v1/models/{model}/histograms"),
    "getBatch": ("get", "/v1/models/{model}/batches/{batch_id}"),
    "getMetrics": ("get", "/v1/models/{model}/metrics"),
    "getReliability": ("get", "/v1/models/{model}/reliability"),
    "getTemperature": ("get", "/v1/models/{model}/temperature"),
    "getCalibrationMap": ("get", "/v1/models/{model}/calibration-map"),
    "applyCalibrationMap": ("post", "/v1/models/{model}/calibration-map/apply"),
    "getDrift": ("get", "/v1/models/{model}/drift"),
}


def test_the_committed_document_is_the_apps():
    """In a process of its own: what other tests declare is registered in this one."""
    made = subprocess.run(
        [sys.executable, "-c", WRITTEN], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert COMMITTED.read_text(encoding="utf-8") == made.stdout


def test_operations_have_the_names_of_the_contract(app):
    paths = app.openapi()["paths"]
    for operation, (method, path) in OPERATIONS.items():
        assert paths[path][method]["operationId"] == operation


def test_every_error_in_the_document_is_a_problem(app):
    document = app.openapi()
    assert document["openapi"].startswith("3.1")
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    content = resolved(document, response)["content"]
                    assert list(content) == ["application/problem+json"]


def test_every_reference_in_the_document_leads_somewhere(app):
    document = app.openapi()
    found: list[str] = []

    def walk(value):
        if isinstance(value, dict):
            found.extend([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(document)
    assert found and all(resolved(document, {"$ref": each}) for each in found)


async def test_the_documentation_needs_nothing_from_elsewhere(client):
    page = (await client.get("/docs")).text
    assert "http://" not in page and "https://" not in page and "//" not in page.replace("<!--", "")
    for asset, kind in (
        ("swagger-ui-bundle.js", "javascript"),
        ("swagger-ui.css", "css"),
        ("start.js", "javascript"),
        ("favicon-32x32.png", "png"),
    ):
        answer = await client.get(f"/docs/{asset}")
        assert answer.status_code == 200 and kind in answer.headers["content-type"]
    assert (await client.get("/openapi.json")).json()["info"]["title"] == "Calibrant"


async def test_health_and_version(client):
    assert (await client.get("/livez")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {
        "status": "ready",
        "parked_entries": 0,
        "unsealed_models": 0,
        "dead_letters": 0,
        "stalled_partitions": 0,
        "files_unavailable": False,
        "store_full": False,
    }
    assert (await client.get("/version")).json()["api"] == "1"
    text = (await client.get("/metrics")).text
    assert 'calibrant_requests_total{operation="getLive",status="200"} 1.0' in text


async def test_what_waits_for_an_operator_is_reported(client, inbox):
    assert "\ncalibrant_parked_entries 0.0\n" in (await client.get("/metrics")).text
    inbox.waiting = (3, 1)
    ready = await client.get("/readyz")
    assert ready.status_code == 200
    waiting = {
        "parked_entries": 3,
        "unsealed_models": 1,
        "dead_letters": 0,
        "stalled_partitions": 0,
        "files_unavailable": False,
    }
    assert ready.json() == {"status": "ready", **waiting, "store_full": False}
    text = (await client.get("/metrics")).text
    assert (
        "\ncalibrant_parked_entries 3.0\n" in text and "\ncalibrant_unsealed_models 1.0\n" in text
    )


async def test_head_is_answered_as_get_without_a_body(client):
    head, get = await client.head("/livez"), await client.get("/livez")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


async def test_security_headers_are_on_every_answer(client):
    for url in ("/livez", "/nothing", "/v1/models/a%2Fb", "/docs"):
        headers = (await client.get(url)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]


def bodies(app):
    """Every request body of the document with its example, by operation and media type."""
    document = app.openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                # Neither the lines of an export nor bytes are written by hand.
                if not path.endswith("/import") and "schema" in content:
                    example = resolved(document, content["examples"]["example"])
                    yield method, path, media, {**content, "example": example["value"]}


def test_every_body_has_an_example_of_its_own_shape(app):
    for method, path, media, content in bodies(app):
        shape = content["schema"].get("anyOf", [content["schema"]])[0]["$ref"].rpartition("/")[2]
        assert _documented[shape].model_validate(content["example"]), (method, path, media)


STORY = (
    "PUT /v1/models/{model}",
    "POST /v1/models/{model}/predictions",
    "POST /v1/models/{model}/labels",
    "POST /v1/score",
    "POST /v1/score/confidence-histogram",
)
OF_COARSE_MODELS = ("POST /v1/models/{model}/histograms",)


async def test_examples_are_taken_as_they_stand(app, client):
    examples: dict[str, list] = {}
    for method, path, media, content in bodies(app):
        examples.setdefault(f"{method.upper()} {path}", []).append((media, content["example"]))
    await client.put(
        "/v1/models/coarse", json={**EXAMPLES["ModelSettings"], "grid": 4, "slices": {}}
    )
    for step in STORY + OF_COARSE_MODELS:
        method, path = step.format(model="coarse" if step in OF_COARSE_MODELS else "fine").split()
        for media, example in examples[step]:
            answer = await client.request(
                method, path, json=example, headers={"Content-Type": media}
            )
            assert answer.status_code in (200, 201, 202), (step, media, answer.text)


def test_operations_say_who_may_and_what_they_do(app):
    for path, operations in app.openapi()["paths"].items():
        for operation in operations.values():
            assert operation["summary"][0].isupper() and not operation["summary"].endswith(".")
            scopes = set(operation["x-scopes"])
            assert scopes <= set(SCOPES)
            assert operation["security"] == ([{"key": []}] if scopes else [])
            is_open = not set(operation["tags"]).isdisjoint({"operations", "problems"})
            needs_key = not is_open or path == "/metrics/models"
            assert bool(scopes) == needs_key, path
            assert ("401" in operation["responses"]) == bool(scopes)


MAX_PARAMETERS = 18


def test_no_operation_has_more_query_parameters_than_a_user_can_survey(app):
    document = app.openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            given = (resolved(document, each) for each in operation.get("parameters", ()))
            names = [each["name"] for each in given if each["in"] == "query"]
            assert len(names) <= MAX_PARAMETERS, (method, path, names)


async def test_the_sample_of_the_readme_is_a_valid_body(client):
    answer = await client.get("/sample.json")
    assert answer.headers["content-type"] == "application/json"
    rows = answer.json()
    report = calibrant.evaluate(rows["probabilities"], rows["labels"], ["ece"])
    assert report["ece"].n == 2000 and report["ece"].above_null
    temperature = calibrant.fit_temperature(rows["probabilities"], rows["labels"])
    assert temperature.verdict == "ok" and 1.5 < float(temperature) < 1.8
