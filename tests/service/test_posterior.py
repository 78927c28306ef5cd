"""Posteriors over HTTP: the library's numbers, beliefs that fit their fields, rejections that say where."""

import numpy as np
import pytest

from calibrant.raters import posterior
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits/posterior"
ROWS = [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]
VOTES = [[1, 0, 1], [0, 0, 0]]


@pytest.fixture
async def model(client):
    await client.put("/v1/models/digits", json={"classes": ["a", "b", "c"]})
    return client


async def test_a_given_concentration_gives_the_librarys_posterior(model, inbox):
    body = {"probabilities": ROWS, "label_counts": VOTES, "concentration": 2.5, "ids": ["i1", "i2"]}
    found = (await model.post(URL, json=body)).json()
    expected = posterior.after_ratings(ROWS, VOTES, 2.5)
    np.testing.assert_allclose(found["probabilities"], expected.probabilities, rtol=1e-15)
    np.testing.assert_allclose(found["disagreement"], expected.disagreement, rtol=1e-15)
    assert found["prior_disagreement"] == pytest.approx(
        list(posterior.expected_disagreement(ROWS, 2.5))
    )
    assert (found["belief"], found["concentration_source"], found["ids"]) == (
        "dirichlet",
        "given",
        ["i1", "i2"],
    )
    assert not inbox.asked
    named = {"probabilities": ROWS, "labels": [["a", "c"], None], "concentration": [2.5, 9]}
    again = (await model.post(URL, json=named)).json()
    np.testing.assert_allclose(again["probabilities"], found["probabilities"], rtol=1e-15)


async def test_without_a_concentration_the_models_own_is_used(model, inbox):
    inbox.answers["disagreement"] = {"concentration": {"value": 4.0}, "reason": None}
    found = (
        await model.post(f"{URL}?window=P7D", json={"probabilities": ROWS, "label_counts": VOTES})
    ).json()
    assert (found["concentration"], found["concentration_source"]) == (4.0, "fitted")
    np.testing.assert_allclose(found["probabilities"][0], (4 * np.array(ROWS[0]) + [1, 0, 1]) / 6)
    inbox.answers["disagreement"] = {"concentration": None, "reason": "one_vote"}
    rejected = await model.post(URL, json={"probabilities": ROWS, "label_counts": VOTES})
    [error] = problem(rejected, 422, "invalid-input")["errors"]
    assert (error["pointer"], error["rule"]) == ("/concentration", "not_fitted")


async def test_ensembles(model):
    members = [ROWS, [[0.2, 0.2, 0.6], [0.3, 0.3, 0.4]]]
    body = {"members": members, "label_counts": VOTES, "member_weights": [3, 1]}
    found = (await model.post(URL, json=body)).json()
    expected = posterior.after_ratings(members, VOTES, weights=[3, 1])
    np.testing.assert_allclose(found["probabilities"], expected.probabilities, rtol=1e-14)
    np.testing.assert_allclose(found["member_weights"], np.transpose(expected.weights), rtol=1e-14)
    assert (found["belief"], found["concentration"]) == ("ensemble", None)
    body["concentration"] = 5
    found = (await model.post(f"{URL}?belief=dirichlet_ensemble", json=body)).json()
    expected = posterior.after_ratings(members, VOTES, 5.0, [3, 1])
    np.testing.assert_allclose(found["probabilities"], expected.probabilities, rtol=1e-14)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"probabilities": [[0.7, 0.2], [0.1, 0.8]]}, "/probabilities"),
        ({"probabilities": [[0.7, 0.7, 0.1], [0.1, 0.8, 0.1]]}, "/probabilities/0"),
        ({"probabilities": None}, ""),
        ({"probabilities": "x"}, "/probabilities"),
        ({"label_counts": [[1, 0, -1], [0, 0, 0]]}, "/label_counts/0"),
        ({"label_counts": [[1, 0, 1]]}, "/label_counts"),
        ({"concentration": 0}, "/concentration"),
        ({"concentration": True}, "/concentration"),
        ({"concentration": [1]}, "/concentration"),
        ({"concentration": [1, -1]}, "/concentration/1"),
        ({"concentration": "x"}, "/concentration"),
        ({"member_weights": [1]}, "/member_weights"),
        ({"more": 1}, "/more"),
        ({"probabilities": None, "concentration": None, "members": []}, "/members"),
        ({"probabilities": None, "concentration": None, "members": [ROWS, ROWS[:1]]}, "/members/1"),
        (
            {
                "probabilities": None,
                "concentration": None,
                "members": [ROWS, [[2, 0, 0], [1, 0, 0]]],
            },
            "/members/1/0",
        ),
        ({"probabilities": None, "concentration": None, "members": [ROWS[:1]]}, None),
        ({"members": [ROWS]}, "/probabilities"),
        (
            {
                "probabilities": None,
                "concentration": None,
                "members": [ROWS],
                "member_weights": [0],
            },
            "/member_weights",
        ),
        (
            {"probabilities": None, "concentration": None, "members": [[[1, 0, 0], [1, 0, 0]]]},
            "/label_counts/0",
        ),
        (
            {"members": [[[1, 0, 0], [1, 0, 0]]], "labels": [[0], [1]]}
            | dict.fromkeys(("probabilities", "concentration", "label_counts")),
            "/labels/1",
        ),
    ],
)
async def test_what_cannot_be_meant_is_rejected_at_its_place(model, changes, pointer):
    body = {"probabilities": ROWS, "label_counts": VOTES, "concentration": 2.0} | changes
    answer = await model.post(URL, json=body)
    errors = problem(answer, 422, "invalid-input")["errors"]
    assert pointer is None or any(error["pointer"] == pointer for error in errors), errors


async def test_other_bodies(model):
    problem(
        await model.post(URL, content=b"{", headers={"Content-Type": "application/json"}),
        400,
        "malformed-body",
    )
    problem(await model.post(URL, json=[1]), 422, "invalid-input")
    problem(
        await model.post(URL, content=b"x", headers={"Content-Type": "text/csv"}),
        415,
        "media-type-unsupported",
    )
    problem(await model.post(f"{URL}?belief=faith", json={}), 422, "invalid-query")
    problem(await model.post("/v1/models/none/posterior", json={}), 404, "model-unknown")


async def test_a_binary_model_takes_confidences(client):
    await client.put("/v1/models/digits", json={"task": "binary"})
    body = {"confidences": [0.5], "labels": [[1, 1]], "concentration": 2}
    assert (await client.post(URL, json=body)).json()["probabilities"] == [[0.25, 0.75]]
