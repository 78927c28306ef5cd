"""`annotations` of `POST /v1/score`: a long table of ratings joined by id."""

import pytest

from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
P = [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]]
LONG = {
    "ids": ["a", 7, "a", "7", "z", 7],
    "raters": ["ann", "ann", "bo", "ann", "bo", "bo"],
    "labels": [0, 0, 1, 1, 1, None],
}
BODY = {"probabilities": P, "ids": ["a", 7, "c"], "annotations": LONG}
PLAIN = {"probabilities": P, "ids": ["a", 7, "c"], "labels": [[0, 1], [1], None], "raters": [["ann", "bo"], ["ann"], None]}  # fmt: skip
RECORDS = {
    "annotations": LONG,
    "predictions": [{"id": i, "probabilities": p} for i, p in zip(["a", 7, "c"], P, strict=True)],
}
QUERY = {"metrics": "ece,accuracy"}


async def of(client, body):
    response = await client.post("/v1/score", json=body, params=QUERY)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("body", [BODY, RECORDS])
async def test_a_long_table_means_ratings_in_rows(client, body):
    found = await of(client, body)
    assert found == await of(client, PLAIN)
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(2 / 3) and found["n_ratings"] == 3
    assert set(found["baselines"]["metrics"]["accuracy"]["by_rater"]) == {"ann", "bo"}


async def test_a_crowd_is_scored_without_results_of_each(client):
    n = 300
    long = {"ids": ["a"] * n, "raters": [f"w{i}" for i in range(n)], "labels": [0, 1] * (n // 2)}
    found = await of(client, BODY | {"annotations": long})
    assert found["n_ratings"] == n and found["metrics"]["accuracy"]["value"] == 0.5
    assert found.get("baselines") is None


@pytest.mark.parametrize(
    ("change", "pointer", "rule"),
    [
        ({"annotations": [1]}, "/annotations", "object"),
        ({"annotations": {"ids": ["a"]}}, "/annotations/labels", "list"),
        ({"annotations": LONG | {"x": [1]}}, "/annotations/x", "unknown_field"),
        ({"annotations": LONG | {"labels": [1]}}, "/annotations/labels", "length"),
        ({"annotations": {"ids": [""], "labels": [0]}}, "/annotations/ids/0", "name"),
        ({"annotations": {"ids": ["q"], "labels": [0]}}, "/annotations/ids", "unknown_ids"),
        ({"annotations": {"ids": [7], "labels": [5]}}, "/annotations/labels/0", "class_range"),
        (
            {"annotations": {"ids": ["a", 7], "labels": [0, "x"]}},
            "/annotations/labels/1",
            "class_index",
        ),
        ({"ids": None}, "/ids", "missing"),
        ({"labels": [0, 1, 1]}, "/annotations", "one_label_column"),
    ],
)
async def test_errors_name_the_place(client, change, pointer, rule):
    response = await client.post("/v1/score", json=BODY | change, params=QUERY)
    error = problem(response, 422, "invalid-input")["errors"][0]
    assert (error["pointer"], error["rule"]) == (pointer, rule), error
