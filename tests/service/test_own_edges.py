"""`bin_edges` of metrics, reliability and score: the numbers of the library, and errors that name the possible edges."""

import numpy as np
import pytest

import calibrant as cal
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
M = "/v1/models/risk"
SCORES = (np.arange(120) * 7 % 101 / 100).tolist()
LABELS = [int(i * 13 % 10 < 10 * s) for i, s in enumerate(SCORES)]
BODY = {"confidences": SCORES, "labels": LABELS}
EDGES = [0, 0.05, 0.5, 0.9, 1]
TEXT = "0,0.05,.5,0.90,1"


@pytest.fixture
async def risk(client):
    answer = await client.post(f"{M}/predictions", json=BODY)
    assert answer.status_code < 300, answer.text
    return client


@pytest.mark.parametrize("closed", ["right", "left"])
async def test_a_body_gives_the_numbers_of_the_library(risk, closed):
    expected = cal.reliability(SCORES, LABELS, bins=EDGES, edges=closed)
    params = {"bin_edges": TEXT, "edges": closed}
    scored = (await risk.post("/v1/score", json=BODY, params=params)).json()
    table = scored["reliability"]
    assert table["bin_edges"] == EDGES and table["bins"] == 4
    assert [row["count"] for row in table["table"]] == expected.column("count").tolist()
    assert [row["upper"] for row in table["table"]] == EDGES[1:]
    assert scored["temperature"]["bins"] == 15
    metrics = cal.evaluate(SCORES, LABELS, bins=EDGES, edges=closed)
    for slug, each in scored["metrics"].items():
        assert each["value"] == pytest.approx(metrics[slug].value, abs=1e-12), slug
        assert ("bin_edges" in each) == ("bin_edges" in metrics[slug].extra), slug


async def test_the_diagram_of_a_body_is_drawn(risk):
    params, headers = {"bin_edges": TEXT}, {"Accept": "image/png"}
    drawn = await risk.post("/v1/score", json=BODY, params=params, headers=headers)
    assert drawn.headers["content-type"] == "image/png"


async def test_one_text_of_edges_has_one_etag(risk):
    answers = [
        await risk.get(f"{M}/metrics", params={"bin_edges": each})
        for each in (TEXT, "0,.05,0.5,.9,1")
    ]
    assert answers[0].headers["etag"] == answers[1].headers["etag"]


async def test_an_edge_off_the_grid_names_the_nearest(risk):
    params = {"bin_edges": "0,0.12345,1"}
    for path in ("metrics", "reliability"):
        found = problem(await risk.get(f"{M}/{path}", params=params), 422, "invalid-query")
        (error,) = found["errors"]
        assert error["rule"] == "bins_not_exact"
        for part in ("0.12345", "1/3600", "0.1233333333", "POST /v1/score"):
            assert part in error["detail"], error
    scored = await risk.post("/v1/score", json=BODY, params=params)
    assert scored.status_code == 200


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({"bin_edges": "0,1,0.5"}, "order"),
        ({"bin_edges": "0.5,1"}, "range"),
        ({"bin_edges": "0,x,1"}, "type"),
        ({"bin_edges": TEXT, "bins": 10}, "one_of"),
        ({"bin_edges": TEXT, "binning": "equal_mass"}, "not_taken"),
        ({"bin_edges": TEXT, "metrics": "adaptive_ece"}, "not_taken"),
    ],
)
async def test_what_is_no_list_of_edges_is_refused(risk, params, rule):
    answers = [await risk.get(f"{M}/metrics", params=params)]
    if "metrics" not in params:
        answers.append(await risk.get(f"{M}/reliability", params=params))
        answers.append(await risk.post("/v1/score", json=BODY, params=params))
    for answer in answers:
        assert answer.status_code == 422, answer.text
        assert rule in answer.text and "Received" in answer.text
