"""`POST /v1/score` rejects what would cost more than its bytes allow, before computing it; the limit is named and true."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import orjson
import pytest

import calibrant.metrics as metrics_folder
from calibrant.metrics import DEFAULT_METRICS, METRICS
from calibrant_server.service.ingest.score_limits import PAIRWISE, SMALL_BYTES
from tests.service.conftest import problem

pytestmark = pytest.mark.anyio
JSON = {"Content-Type": "application/json"}


def body(n: int, rater: str | None = None) -> bytes:
    raters = {} if rater is None else {"raters": [rater] * n}
    return orjson.dumps({"confidences": [0] * n, "labels": [1] * n, **raters})


async def limit_of(client, content: bytes, metrics: str, **headers: str) -> int:
    """Return the number of rows in the rejection."""
    answer = await client.post(
        "/v1/score", content=content, params={"metrics": metrics}, headers=JSON | headers
    )
    detail = problem(answer, 413, "body-too-large")["detail"]
    found = re.search(r"expected at most (\d+) rows", detail)
    assert found, detail
    return int(found[1])


@pytest.mark.parametrize(
    ("n", "metrics", "rater"),
    [
        (249_000, "ece", None),
        (120_000, ",".join(f"ece(bins={n})" for n in range(1, 50)), None),
        (50_000, "skce", None),
        (60_000, "ece,brier,nll", "r"),
        (60_000, "ece(bins=3000)", None),
    ],
)
async def test_the_limit_is_named_and_fewer_rows_are_scored(client, monkeypatch, n, metrics, rater):
    content = body(n, rater)
    assert len(content) < SMALL_BYTES
    with monkeypatch.context() as patched:
        patched.setattr("calibrant_server.service.routes.score.score_batch", None)
        limit = await limit_of(client, content, metrics)
    assert 1_000 < limit < n
    fewer = body(limit // 20, rater)
    answer = await client.post(
        "/v1/score", content=fewer, params={"metrics": metrics}, headers=JSON
    )
    assert answer.status_code == 200, answer.text


async def test_many_metrics_of_pairs_allow_few_rows(client):
    metrics = ",".join(f"skce(kernel_width={n / 100})" for n in range(1, 50))
    assert 10 < await limit_of(client, body(2_000), metrics) < 300


async def test_every_metric_can_be_requested_of_a_few_hundred_rows(client):
    assert 500 < await limit_of(client, body(2_000), ",".join(METRICS)) < 1_500


@pytest.mark.parametrize("metrics", ["ece(bins=4000)", "ece", ",".join(DEFAULT_METRICS)])
async def test_many_bins_are_rejected_whatever_the_rows(client, metrics):
    """The draws of a null reference have a column for each bin: 16,384 of them took 1 GB."""
    answer = await client.post(
        "/v1/score", content=body(9), params={"metrics": metrics, "bins": 4_000}, headers=JSON
    )
    detail = problem(answer, 413, "body-too-large")["detail"]
    assert "expected at most 0 rows" in detail and " bins and " in detail


@pytest.mark.parametrize("section", ["cases", "by_case"])
async def test_many_cases_are_rejected(client, section):
    n = 2_000
    document = {"confidences": [0.5] * n, "labels": [1] * n, "cases": [str(i) for i in range(n)]}
    answer = await client.post(
        "/v1/score", json=document, params={"include": section, "metrics": "ece"}
    )
    assert f" of {n} cases" in problem(answer, 413, "body-too-large")["detail"]


async def test_stability_of_many_cases_is_rejected(client):
    cases = [str(number) for number in range(400)]
    document = {"confidences": [0.5] * 400, "labels": [1] * 400, "cases": cases}
    answer = await client.post(
        "/v1/score", json=document, params={"include": "stability_by_case", "metrics": "ece"}
    )
    assert "stability of 400 cases" in problem(answer, 413, "body-too-large")["detail"]
    fewer = {name: values[:40] for name, values in document.items()}
    answer = await client.post(
        "/v1/score", json=fewer, params={"include": "stability_by_case", "metrics": "ece"}
    )
    assert answer.json()["stability_by_case"]["n_cases"] == 40


async def test_bytes_as_sent_count(client):
    content = gzip.compress(body(150_000))
    assert await limit_of(client, content, "ece", **{"Content-Encoding": "gzip"}) < 150_000
    # The same rows in a larger body may cost more.
    spread = orjson.dumps({"confidences": [0.123456] * 150_000, "labels": [1] * 150_000})
    assert len(spread) > SMALL_BYTES
    answer = await client.post("/v1/score", content=spread, params={"metrics": "ece"}, headers=JSON)
    assert answer.status_code == 200


async def test_stability_of_many_ratings_has_a_reason(client):
    answer = await client.post(
        "/v1/score", content=body(3_001), params={"include": "stability"}, headers=JSON
    )
    found = answer.json()["stability"]
    assert (found["raters"], found["reason"]) == (None, "too_many_ratings")
    assert "3000 are the most" in found["detail"]


async def test_curves_of_a_metric_that_is_computed_for_each_subset_have_no_resamples(client):
    """Thousands of subsets would take 4 to 30 s."""
    document = {"confidences": [0.1, 0.4, 0.7, 0.8] * 250, "labels": [0, 1, 1, 0] * 250}
    document["options"] = {"metric": "tace"}
    answer = await client.post("/v1/score", json=document, params={"include": "stability"})
    assert answer.status_code == 200, answer.text
    found = answer.json()["stability"]
    assert found["metric"] == "tace" and found["reason"] is None
    assert {each["bootstrap"] for each in found["raters"].values()} == {None}
    assert {each["reason"] for each in found["ratio"].values()} == {"too_many_subsets"}


def test_every_metric_of_pairs_is_known():
    """Those that choose their rows by the number that can be paired."""
    files = Path(metrics_folder.__file__).parent.glob("*.py")
    assert {path.stem for path in files if "paired_rows(" in path.read_text()} == PAIRWISE
    assert METRICS.keys() >= PAIRWISE
