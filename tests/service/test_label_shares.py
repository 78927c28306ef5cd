"""`label_shares` of `POST /v1/score`: the numbers of the library, in every form of a JSON body."""

import numpy as np
import orjson
import pytest

import calibrant as cal
from calibrant.core.batch import Batch
from calibrant_server.service.http.bodies import NDJSON
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
RNG = np.random.default_rng(4)
N, K = 40, 3
P = RNG.dirichlet(np.ones(K), N)
COUNTS = np.array([RNG.multinomial(5, p) for p in P])
SHARES = np.array([RNG.dirichlet(0.2 + p) for p in P])
BODY = {"probabilities": P.tolist(), "label_shares": SHARES.tolist()}
QUERY = {"metrics": "accuracy,ece,brier,nll,debiased_ece"}


async def post(client, body, **params):
    return await client.post("/v1/score", json=body, params=QUERY | params)


@pytest.mark.parametrize("form", ["columns", "records", "lines"])
async def test_scores_are_means_over_shares(client, form):
    rows = [{"probabilities": p, "label_shares": s} for p, s in zip(P.tolist(), SHARES.tolist(), strict=True)]  # fmt: skip
    if form == "lines":
        content, headers = b"\n".join(map(orjson.dumps, rows)), {"Content-Type": NDJSON}
        response = await client.post("/v1/score", content=content, headers=headers, params=QUERY)
    else:
        response = await post(client, BODY if form == "columns" else {"predictions": rows})
    assert response.status_code == 200, response.text
    found = response.json()
    brier = sum(SHARES[:, k] * ((P - np.eye(K)[k]) ** 2).sum(axis=1) for k in range(K)).mean()
    assert found["metrics"]["brier"]["value"] == pytest.approx(brier, abs=1e-9)
    nll = -(SHARES * np.log(P)).sum(axis=1).mean()
    assert found["metrics"]["nll"]["value"] == pytest.approx(nll, abs=1e-9)
    assert found["metrics"]["debiased_ece"]["reason"] == "label_shares"
    assert found["metrics"]["ece"]["null_mean"] is None
    assert (found["n_ratings"], found["metrics"]["ece"]["n"]) == (N, N)
    expected = float(cal.fit_temperature(P, label_shares=SHARES))
    assert found["temperature"]["temperature"] == pytest.approx(expected, rel=1e-6)


async def test_shares_of_a_number_of_ratings_are_ratings(client):
    shares = {"label_shares": (COUNTS / 5).tolist(), "n_ratings": [5] * N}
    found = await post(client, {"probabilities": P.tolist()} | shares)
    counts = {"probabilities": P.tolist(), "label_counts": COUNTS.tolist()}
    assert found.json() == (await post(client, counts)).json()


@pytest.mark.parametrize(
    ("change", "params", "pointer"),
    [
        ({}, {"raters": "majority"}, "/raters"),
        ({}, {"include": "roc"}, "/n_ratings"),
        ({"labels": [0] * N}, {}, "/label_shares"),
        ({"n_ratings": [3] * N}, {}, "/label_shares/0"),
        ({"label_shares": None, "n_ratings": [3] * N, "labels": [0] * N}, {}, "/n_ratings"),
    ],
)
async def test_errors(client, change, params, pointer):
    response = await post(client, BODY | change, **params)
    assert response.status_code == 422, response.text
    slug = response.json()["type"].rpartition("/")[2]
    assert problem(response, 422, slug)["errors"][0]["pointer"] == pointer


URL = "/v1/models/soft/predictions"
FIVE = {"probabilities": P.tolist(), "label_shares": (COUNTS / 5).round(6).tolist()}


async def test_a_model_stores_the_ratings_that_shares_are(client, inbox):
    response = await client.post(URL, json=FIVE | {"n_ratings": [5] * N})
    assert response.status_code == 202, response.text
    assert (Batch.unpack(inbox.deliveries[-1].payload).label_counts == COUNTS).all()


@pytest.mark.parametrize(
    ("change", "pointer", "advice"),
    [
        ({}, "/n_ratings", "POST /v1/score take shares alone"),
        ({"n_ratings": [3] * N}, "/label_shares/0", "leave n_ratings out"),
        ({"n_ratings": [5] * (N - 1)}, "/n_ratings", "expected 40"),
    ],
)
async def test_a_model_stores_no_other_shares(client, change, pointer, advice):
    found = problem(await client.post(URL, json=FIVE | change), 422, "invalid-input")["errors"][0]
    assert found["pointer"] == pointer
    assert advice in found["detail"]
