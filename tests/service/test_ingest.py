"""Predictions: receipts, repeats, partial batches, waiting."""

import asyncio
from datetime import UTC, datetime, timedelta

import numpy as np
import orjson
import pytest

from calibrant.core.batch import Batch
from calibrant_server.service.ingest import service as ingest_service
from tests.service.conftest import PREDICTIONS, problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits/predictions"


async def test_a_first_batch_makes_the_model_and_is_answered_with_a_receipt(
    client, inbox, registry
):
    answer = await client.post(URL, json={**PREDICTIONS, "batch_id": "b1"})
    assert answer.status_code == 202
    assert answer.json() == {
        "model": "digits",
        "batch_id": "b1",
        "status": "accepted",
        "accepted": 2,
        "rejected": 0,
        "duplicate": False,
        "durability": "everysec",
        "errors": [],
    }
    assert answer.headers["location"] == "/v1/models/digits/batches/b1"
    config = registry.configs["default", "digits"]
    assert (config.task, config.n_classes) == ("multiclass", 3)
    batch = Batch.unpack(inbox.deliveries[0].payload)
    assert batch.row_total.tolist() == [1, 3]
    np.testing.assert_array_equal(batch.probabilities, PREDICTIONS["probabilities"])


async def test_confidences_make_a_binary_model(client, registry):
    await client.post(URL, json={"confidences": [0.2, 0.9], "labels": [0, 1]})
    assert registry.configs["default", "digits"].task == "binary"


