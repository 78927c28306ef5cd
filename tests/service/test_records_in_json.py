"""Records in JSON, and flat probabilities of binary models: the same batches as in columns."""

import pytest

from tests.service.conftest import problem

pytestmark = pytest.mark.anyio

URL = "/v1/models/m/predictions"
COLUMNS = {
    "batch_id": "b1",
    "ids": ["p1", "p2"],
    "probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]],
    "labels": [0, [1, 1, 2]],
    "units": ["u1", "u2"],
    "event_times": ["2026-11-20T09:00:00Z", "2026-11-20T09:00:01Z"],
    "weights": [1, 2],
}
RECORDS = {
    "batch_id": "b1",
    "predictions": [
        {
            "id": "p1",
            "probabilities": [0.7, 0.2, 0.1],
            "label": 0,
            "unit": "u1",
            "event_time": "2026-11-20T09:00:00Z",
            "weight": 1,
        },
        {
            "id": "p2",
            "probabilities": [0.1, 0.8, 0.1],
            "labels": [1, 1, 2],
            "unit": "u2",
            "event_time": "2026-11-20T09:00:01Z",
            "weight": 2,
        },
    ],
}


def alike(first, *others):
    """The batch with other records."""
    return {**RECORDS, "predictions": [first, *others]}


async def test_records_are_the_same_batch_as_columns(client):
    mixed = [{**each, "labels": each.get("labels", [0])} for each in RECORDS["predictions"]]  # type: ignore[attr-defined]
    for each in mixed:
        each.pop("label", None)
    first = await client.post(URL, json=COLUMNS | {"labels": [[0], [1, 1, 2]]})
    again = await client.post(URL, json={"batch_id": "b1", "predictions": mixed})
    assert (first.status_code, again.status_code) == (202, 202), again.text
    assert again.json()["duplicate"] is True and again.json()["accepted"] == 2


async def test_label_and_labels_of_one_record_are_rejected(client):
    both = {**RECORDS["predictions"][0], "labels": [0]}
    found = problem(await client.post(URL, json=alike(both)), 422, "invalid-input")
    assert found["errors"][0]["pointer"] == "/predictions/0/labels"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"probabilities": [0.7, 0.2, 0.2]}, "/predictions/1/probabilities"),
        ({"labels": [9]}, "/predictions/1/labels"),
        ({"colour": "red"}, "/predictions/1/colour"),
        ({"id": "a\tb"}, "/predictions/1/id"),
        ({"unit": None}, "/predictions/1/unit"),
    ],
)
async def test_a_violation_points_at_the_record_as_it_was_sent(client, change, pointer):
    first = {**RECORDS["predictions"][0], "labels": [0]}
    del first["label"]
    second = {**RECORDS["predictions"][1], **change}
    found = problem(await client.post(URL, json=alike(first, second)), 422, "invalid-input")
    assert found["errors"][0]["pointer"] == pointer, found


@pytest.mark.parametrize("predictions", [None, {}, "x", [1], [[]]])
async def test_other_records_are_rejected(client, predictions):
    answer = await client.post(URL, json={"predictions": predictions})
    assert problem(answer, 422, "invalid-input")["errors"][0]["pointer"].startswith("/predictions")


async def test_columns_beside_records_are_rejected(client):
    answer = await client.post(URL, json={**RECORDS, "ids": ["p1", "p2"]})
    assert problem(answer, 422, "invalid-input")["errors"][0]["pointer"] == "/ids"


async def test_partial_batches_of_records(client):
    bad = {**RECORDS["predictions"][0], "probabilities": [2, 0, 0], "id": "p0"}
    good = RECORDS["predictions"][0]
    answer = (await client.post(f"{URL}?partial=true", json=alike(bad, good))).json()
    assert (answer["accepted"], answer["rejected"]) == (1, 1)
    assert answer["errors"][0]["pointer"].startswith("/predictions/0/probabilities")


async def test_flat_probabilities_are_confidences(client):
    flat = {"batch_id": "b", "probabilities": [0.9, 0.2], "labels": [1, 0]}
    first = await client.post(URL, json=flat)
    assert (
        first.status_code == 202 and (await client.get("/v1/models/m")).json()["task"] == "binary"
    )
    named = {"batch_id": "b", "confidences": [0.9, 0.2], "labels": [1, 0]}
    assert (await client.post(URL, json=named)).json()["duplicate"] is True
    records = [{"probabilities": 0.9, "label": 1}, {"probabilities": 0.2, "label": 0}]
    answer = await client.post(URL, json={"batch_id": "b", "predictions": records})
    assert answer.json()["duplicate"] is True, answer.text


async def test_flat_probabilities_point_at_themselves(client):
    bad = {"probabilities": [0.9, 1.2], "labels": [1, 0]}
    found = problem(await client.post(URL, json=bad), 422, "invalid-input")
    assert found["errors"][0]["pointer"] == "/probabilities/1"
    await client.put("/v1/models/three", json={"classes": 3})
    answer = await client.post(
        "/v1/models/three/predictions", json={"probabilities": [0.9], "labels": [1]}
    )
    assert problem(answer, 422, "invalid-input")["errors"][0]["pointer"] == "/probabilities"


async def test_class_names_are_accepted_in_records(client):
    await client.put("/v1/models/named", json={"classes": ["cat", "dog"], "task": "binary"})
    records = [{"probabilities": 0.9, "label": "dog"}, {"probabilities": 0.2, "label": "cat"}]
    answer = await client.post("/v1/models/named/predictions", json={"predictions": records})
    assert answer.status_code == 202, answer.text
