"""Posted votes with features: the ways of alpha-calibration side by side, and what is rejected."""

import numpy as np
import orjson
import pytest

from calibrant.core.batch import Batch
from calibrant.raters.alpha_calibration import compare_calibrations
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
URL = "/v1/models/digits/disagreement"


def votes_that_a_feature_explains(n=400):
    """Raters of some items agree much more than those of others, and the first feature says which."""
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.full(3, 2.0), n)
    x = np.column_stack([rng.normal(size=n), rng.normal(size=n)])
    alpha = np.exp(0.5 + 2.0 * x[:, 0])
    counts = [
        rng.multinomial(5, rng.dirichlet(np.maximum(a * row, 1e-6)))
        for a, row in zip(alpha, p, strict=True)
    ]
    return {
        "probabilities": p.tolist(),
        "label_counts": np.array(counts).tolist(),
        "features": x.tolist(),
    }


@pytest.fixture
async def model(client):
    await client.put("/v1/models/digits", json={"classes": ["a", "b", "c"]})
    return client


async def test_a_head_on_posted_features_is_the_librarys(model, inbox):
    body = votes_that_a_feature_explains()
    found = (await model.post(URL, json=body)).json()
    batch = Batch.from_columns(
        {name: body[name] for name in ("probabilities", "label_counts")}
    ).batch
    expected = compare_calibrations(batch, features=body["features"])
    shown = orjson.loads(orjson.dumps(expected, option=orjson.OPT_SERIALIZE_NUMPY))
    assert {name: found[name] for name in shown} == shown
    assert (found["best"], found["features"], found["reason"]) == ("head", "posted", None)
    slopes = found["methods"]["head"]["coefficients"]["slopes"]
    assert 1.2 < slopes[0] < 2.4 and abs(slopes[1]) < 0.3
    without = (await model.post(URL, json={**body, "features": None})).json()
    assert without["features"] == "log_probabilities"
    gains = [each["methods"]["head"]["gain"]["value"] for each in (found, without)]
    assert gains[0] > gains[1]
    assert not inbox.asked


async def test_named_rows_fit_others_score_and_new_rows_get_their_concentration(model):
    body = votes_that_a_feature_explains()
    body["parts"] = ["fit"] * 250 + ["score"] * 150
    body["label_counts"][-3:] = [[0, 0, 0]] * 3
    found = (await model.post(f"{URL}?instances=true", json=body)).json()
    assert (found["split"], found["n_fit"], found["n_validation"]) == ("parts", 250, 147)
    head = found["methods"]["head"]["coefficients"]
    place = np.array(body["features"]) @ head["slopes"] + head["intercept"]
    assert found["instances"]["concentration"] == pytest.approx(
        np.exp(np.clip(place, *head["log_bounds"]))
    )
    assert "instances" not in (await model.post(URL, json=body)).json()
    for parts, pointer in ((["fit"], "/parts"), (["fit", 7] * 200, "/parts/1"), ("fit", "/parts")):
        answer = await model.post(URL, json={**body, "parts": parts})
        assert problem(answer, 422, "invalid-input")["errors"][0]["pointer"] == pointer


async def test_a_head_of_many_features_needs_many_units(model):
    body = votes_that_a_feature_explains(100)
    body["features"] = np.random.default_rng(0).normal(size=(100, 40)).tolist()
    found = (await model.post(URL, json=body)).json()
    assert found["methods"]["head"] == {"reason": "few_rows"}
    assert found["best"] in ("raw", "alpha", "temperature", "temperature_alpha", "joint")


async def test_one_vote_each_is_no_comparison(model):
    found = (
        await model.post(URL, json={"probabilities": [[0.5, 0.3, 0.2]] * 60, "labels": [0] * 60})
    ).json()
    assert (found["best"], found["reason"]) == (None, "one_vote")


@pytest.mark.parametrize(
    ("features", "pointer"),
    [
        ([[1.0]], "/features"),
        ([[1.0], [2.0, 3.0]], "/features/1"),
        ([[], []], "/features/0"),
        ([[1.0], ["x"]], "/features/1"),
        ([[True], [1.0]], "/features/0"),
        ([[1.0], [1e101]], "/features/1"),
        ("many", "/features"),
        ([1.0, 2.0], "/features/0"),
    ],
)
async def test_features_are_a_table_of_numbers(model, features, pointer):
    body = {"probabilities": [[0.5, 0.3, 0.2]] * 2, "labels": [[0, 1]] * 2, "features": features}
    [error] = problem(await model.post(URL, json=body), 422, "invalid-input")["errors"]
    assert error["pointer"] == pointer


async def test_other_fields_and_queries_are_rejected(model):
    body = {"probabilities": [[0.5, 0.3, 0.2]], "labels": [[0, 1]], "members": []}
    assert (
        problem(await model.post(URL, json=body), 422, "invalid-input")["errors"][0]["rule"]
        == "unknown_field"
    )
    assert (await model.post(f"{URL}?window=P1D", json={})).status_code == 422
    problem(await model.post("/v1/models/none/disagreement", json={}), 404, "model-unknown")
