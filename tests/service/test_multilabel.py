"""`POST /v1/score?task=multilabel`: the numbers of the library, per label and as means."""

import numpy as np
import orjson
import pytest

import calibrant as cal
from calibrant_server.service.http.bodies import NDJSON
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
RNG = np.random.default_rng(9)
N, K = 80, 3
P = RNG.uniform(0.02, 0.98, (N, K))
Y = (RNG.uniform(size=(N, K)) < P).astype(int)
BODY = {"probabilities": P.tolist(), "labels": Y.tolist()}
QUERY = {"metrics": "ece,brier", "task": "multilabel"}


LONG = {"ids": [0], "labels": [1]}


async def post(client, body, **params):
    return await client.post("/v1/score", json=body, params=QUERY | params)


async def test_scores_are_those_of_the_library(client):
    response = await post(client, BODY)
    assert response.status_code == 200, response.text
    found, expected = response.json(), cal.evaluate(P, Y, "ece,brier", task="multilabel").to_dict()
    assert found["metrics"]["brier"]["value"] == pytest.approx(2 * ((P - Y) ** 2).mean())
    assert found["metrics"] == expected["metrics"]
    assert found["labels"].keys() == {"0", "1", "2"}
    for k, label in found["labels"].items():
        alone = cal.evaluate(P[:, int(k)], Y[:, int(k)], "ece")["ece"]
        assert label["metrics"]["ece"]["value"] == pytest.approx(alone.value, abs=1e-12)
        assert label["temperature"]["temperature"] == pytest.approx(
            float(cal.fit_temperature(P[:, int(k)], Y[:, int(k)])), rel=1e-9
        )


async def test_lines_units_and_missing_labels(client):
    lines = [
        orjson.dumps({"probability": p, "labels": [None, *y[1:]], "unit": f"u{i // 4}"})
        for i, (p, y) in enumerate(zip(P.tolist(), Y.tolist(), strict=True))
    ]
    response = await client.post(
        "/v1/score", content=b"\n".join(lines), headers={"Content-Type": NDJSON}, params=QUERY
    )
    assert response.status_code == 200, response.text
    found = response.json()
    assert found["n_units"] == N // 4 and found["n_ratings"] == N * 2
    assert found["metrics"]["brier"]["value"] == pytest.approx(2 * ((P - Y)[:, 1:] ** 2).mean())


@pytest.mark.parametrize(
    ("change", "params", "slug", "text"),
    [
        ({"labels": Y[:, :2].tolist()}, {}, "invalid-input", "a 0 or 1 for each"),
        ({"labels": (Y * 3).tolist()}, {}, "invalid-input", "Label '0': Received class 3"),
        ({"labels": None, "label_counts": Y.tolist()}, {}, "invalid-input", "Received label_counts"),
        ({"labels": None}, {}, "invalid-input", "labels"),
        ({"labels": None, "ids": list(range(N)), "annotations": LONG}, {}, "invalid-input", "Received annotations of"),
        ({}, {"normalize": True}, "invalid-input", "Remove normalize"),
        ({}, {"include": "roc"}, "invalid-query", "Remove include"),
        ({}, {"scope": "top_label"}, "invalid-input", "expected none"),
    ],
)  # fmt: skip
async def test_errors(client, change, params, slug, text):
    found = problem(await post(client, BODY | change, **params), 422, slug)
    assert text in found["errors"][0]["detail"], found


async def test_as_many_labels_as_in_the_library_if_their_work_is_small(client):
    n = 120
    wide = {"probabilities": [[0.4] * n] * 2, "labels": [[0] * n, [1] * n]}
    found = (await post(client, wide, metrics="brier")).json()
    assert len(found["labels"]) == n
    assert found["metrics"]["brier"]["value"] == pytest.approx(0.16 + 0.36)
    dear = problem(await post(client, wide, metrics="ece,brier,nll,auc"), 413, "body-too-large")
    assert "Received 120 labels and 4 metrics" in dear["detail"]
    beyond = {"probabilities": [[0.4] * 1001], "labels": [[1] * 1001]}
    found = problem(await post(client, beyond), 422, "invalid-input")
    assert "Received 1001 labels; expected 1 to 1000" in found["errors"][0]["detail"]
