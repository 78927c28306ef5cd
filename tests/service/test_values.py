"""Values as people have them, at every form of a body: labels of any type, missing ratings, one-hot rows, sums, times, names."""

import numpy as np
import orjson
import pyarrow as pa
import pytest

from calibrant_server.service.http.bodies import ARROW, NDJSON
from tests.service.conftest import problem
from tests.service.test_score_tables import arrow_of

pytestmark = pytest.mark.anyio
P = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]
POSTED = {"metrics": "ece,accuracy"}
SINGULAR = {
    "probabilities": "probability",
    "logits": "logit",
    "labels": "label",
    "event_times": "event_time",
}


def lines_of(body):
    """The same batch as NDJSON, what is not a column in the first line."""
    columns = {name: each for name, each in body.items() if name in SINGULAR}
    head = {name: each for name, each in body.items() if name not in columns}
    rows = [
        dict(zip(map(SINGULAR.get, columns), row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    return b"\n".join(map(orjson.dumps, [*([head] if head else []), *rows]))


def records_of(body):
    columns = {name: each for name, each in body.items() if name in SINGULAR}
    rows = [
        {("label" if name == "labels" else "event_time" if name == "event_times" else name): value for name, value in zip(columns, row, strict=True)}
        for row in zip(*columns.values(), strict=True)
    ]  # fmt: skip
    return {name: each for name, each in body.items() if name not in columns} | {
        "predictions": rows
    }


async def scored(client, body, form="json"):
    if form == "lines":
        return await client.post(
            "/v1/score", content=lines_of(body), headers={"Content-Type": NDJSON}, params=POSTED
        )
    return await client.post(
        "/v1/score", json=records_of(body) if form == "records" else body, params=POSTED
    )


FORMS = pytest.mark.parametrize("form", ["json", "lines", "records"])


@FORMS
@pytest.mark.parametrize(
    ("labels", "more"),
    [
        ([0, 1, 1, 2], {}),
        ([0.0, 1.0, 1.0, 2.0], {}),
        ([[0], [1], [1], [2]], {}),
        ([[0, None], [None, 1], [1], [2]], {}),
        ([[0, -100], 1, [1, 255], 2], {"ignore_label": [255, -100]}),
        ([[0, 255], 1, [1, 255], 2], {"ignore_label": 255}),
    ],
)
async def test_labels_of_any_form_score_alike(client, labels, more, form):
    """Gaps .3, .2, .8 and .6, of which those of rows 0, 1 and 3 share no bin: ECE .4750 with 15 bins, by hand .4250 below."""
    response = await scored(client, {"probabilities": P, "labels": labels, **more}, form)
    assert response.status_code == 200, response.text
    found = response.json()
    # Bins: .7 → (.667, .733]; .8 and .8 → (.733, .8], 1 of 2 right; .4 → (.333, .4].
    expected = (0.3 + abs(1.6 - 1) + 0.6) / 4
    assert found["metrics"]["ece"]["value"] == pytest.approx(expected)
    assert found["metrics"]["accuracy"]["value"] == 0.75 and found["n_ratings"] == 4


@FORMS
async def test_truth_values_are_labels_of_two_classes(client, form):
    body = {"probabilities": [0.9, 0.2], "labels": [True, False]}
    found = (await scored(client, body, form)).json()
    assert found["metrics"]["accuracy"]["value"] == 1.0
    three = {"probabilities": P, "labels": [True, 0, 1, 2]}
    problem(await scored(client, three, form), 422, "invalid-input")


@FORMS
async def test_one_hot_rows_are_refused(client, form):
    """They would count as three readers who disagree: ECE .4333."""
    rows = np.eye(3, dtype=int)[[0, 1, 2, 2]].tolist()
    error = problem(
        await scored(client, {"probabilities": P, "labels": rows}, form), 422, "invalid-input"
    )
    assert error["errors"][0]["rule"] == "one_hot"
    few = await scored(client, {"probabilities": P[:3], "labels": rows[:3]}, form)
    assert few.json()["warnings"] == ["possibly_one_hot"] and few.json()["n_ratings"] == 9


async def test_named_raters_are_never_one_hot(client):
    body = {
        "probabilities": P, "labels": np.eye(3, dtype=int)[[0, 1, 2, 2]].tolist(), "raters": [["r", "s", "t"]] * 4,
    }  # fmt: skip
    found = await client.post("/v1/score", json=body, params=POSTED)
    assert found.status_code == 200 and found.json()[
        "warnings" if "warnings" in found.json() else "n_ratings"
    ] in (12, [])


@pytest.mark.parametrize("n", [4, 300])
async def test_one_hot_rows_are_refused_at_ingest(client, n):
    """Small bodies are read by the kernel, large ones in columns."""
    rows = np.eye(3, dtype=int)[np.arange(n) % 3].tolist()
    body = {"probabilities": [[0.25, 0.25, 0.5]] * n, "labels": rows}
    for model in ("new", "known"):
        if model == "known":
            await client.put("/v1/models/known", json={"classes": 3})
        path = f"/v1/models/{model}/predictions"
        error = problem(await client.post(path, json=body), 422, "invalid-input")
        assert error["errors"][0]["rule"] == "one_hot"
        table = pa.table({"probabilities": body["probabilities"], "labels": rows})
        response = await client.post(path, content=arrow_of(table), headers={"Content-Type": ARROW})
        assert problem(response, 422, "invalid-input")["errors"][0]["rule"] == "one_hot"


async def test_rows_that_may_be_one_hot_are_a_warning(client):
    body = {"probabilities": [[0.5, 0.5]] * 30, "labels": [[0, 1], [1, 0]] * 15}
    found = (await client.post("/v1/models/two/predictions", json=body)).json()
    assert found["warnings"] == ["possibly_one_hot"] and found["accepted"] == 30
    body["labels"] = [[0, 1], [1, 1]] * 15
    assert "warnings" not in (await client.post("/v1/models/two/predictions", json=body)).json()


async def test_labels_by_id_follow_the_same_rule(client):
    await client.put("/v1/models/ids", json={"classes": 3})
    path, ids = "/v1/models/ids/labels", list("abcd")
    rows = np.eye(3, dtype=int)[[0, 1, 2, 2]].tolist()
    error = problem(
        await client.post(path, json={"ids": ids, "labels": rows}), 422, "invalid-input"
    )
    assert error["errors"][0]["rule"] == "one_hot"
    few = await client.post(path, json={"ids": ids[:2], "labels": rows[:2]})
    assert few.json()["warnings"] == ["possibly_one_hot"]
    for labels, more, n in (
        ([0.0, 1.0, [2, None], 2], {}, 4),
        ([0, -100, [2, 255], 1], {"ignore_label": [-100, 255]}, 3),
    ):
        found = await client.post(path, json={"ids": ids, "labels": labels, **more})
        assert (found.json()["accepted"], found.json()["rejected"]) == (n, 0), found.text
    lines = b'{"ignore_label": 255}\n{"id": "a", "label": 255}\n{"id": "b", "label": 1}'
    found = await client.post(path, content=lines, headers={"Content-Type": NDJSON})
    assert found.json()["accepted"] == 1, found.text
    table = pa.table({"ids": ids, "labels": [0.0, 1.0, None, 255.0]})
    found = await client.post(
        path, content=arrow_of(table.slice(0, 2)), headers={"Content-Type": ARROW}
    )
    assert found.json()["accepted"] == 2, found.text
    response = await client.post(
        f"{path}?ignore_label=255",
        content=arrow_of(table.slice(3)),
        headers={"Content-Type": ARROW},
    )
    assert problem(response, 422, "invalid-input")["errors"][0]["rule"] == "empty_ratings"


@FORMS
async def test_sums_are_divided_on_request_and_stated(client, form):
    rows = [[0.5, 0.25, 0.5], [1.0, 1.0, 2.0], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]
    body = {"probabilities": rows, "labels": [0, 2, 2, 2]}
    error = problem(await scored(client, body, form), 422, "invalid-input")
    assert {each["rule"] for each in error["errors"]} == {"row_sum", "range"}
    scaled = {"probabilities": [[0.8, 0.4, 0.8], *P[1:]], "labels": [0, 2, 2, 2], "normalize": True}
    found = (await scored(client, scaled, form)).json()
    assert found["n_normalised"] == 1 and found["largest_deviation"] == pytest.approx(1.0)


async def test_rounding_is_adjusted_and_counted(client):
    body = {"probabilities": [[1.0000000000000002, -1e-17], [0.5, 0.5]], "labels": [0, 1]}
    found = (await client.post("/v1/score", json=body)).json()
    assert found["n_adjusted"] == 2
    receipt = (await client.post("/v1/models/r/predictions", json=body)).json()
    assert receipt["n_adjusted"] == 2
    third = {"probabilities": [[0.33, 0.33, 0.33]], "labels": [0]}
    assert (await client.post("/v1/score", json=third)).status_code == 200


async def test_log_odds_are_the_logistic_function(client):
    """z = ±2 and both positive: gaps of .119 and .881 in two bins."""
    for logits in ([2.0, -2.0], [[2.0], [-2.0]]):
        found = (
            await client.post("/v1/score", json={"logits": logits, "labels": [1, 1]}, params=POSTED)
        ).json()
        assert found["metrics"]["ece"]["value"] == pytest.approx(0.5)
        assert found["scope"] == "positive"


@FORMS
async def test_times_as_numbers_need_their_unit(client, form):
    times = [1_764_000_000, 1_764_000_001.5]
    body: dict = {"probabilities": [0.5, 0.5], "labels": [0, 1], "event_times": times}
    error = problem(await scored(client, body, form), 422, "invalid-input")["errors"][0]
    assert error["rule"] == "rfc3339" and "time_unit" in error["detail"]
    for unit, factor in (("s", 1), ("ms", 1000)):
        scaled = [each * factor for each in times]
        found = await scored(client, body | {"event_times": scaled, "time_unit": unit}, form)
        assert found.status_code == 200, found.text
    problem(await scored(client, body | {"time_unit": "us"}, form), 422, "invalid-input")


async def test_integers_of_an_arrow_stream_need_their_unit(client):
    table = pa.table(
        {"confidences": [0.5, 0.5], "labels": [0, 1], "event_times": [1_764_000_000] * 2}
    )
    path, head = "/v1/models/t/predictions", {"Content-Type": ARROW}
    problem(await client.post(path, content=arrow_of(table), headers=head), 422, "invalid-input")
    found = await client.post(f"{path}?time_unit=s", content=arrow_of(table), headers=head)
    assert found.status_code == 202, found.text


async def test_classes_that_are_numbers_are_names(client):
    await client.put("/v1/models/numbers", json={"classes": ["10", "20"]})
    path = "/v1/models/numbers/predictions"
    body = {"probabilities": [[0.9, 0.1], [0.2, 0.8]], "labels": [10, 20.0]}
    assert (await client.post(path, json=body)).json()["accepted"] == 2
    for labels in ([0, 1], [10, True]):
        problem(await client.post(path, json=body | {"labels": labels}), 422, "invalid-input")
    body["labels"] = ["10", "20"]
    assert (await client.post(path, json=body)).json()["accepted"] == 2


async def test_two_forms_of_a_body_are_not_mixed(client):
    body = {"predictions": P, "targets": [0, 1, 2, 2]}
    error = problem(await client.post("/v1/score", json=body), 422, "invalid-input")["errors"][0]
    assert error["pointer"] == "/targets" and "label, id or unit" in error["detail"]