async def test_a_first_batch_of_more_classes_than_a_model_has_makes_none(client, registry):
    answer = await client.post(URL, json={"logits": [[0.5] * 10_001], "ids": ["i1"]})
    [error] = problem(answer, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == ("/logits", "n_classes")
    assert "10000" in error["detail"] and not registry.configs


async def test_without_an_id_the_server_makes_one(client):
    answers = [await client.post(URL, json=PREDICTIONS) for _ in range(2)]
    ids = [answer.json()["batch_id"] for answer in answers]
    assert len(set(ids)) == 2
    assert not any(answer.json()["duplicate"] for answer in answers)


async def test_the_same_id_and_content_is_a_duplicate_and_other_content_a_conflict(client, inbox):
    body = {**PREDICTIONS, "batch_id": "b1"}
    await client.post(URL, json=body)
    again = await client.post(URL, json=body)
    assert (again.status_code, again.json()["duplicate"]) == (202, True)
    inbox.merge()
    merged = await client.post(URL, json=body)
    assert (merged.status_code, merged.json()["duplicate"]) == (200, True)
    other = await client.post(URL, json={**body, "labels": [1, 1]})
    problem(other, 409, "batch-conflict")


async def test_idempotency_key_is_the_batch_id(client):
    keyed = await client.post(URL, json=PREDICTIONS, headers={"Idempotency-Key": "k1"})
    assert keyed.json()["batch_id"] == "k1"
    same = await client.post(
        URL, json={**PREDICTIONS, "batch_id": "k1"}, headers={"Idempotency-Key": '"k1"'}
    )
    assert same.json()["duplicate"] is True
    differing = await client.post(
        URL, json={**PREDICTIONS, "batch_id": "k2"}, headers={"Idempotency-Key": "k1"}
    )
    problem(differing, 422, "invalid-name")


async def test_partial_takes_the_good_rows_and_points_at_the_bad(client, inbox):
    body = {
        "probabilities": [[0.7, 0.3], [0.7, 0.7], [0.5, 0.5]],
        "labels": [0, 1, None],
    }
    rejected = problem(await client.post(URL, json=body), 422, "invalid-input")
    assert rejected["errors"][0]["pointer"] == "/probabilities/1"
    assert not inbox.deliveries
    answer = (await client.post(URL, params={"partial": "true"}, json=body)).json()
    assert (answer["accepted"], answer["rejected"]) == (1, 2)
    assert [(e["pointer"], e["rule"]) for e in answer["errors"]] == [
        ("/probabilities/1", answer["errors"][0]["rule"]),
        ("/labels/2", "labels_required"),
    ]


async def test_partial_leaves_out_rows_that_are_out_of_time_when_they_arrive(
    client, inbox, monkeypatch
):
    now = datetime.now(UTC)
    body = {
        "batch_id": "b",
        "probabilities": [[0.7, 0.3], [0.2, 0.8], [0.7, 0.7], [0.6, 0.4]],
        "labels": [0, 1, 1, 1],
        "event_times": [(now + timedelta(hours=h)).isoformat() for h in (-1, 1, 0, 0)],
    }
    answer = (await client.post(URL, params={"partial": "true"}, json=body)).json()
    assert (answer["accepted"], answer["rejected"]) == (2, 2)
    assert [(e["pointer"], e["rule"]) for e in answer["errors"]] == [
        ("/probabilities/2", "row_sum"),
        ("/event_times/1", "future"),
    ]
    [delivered] = inbox.deliveries
    assert Batch.unpack(delivered.payload).n == 2

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return now + timedelta(hours=3)

    # Repeated when the row would be in time, it is the same batch.
    monkeypatch.setattr(ingest_service, "datetime", Later)
    again = await client.post(URL, params={"partial": "true"}, json=body)
    assert again.json()["duplicate"] is True and len(inbox.deliveries) == 1
    body["event_times"] = body["event_times"][1:2] * 4
    problem(await client.post(URL, params={"partial": "true"}, json=body), 409, "batch-conflict")


async def test_partial_with_nothing_good_is_rejected(client, inbox):
    body = {"probabilities": [[0.7, 0.7]], "labels": [0]}
    problem(await client.post(URL, params={"partial": "true"}, json=body), 422, "invalid-input")
    assert not inbox.deliveries


async def test_rows_without_labels_are_rejected_with_their_row(client):
    some = await client.post(URL, json={**PREDICTIONS, "labels": [0, None]})
    [error] = problem(some, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == ("/labels/1", "labels_required")
    none = await client.post(URL, json={"probabilities": PREDICTIONS["probabilities"]})
    assert problem(none, 422, "invalid-input")["errors"][0]["rule"] == "labels_required"


async def test_prefer_wait_answers_when_merged(client, inbox):
    async def later():
        await asyncio.sleep(0.03)
        inbox.merge()

    merging = asyncio.create_task(later())
    answer = await client.post(URL, json=PREDICTIONS, headers={"Prefer": "wait=60"})
    await merging
    assert (answer.status_code, answer.json()["status"]) == (200, "merged")
    assert answer.headers["preference-applied"] == "wait=60"


async def test_prefer_wait_is_at_most_a_minute_and_ends_in_202(client):
    answer = await client.post(URL, json=PREDICTIONS, headers={"Prefer": "wait=0"})
    assert answer.status_code == 202
    inbox_free = await client.post(URL, json=PREDICTIONS, headers={"Prefer": "respond-async"})
    assert "preference-applied" not in inbox_free.headers


async def test_records_a_line(client, inbox):
    lines = [
        {"batch_id": "n1"},
        {"probability": [0.7, 0.2, 0.1], "label": 0, "id": "a", "slice": {"site": "A"}},
        {"probability": [0.1, 0.8, 0.1], "label": [1, 2], "id": "b", "slice": {"site": "B"}},
    ]
    data = b"\n".join(map(orjson.dumps, lines)) + b"\n\n"
    answer = await client.post(URL, content=data, headers={"Content-Type": "application/x-ndjson"})
    assert (answer.status_code, answer.json()["batch_id"]) == (202, "n1")
    batch = Batch.unpack(inbox.deliveries[0].payload)
    assert batch.ids.tolist() == ["a", "b"]
    assert batch.slices["site"].tolist() == ["A", "B"]
    assert batch.row_total.tolist() == [1, 2]


async def test_records_and_columns_of_the_same_content_are_the_same_batch(client):
    await client.post(URL, json={**PREDICTIONS, "batch_id": "b1"})
    rows = zip(PREDICTIONS["probabilities"], PREDICTIONS["labels"], strict=True)
    data = b"\n".join(orjson.dumps({"probabilities": p, "labels": y}) for p, y in rows)
    headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "b1"}
    assert (await client.post(URL, content=data, headers=headers)).json()["duplicate"] is True


async def test_violations_in_records_are_named_by_line(client):
    lines = [
        b'{"probability": [0.7, 0.3], "label": 0}',
        b"",
        b'{"probability": [0.7, 0.7], "label": 0}',
    ]
    headers = {"Content-Type": "application/x-ndjson"}
    answer = await client.post(URL, content=b"\n".join(lines), headers=headers)
    [error] = problem(answer, 422, "invalid-input")["errors"]
    assert error["pointer"] == "/3/probability"
    broken = await client.post(URL, content=lines[0] + b"\n{oops}\n", headers=headers)
    body = problem(broken, 400, "malformed-body")
    assert body["errors"][0]["pointer"] == "/2" and "Line 2" in body["detail"]
    unknown = await client.post(
        URL, content=lines[0] + b'\n{"probability": [0.7, 0.3], "lable": 0}', headers=headers
    )
    assert problem(unknown, 422, "invalid-input")["errors"][0]["pointer"] == "/2/lable"


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ([b'{"probability": [0.7, 0.3]', b'"label": 0}'], "/1"),
        (
            [b'{"probability": [0.7, 0.3], "label": 0},{"probability": [0.7, 0.3], "label": 0}'],
            "/1",
        ),
        ([b'{"probability": [0.7', b'0.3], "label": 0}', b'{"label": 0},{"label": 0}'], "/1"),
        ([b'{"label": [{"a": 0}', b'{"b": 1}]}', b'{"label": 0},{"label": 0}'], None),
        ([b'{"label": 0}', b'[{"label": 0}]'], "/2"),
    ],
)
async def test_lines_that_only_make_sense_together_are_rejected(client, lines, place):
    headers = {"Content-Type": "application/x-ndjson"}
    answer = await client.post(URL, content=b"\n".join(lines), headers=headers)
    assert answer.status_code in (400, 422)
    if place is not None:
        assert problem(answer, 400, "malformed-body")["errors"][0]["pointer"] == place


