"""The service on a cluster: every kind of request reaches the right node, and numbers equal those of the rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np
import pytest

import calibrant as cal
from tests.clusters import StoreCluster
from tests.end_to_end.deployment import Deployment
from tests.stores import SERVERS

RNG = np.random.default_rng(7)
N = 60
PROBABILITIES = RNG.dirichlet(np.ones(3), N)
LABELS = (PROBABILITIES.cumsum(axis=1) > RNG.random((N, 1))).argmax(axis=1)
SECRET = "cluster-secret"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp("cluster")
    keys = directory / "keys.json"
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    scopes = ["ingest", "read", "maps:read", "admin"]
    key = {"sha256": digest, "name": "k", "tenant": "t", "scopes": scopes}
    keys.write_text(json.dumps({"keys": [key]}))
    cluster = StoreCluster(str(SERVERS["embedded"]), directory / "nodes", appendfsync="always")
    with Deployment(
        directory, n_workers=1, store=cluster, CALIBRANT_KEYS_FILE=str(keys)
    ) as deployment:
        deployment.client.headers["Authorization"] = f"Bearer {SECRET}"
        yield deployment


def test_models_on_every_node(deployment):
    """Six models: their partitions are on all three masters."""
    names = [f"m{at}" for at in range(6)]
    ids = [f"p{at}" for at in range(N)]
    expected = cal.evaluate(PROBABILITIES, LABELS, ["ece", "brier"])
    for name in names:
        deployment.post(
            f"/v1/models/{name}/predictions",
            {"probabilities": PROBABILITIES.tolist(), "ids": ids},
        )
        deployment.post(f"/v1/models/{name}/labels", {"ids": ids, "labels": LABELS.tolist()})
        found = deployment.get(f"/v1/models/{name}/metrics", metrics="ece,brier")["metrics"]
        for slug in ("ece", "brier"):
            assert found[slug]["value"] == pytest.approx(float(expected[slug]), rel=1e-12)
    assert {each["model"] for each in deployment.get("/v1/models")["models"]} == set(names)


def test_reads_maps_keys_and_deletion(deployment):
    deployment.post(
        "/v1/models/m/predictions",
        {"probabilities": PROBABILITIES.tolist(), "labels": LABELS.tolist()},
    )
    for path in ("reliability", "temperature", "drift", "drift/history", "disagreement", "maps"):
        deployment.get(f"/v1/models/m/{path}")
    for path in (
        "/v1/alarms",
        "/v1/usage",
        "/v1/audit",
        "/v1/keys",
        "/v1/models?view=status",
        "/metrics/models",
    ):
        response = deployment.client.get(path)
        assert response.status_code == 200, (path, response.text)
    made = deployment.client.post("/v1/models/m/maps", json={"method": "temperature"})
    assert made.status_code in (200, 201), made.text
    key = deployment.client.post("/v1/keys", json={"name": "second", "scopes": ["read"]})
    assert key.status_code in (200, 201), key.text
    gone = deployment.client.delete("/v1/models/m")
    assert gone.status_code in (200, 202, 204), gone.text
    assert deployment.client.get("/v1/models/m").status_code == 404
