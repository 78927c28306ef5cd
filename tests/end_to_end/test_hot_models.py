"""A model whose batches several partitions fill, over HTTP and with two workers: the numbers are those of one partition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

HEADERS = {"Prefer": "wait=60"}
DECLARED = {"task": "multiclass", "classes": 3, "slices": {"site": None}}


def body(at, n=40):
    rng = np.random.default_rng(at)
    return {
        "batch_id": f"b{at}",
        "probabilities": rng.dirichlet(np.ones(3), n).tolist(),
        "labels": rng.integers(0, 3, n).tolist(),
        "slices": {"site": [f"s{each}" for each in rng.integers(0, 2, n)]},
    }


def patched(deployment, model, n):
    tag = deployment.client.get(f"/v1/models/{model}").headers["ETag"]
    changed = deployment.client.patch(
        f"/v1/models/{model}", json={"fill_partitions": n}, headers={"If-Match": tag}
    )
    assert changed.status_code == 200, changed.text
    return changed.json()


def post(deployment, model, document):
    return deployment.client.post(f"/v1/models/{model}/predictions", json=document, headers=HEADERS)


def test_the_number_of_partitions_is_raised_and_lowered_while_batches_arrive(spread):
    for model in ("cool", "hot"):
        assert spread.client.put(f"/v1/models/{model}", json=DECLARED).status_code == 201
    with ThreadPoolExecutor(4) as pool:
        for step, n in enumerate((4, 3, 1)):
            assert patched(spread, "hot", n)["fill_partitions"] == n
            some = [body(at) for at in range(20 * step, 20 * step + 20)]
            replies = list(pool.map(lambda each: post(spread, "hot", each), some))
            assert {each.json()["status"] for each in replies} == {"merged"}
            assert {each.json().get("spread") for each in replies} == {None if n == 1 else True}
            # Also those of the numbers before.
            again = list(pool.map(lambda at: post(spread, "hot", body(at)), range(20 * step + 20)))
            assert all(each.json()["duplicate"] for each in again)
            assert {each.json()["status"] for each in again} == {"merged"}
            conflict = post(spread, "hot", body(20 * step) | {"labels": [0] * 40})
            assert conflict.status_code == 409
        list(pool.map(lambda at: post(spread, "cool", body(at)), range(60)))
    for query in ({}, {"slice": "site:s1"}):
        wanted = {"metrics": "ece,brier,nll,accuracy", **query}
        cool, hot = (spread.get(f"/v1/models/{each}/metrics", **wanted) for each in ("cool", "hot"))
        assert hot["n_predictions"] == cool["n_predictions"] > 0
        for name, found in cool["metrics"].items():
            assert hot["metrics"][name]["value"] == pytest.approx(found["value"], rel=1e-12)


def test_batches_whose_order_matters_stay_in_one_partition_and_say_so(spread):
    assert spread.client.put("/v1/models/ordered", json=DECLARED | {"fill_partitions": 3}).json()[
        "fill_partitions"
    ] == 3  # fmt: skip
    for at, more in enumerate(
        (
            {"ids": [f"r{row}" for row in range(40)]},
            {"units": [f"u{row // 2}" for row in range(40)]},
            {"source": "s", "offsets": [0, 40]},
        )
    ):
        reply = post(spread, "ordered", body(100 + at) | more).json()
        assert (reply["status"], reply["spread"]) == ("merged", False)
    assert post(spread, "ordered", body(200)).json()["spread"] is True
    assert spread.get("/v1/models/ordered/batches/b200")["status"] == "merged"


def test_a_model_cannot_use_more_partitions_than_there_are(spread):
    refused = spread.client.put("/v1/models/vast", json=DECLARED | {"fill_partitions": 65})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/fill_partitions"


def test_a_deleted_hot_model_is_gone(spread):
    model = "gone"
    spread.client.put(f"/v1/models/{model}", json=DECLARED | {"fill_partitions": 4})
    for at in range(8):
        assert post(spread, model, body(at)).json()["status"] == "merged"
    tag = spread.client.get(f"/v1/models/{model}").headers["ETag"]
    assert spread.client.delete(f"/v1/models/{model}", headers={"If-Match": tag}).status_code == 204
    assert spread.client.get(f"/v1/models/{model}/batches/b1").status_code == 404
    spread.client.put(f"/v1/models/{model}", json=DECLARED | {"fill_partitions": 4})
    for at in range(8):
        reply = post(spread, model, body(at))
        assert reply.status_code == 200, reply.text
        assert reply.json()["duplicate"] is False
    assert spread.get(f"/v1/models/{model}/metrics", metrics="ece")["n_predictions"] == 8 * 40
