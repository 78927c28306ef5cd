"""Hostile and careless input: each is rejected with the right problem, and nothing is handed over."""

import gzip
import json

import numpy as np
import orjson
import pytest
import zstandard

from tests.service.conftest import PREDICTIONS, problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits/predictions"
JSON = {"Content-Type": "application/json"}
GOOD = [[0.7, 0.3]]


def body(**columns) -> bytes:
    return json.dumps({"probabilities": GOOD, "labels": [0], **columns}).encode()


MALFORMED = {
    "NaN": b'{"probabilities": [[NaN, 1]], "labels": [0]}',
    "Infinity": b'{"logits": [[Infinity, 1]], "labels": [0]}',
    "1e400": b'{"logits": [[1e400, 1]], "labels": [0]}',
    "deep lists": b'{"probabilities": ' + b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep and closed": b"[" * 100_000 + b"]" * 100_000,
    "not UTF-8": b'{"ids": ["\xff\xfe"], "probabilities": [[0.7, 0.3]], "labels": [0]}',
    "lone surrogate": b'{"ids": ["\\ud800"], "probabilities": [[0.7, 0.3]], "labels": [0]}',
    "cut short": b'{"probabilities": [[0.7, 0.3]',
    "empty": b"",
    "two documents": b"{} {}",
    "repeated key": b'{"labels": [1], "probabilities": [[0.7, 0.3]], "labels": [0]}',
    "repeated key with escapes": (
        b'{"labels": [1], "probabilities": [[0.7, 0.3]], "label\\u0073": [0], "ids": ["a"]}'
    ),
    "repeated key within slices": (
        b'{"labels": [1], "probabilities": [[0.7, 0.3]], "slices": {"a": ["x"], "a": ["y"]}}'
    ),
    "repeated key hidden by an escaped colon": (
        b'{"labels": [1], "labels": [0], "probabilities": [[0.7, 0.3]], "ids": ["\\u003a"]}'
    ),
}

INVALID = {
    "rows that do not sum to 1": (body(probabilities=[[0.7, 0.7]]), "/probabilities/0"),
    "a negative probability": (body(probabilities=[[1.2, -0.2]]), "/probabilities/0"),
    "no class": (body(probabilities=[[]]), "/probabilities"),
    "ragged rows": (
        body(probabilities=[[0.7, 0.3], [0.5, 0.25, 0.25], [0.5, 0.5]], labels=[0, 0, 0]),
        "/probabilities/1",
    ),
    "strings as numbers": (body(probabilities=[["0.7", "0.3"]]), "/probabilities/0"),
    "null as a number": (body(probabilities=[[None, 1.0]]), "/probabilities/0"),
    "booleans as numbers": (body(probabilities=[[True, False]]), "/probabilities/0"),
    "a boolean label of three classes": (
        body(probabilities=[[0.5, 0.25, 0.25]], labels=[True]),
        "/labels/0",
    ),
    "a fractional label": (body(labels=[0.5]), "/labels/0"),
    "a whole label out of range written as a float": (body(labels=[2.0]), "/labels/0"),
    "a label out of range": (body(labels=[2]), "/labels/0"),
    "a negative label": (body(labels=[-1]), "/labels/0"),
    "a huge label": (body(labels=[10**30]), "/labels/0"),
    "a label beyond int64": (body(labels=[2**63 + 1]), "/labels/0"),
    "a fractional rating": (body(labels=[[0, 0.5]]), "/labels/0"),
    "a nested rating": (body(labels=[[[0]]]), "/labels/0"),
    "a string label": (body(labels=["0"]), "/labels/0"),
    "wrong lengths": (body(labels=[0, 1]), "/labels"),
    "both kinds of label": (body(label_counts=[[1, 0]]), "/label_counts"),
    "two kinds of score": (body(confidences=[0.5]), ""),
    "no score": (b'{"labels": [0]}', ""),
    "an empty batch": (body(probabilities=[], labels=[]), "/probabilities"),
    "an empty object": (b"{}", ""),
    "an unknown field": (body(lables=[0]), "/lables"),
    "a column that is no list": (body(ids="a"), "/ids"),
    "a null column of scores": (b'{"probabilities": null, "labels": [0]}', ""),
    "slices that are no object": (body(slices=["A"]), "/slices"),
    "a slice that is no list": (body(slices={"site": "A"}), "/slices/site"),
    "an id of two lines": (body(ids=["a\nb"]), "/ids/0"),
    "an id too long": (body(ids=["a" * 257]), "/ids/0"),
    "an empty id": (body(ids=[""]), "/ids/0"),
    "an id that is a fraction": (body(ids=[7.5]), "/ids/0"),
    "the same id twice": (
        body(probabilities=GOOD * 2, labels=[0, 0], ids=["a", "a"]),
        "/ids/1",
    ),
    "a negative weight": (body(weights=[-1]), "/weights/0"),
    "a time without offset": (body(event_times=["2026-01-01T00:00:00"]), "/event_times/0"),
    "a time as a number": (body(event_times=[1767225600]), "/event_times/0"),
    "a time in the future": (body(event_times=["2999-01-01T00:00:00Z"]), "/event_times/0"),
    "a batch_id that is a number": (body(batch_id=7), "/batch_id"),
    "a list as body": (b"[]", ""),
    "a number as body": (b"7", ""),
    "a string as body": (b'"x"', ""),
}