async def test_a_field_that_a_later_line_lacks_or_does_not_know(client):
    good = b'{"probabilities": [0.7, 0.3], "label": 0}'
    headers = {"Content-Type": "application/x-ndjson"}
    for line, pointer in (
        (b'{"probabilities": [0.7, 0.3], "label": 0, "unit": "a"}', "/1/unit"),
        (b'{"probabilities": [0.7, 0.3], "colour": 0}', "/2/colour"),
        (
            b'{"probabilities": [0.7, 0.3], "probability": [0.7, 0.3], "label": 0}',
            "/2/probabilities",
        ),
    ):
        answer = await client.post(URL, content=good + b"\n" + line, headers=headers)
        assert pointer in [e["pointer"] for e in problem(answer, 422, "invalid-input")["errors"]]


async def test_a_batch_must_agree_with_its_model(client):
    await client.post(URL, json=PREDICTIONS)
    other = await client.post(URL, json={"probabilities": [[0.5, 0.5]], "labels": [0]})
    problem(other, 422, "invalid-input")


async def test_batches_can_be_looked_up(client, inbox):
    await client.post(URL, json={**PREDICTIONS, "batch_id": "b1"})
    answer = await client.get("/v1/models/digits/batches/b1")
    assert (answer.status_code, answer.json()["status"]) == (200, "accepted")
    inbox.merge()
    assert (await client.get("/v1/models/digits/batches/b1")).json()["status"] == "merged"
    problem(await client.get("/v1/models/digits/batches/b2"), 404, "batch-unknown")
    problem(await client.get("/v1/models/other/batches/b1"), 404, "model-unknown")
