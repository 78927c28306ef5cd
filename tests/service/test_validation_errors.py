"""What an error states about a value that a body or a query cannot have: what came, what is expected, and never a text of pydantic."""

import re

import pytest

from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
M = "/v1/models/digits"
# A body of settings, the place of the error, and its sentence.
SETTINGS = [
    ({"alarm": {"webhooks": ["http://a.b"]}}, "/alarm/webhooks/0", "Received 'http://a.b' for webhooks; expected an object with url, format, secret."),
    ({"alarm": {"webhooks": [3]}}, "/alarm/webhooks/0", "Received 3 for webhooks; expected an object with url, format, secret."),
    ({"alarm": "on"}, "/alarm", r"Received 'on' for alarm; expected an object with tolerance, .*, webhooks."),
    ({"alarm": {"receivers": ["a"]}}, "/alarm/receivers", r"Received unknown field 'receivers'; expected one of tolerance, .*, webhooks."),
    ({"tags": {f"t{i}": "x" for i in range(21)}}, "/tags", "Received 21 entries for tags; expected at most 20 entries."),
    ({"tags": {"site": "  "}}, "/tags/site", "Received a text of spaces; expected a name that can be read."),
    ({"tags": ["a"]}, "/tags", "Received a list for tags; expected an object."),
    ({"slices": ["site"]}, "/slices", "Received a list for slices; expected an object."),
    ({"composites": [1]}, "/composites", "Received a list for composites; expected an object."),
    ({"cloudevents": {"scores": "logits", "slices": ["a"]}}, "/cloudevents/slices", "Received a list for slices; expected an object."),
    ({"label_horizon": "7 days"}, "/label_horizon", "Received '7 days' for label_horizon; expected a duration such as P7D, PT12H, 7d, 24h or 30m."),
    ({"task": "ranking"}, "/task", "Received 'ranking' for task; expected 'binary', 'multiclass', 'segmentation' or 'multilabel'."),
    ({"classes": 0}, "/classes", "Received 0 classes; a binary model has 2, others have 2 to 10000."),
]  # fmt: skip
QUERIES = [
    ("metrics?bins=ten", "/bins", "Received 'ten' for bins; expected an integer."),
    ("maps/0", "/version", "Received '0' for version; expected at least 1."),
]


@pytest.mark.parametrize(("given", "pointer", "sentence"), SETTINGS)
async def test_settings(client, given, pointer, sentence):
    body = {"task": "multiclass", "classes": 3} | given
    found = problem(await client.put(M, json=body), 422, "invalid-input")["errors"][0]
    assert found["pointer"].startswith(pointer)
    assert re.fullmatch(sentence, found["detail"]), found["detail"]


@pytest.mark.parametrize(("query", "pointer", "sentence"), QUERIES)
async def test_queries_and_paths(client, query, pointer, sentence):
    found = (await client.get(f"{M}/{query}")).json()
    assert found["detail"] == sentence
    assert found["errors"][0]["pointer"] == pointer


async def test_a_number_that_json_does_not_have(client):
    body = b'{"probabilities": [0.7, NaN], "labels": [1, 0]}'
    response = await client.post(
        f"{M}/predictions", content=body, headers={"Content-Type": "application/json"}
    )
    detail = problem(response, 400, "malformed-body")["detail"]
    assert "JSON has no NaN: line " in detail and "Leave out predictions without a score" in detail


async def test_a_secret_is_not_repeated(client):
    hooks = [{"url": "https://a.b/c", "secret": ["hush"]}, {"url": "https://a.b/d", "secret": 5550}]
    body = {"task": "binary", "alarm": {"webhooks": hooks}}
    response = await client.put(M, json=body)
    problem(response, 422, "invalid-input")
    assert "hush" not in response.text and "5550" not in response.text


EVENT = {"kind": "other", "name": "a", "at": "2026-11-20T09:00:00Z"}
EVENTS = [
    ({"at": "0001-01-01T00:00:00+14:00"}, "Received '0001-01-01T00:00:00+14:00' for at; expected a time in the years 1970 to 9999 (UTC)."),
    ({"at": "9999-12-31T23:59:59-14:00"}, "Received '9999-12-31T23:59:59-14:00' for at; expected a time in the years 1970 to 9999 (UTC)."),
    ({"at": "1969-12-31T23:59:59Z"}, "Received '1969-12-31T23:59:59Z' for at; expected a time in the years 1970 to 9999 (UTC)."),
    ({"at": "today"}, "Received 'today' for at; expected an RFC 3339 timestamp with its offset, such as 2026-11-20T09:00:00Z."),
    ({"name": "x" * 101}, f"Received '{'x' * 60}…' for name; expected a text of at most 100 characters."),
]  # fmt: skip


@pytest.mark.parametrize(("given", "sentence"), EVENTS)
async def test_events(client, given, sentence):
    await client.put(M, json={"task": "binary"})
    response = await client.post(f"{M}/events", json=EVENT | given)
    assert problem(response, 422, "invalid-input")["errors"][0]["detail"] == sentence


async def test_a_field_is_named_as_it_is_sent(client):
    await client.put(M, json={"task": "binary"})
    response = await client.post(f"{M}/reports", json={"threshold": 2})
    detail = problem(response, 422, "invalid-input")["errors"][0]["detail"]
    assert detail.startswith("Received unknown field 'threshold'; expected one of from, to, window")


@pytest.mark.parametrize(
    ("version", "shown"), [("", "''"), (["2"], "a list"), ("x" * 101, f"'{'x' * 60}…'")]
)
async def test_a_version_of_the_model(client, version, shown):
    body = {"confidences": [0.5], "labels": [1], "model_version": version}
    response = await client.post(f"{M}/predictions", json=body)
    found = problem(response, 422, "invalid-input")["errors"][0]["detail"]
    expected = "expected a name of at most 100 characters, such as 2.1."
    assert found == f"Received {shown} for model_version; {expected}"