COUNTS = {
    "a negative count": [[-1, 2]],
    "a fractional count": [[0.5, 1]],
    "a short row": [[1]],
    "a huge count": [[10**30, 1]],
    "a string": ["11"],
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed(client, inbox, name):
    answer = await client.post(URL, content=MALFORMED[name], headers=JSON)
    problem(answer, 400, "malformed-body")
    assert not inbox.deliveries


@pytest.mark.parametrize("name", INVALID)
async def test_invalid(client, inbox, name):
    data, pointer = INVALID[name]
    found = problem(await client.post(URL, content=data, headers=JSON), 422, "invalid-input")
    assert found["errors"][0]["pointer"].startswith(pointer)
    assert not inbox.deliveries


@pytest.mark.parametrize("name", COUNTS)
async def test_invalid_counts(client, inbox, name):
    data = json.dumps({"probabilities": GOOD, "label_counts": COUNTS[name]}).encode()
    found = problem(await client.post(URL, content=data, headers=JSON), 422, "invalid-input")
    assert found["errors"][0]["pointer"].startswith("/label_counts/0")
    assert not inbox.deliveries


async def test_a_key_in_a_string_is_not_a_repeated_key(client):
    data = body(ids=["labels:1"], event_times=["2026-01-01T00:00:00Z"])
    assert (await client.post(URL, content=data, headers=JSON)).status_code == 202


async def test_an_announced_body_over_the_limit_is_rejected_unread(client):
    headers = {**JSON, "Content-Length": str(100 * 1024 * 1024)}
    problem(await client.post(URL, content=b"{}", headers=headers), 413, "body-too-large")


async def test_a_streamed_body_over_the_limit_is_rejected(client):
    sent = 0

    async def chunks():
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b" " * 1024 * 1024

    problem(await client.post(URL, content=chunks(), headers=JSON), 413, "body-too-large")


async def test_a_content_length_that_is_no_number_is_rejected(client):
    headers = {**JSON, "Content-Length": "1e3"}
    problem(await client.post(URL, content=b"{}", headers=headers), 400, "malformed-request")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_compressed_bodies(client, inbox, coding):
    plain = orjson.dumps(PREDICTIONS)
    data = gzip.compress(plain) if coding == "gzip" else zstandard.compress(plain)
    headers = {**JSON, "Content-Encoding": coding}
    assert (await client.post(URL, content=data, headers=headers)).status_code == 202
    cut = await client.post(URL, content=data[:-6], headers=headers)
    problem(cut, 400, "malformed-body")
    problem(await client.post(URL, content=plain, headers=headers), 400, "malformed-body")
    two = (gzip.compress if coding == "gzip" else zstandard.compress)(b"  ") + data
    assert (await client.post(URL, content=two, headers=headers)).status_code == 202


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_bombs(client, coding):
    zeros = b"0" * (200 * 1024 * 1024)
    data = gzip.compress(zeros, 6) if coding == "gzip" else zstandard.compress(zeros)
    headers = {**JSON, "Content-Encoding": coding}
    problem(await client.post(URL, content=data, headers=headers), 413, "body-too-large")


async def test_many_empty_frames_are_rejected(client):
    headers = {**JSON, "Content-Encoding": "gzip"}
    data = gzip.compress(b"") * 10_000
    problem(await client.post(URL, content=data, headers=headers), 400, "malformed-body")


async def test_codings_and_types_that_are_not_read(client):
    coded = await client.post(URL, content=b"{}", headers={**JSON, "Content-Encoding": "br"})
    problem(coded, 415, "coding-unsupported")
    twice = await client.post(
        URL, content=b"{}", headers={**JSON, "Content-Encoding": "gzip, gzip"}
    )
    problem(twice, 415, "coding-unsupported")
    for media in ("application/vnd.apache.arrow.file", "text/plain", "application/xml"):
        typed = await client.post(URL, content=b"{}", headers={"Content-Type": media})
        detail = problem(typed, 415, "media-type-unsupported")["detail"]
        assert "application/json" in detail and "application/x-ndjson" in detail
    problem(await client.post(URL, content=b"{}"), 415, "media-type-unsupported")
    latin = await client.post(
        URL, content=b"{}", headers={"Content-Type": "application/json; charset=latin-1"}
    )
    problem(latin, 415, "media-type-unsupported")
    utf8 = {"Content-Type": "application/json; charset=UTF-8"}
    assert (await client.post(URL, content=body(), headers=utf8)).status_code == 202


async def test_floods_of_small_lists_are_rejected_before_they_fill_memory(client):
    data = b'{"labels": [' + b"[]," * 4_000_000 + b"[]]}"
    problem(await client.post(URL, content=data, headers=JSON), 413, "body-too-large")


@pytest.mark.parametrize("path", ["a%2Fb", "a%2fb/predictions", "..%2F..%2Fetc"])
async def test_an_encoded_slash_in_an_id(client, path):
    answer = await client.get(f"/v1/models/{path}")
    assert problem(answer, 422, "invalid-name")["errors"][0]["rule"] == "id"


async def test_a_slash_in_an_id(client):
    answer = await client.post("/v1/models/a/b/predictions", content=body(), headers=JSON)
    assert problem(answer, 404, "path-unknown")["errors"][0]["rule"] == "id"


@pytest.mark.parametrize("model", ["a b", "ä", "a" * 129, "a%00", "a%0A"])
async def test_ids_that_break_the_rule(client, model):
    answer = await client.post(f"/v1/models/{model}/predictions", content=body(), headers=JSON)
    problem(answer, 422, "invalid-name")


@pytest.mark.parametrize("name", [".", ".."])
async def test_names_that_a_path_takes_for_folders(client, name):
    encoded, made = (
        name.replace(".", "%2E"),
        await client.put("/v1/models/digits", json={"task": "binary"}),
    )
    assert made.status_code == 201
    places = (
        encoded,
        f"digits/baselines/{encoded}",
        f"digits/batches/{encoded}",
        f"digits/predictions/{encoded}",
    )
    by_id = ("id", "Received . or ..")
    expected = (by_id, by_id, by_id, ("name", "resolves as a folder"))
    for method, place, (rule, detail) in zip(
        ("GET", "GET", "GET", "DELETE"), places, expected, strict=True
    ):
        [error] = problem(await client.request(method, f"/v1/models/{place}"), 422, "invalid-name")[
            "errors"
        ]
        assert error["rule"] == rule and detail in error["detail"]
    for place in ("ids", "units", "cases"):
        [error] = problem(
            await client.post(URL, content=body(**{place: [name]}), headers=JSON),
            422,
            "invalid-input",
        )["errors"]
        assert (error["pointer"], error["rule"]) == (
            f"/{place}/0",
            "name",
        ) and "resolves as a folder" in error["detail"]
    labels = await client.post("/v1/models/digits/labels", json={"ids": [name], "labels": [0]})
    assert problem(labels, 422, "invalid-input")["errors"][0]["pointer"] == "/ids/0"
    problem(await client.post(URL, content=body(batch_id=name), headers=JSON), 422, "invalid-name")
    problem(
        await client.put("/v1/models/digits", json={"task": "binary", "slices": {name: None}}),
        422,
        "invalid-input",
    )
    # What clients make of a path that ends in such a name deletes nothing.
    problem(await client.delete("/v1/models/digits/"), 404, "path-unknown")
    assert (await client.get("/v1/models/digits")).status_code == 200
    assert (await client.post(URL, content=body(ids=[f"{name}a"]), headers=JSON)).status_code == 202


@pytest.mark.parametrize("key", ["a b", "", "a/b", "a" * 129])
async def test_idempotency_keys_that_break_the_rule(client, key):
    answer = await client.post(URL, content=body(), headers={**JSON, "Idempotency-Key": key})
    problem(answer, 422, "invalid-name")


async def test_unknown_query_parameters(client):
    answer = await client.post(URL, params={"partail": "true"}, content=body(), headers=JSON)
    [error] = problem(answer, 422, "invalid-query")["errors"]
    assert (error["pointer"], error["rule"]) == ("/partail", "unknown_parameter")


async def test_too_many_panes_says_how_to_split(client):
    n = 70
    columns = {
        "probabilities": GOOD * n,
        "labels": [0] * n,
        "event_times": [f"2026-01-{1 + i // 24:02d}T{i % 24:02d}:00:00Z" for i in range(n)],
    }
    [error] = problem(await client.post(URL, json=columns), 422, "invalid-input")["errors"]
    assert error["rule"] == "too_many_panes" and "Split" in error["detail"]


async def test_rows_are_counted_as_sent_when_others_were_dropped(client):
    columns = {
        "probabilities": [[0.9, 0.9], [0.5, 0.5], [0.5, 0.5]],
        "labels": [0, 0, 0],
        "event_times": ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2999-01-01T00:00:00Z"],
    }
    answer = await client.post(URL, params={"partial": "true"}, json=columns)
    assert [error["pointer"] for error in answer.json()["errors"]] == [
        "/probabilities/0",
        "/event_times/2",
    ]


async def test_large_logits_are_taken(client, inbox):
    answer = await client.post(URL, json={"logits": [[800.0, -800.0], [0, 0]], "labels": [0, 1]})
    assert answer.status_code == 202


async def test_exact_zeros_and_ones_are_numbers(client):
    answer = await client.post(URL, json={"probabilities": [[1, 0], [0.0, 1.0]], "labels": [0, 1]})
    assert answer.status_code == 202


async def test_a_large_batch_goes_through(client, inbox):
    rng = np.random.default_rng(3)
    probabilities = rng.dirichlet(np.ones(10), 5000)
    labels = rng.integers(0, 10, 5000).tolist()
    answer = await client.post(
        URL, json={"probabilities": probabilities.tolist(), "labels": labels}
    )
    assert answer.json()["accepted"] == 5000


ESCAPED = {
    "an unknown column": (b'{"a/b~c": 1}', "/a~1b~0c", 422),
    "a slice key": (b'{"slices": {"a/b": 1}, "probabilities": [[0.5, 0.5]]}', "/slices/a~1b", 422),
    "a repeated key": (b'{"a/b": 1, "a/b": 2}', "/a~1b", 400),
}


@pytest.mark.parametrize("name", ESCAPED)
async def test_pointers_are_escaped(client, name):
    data, pointer, status = ESCAPED[name]
    answer = await client.post(URL, content=data, headers=JSON)
    assert answer.status_code == status and answer.json()["errors"][0]["pointer"] == pointer


async def test_the_detail_names_the_place(client):
    answer = await client.post(URL, content=body(ids=["a\tb"]), headers=JSON)
    assert problem(answer, 422, "invalid-input")["detail"].startswith("/ids/0: ")


async def test_what_a_compressed_body_may_become_is_reported(client):
    data = gzip.compress(b" " * (5 * 1024 * 1024))
    answer = await client.post(URL, content=data, headers={**JSON, "Content-Encoding": "gzip"})
    assert "when decompressed" in problem(answer, 413, "body-too-large")["detail"]
