"""The map that follows promotions, against a real service that goes away."""

from __future__ import annotations

import numpy as np
import pytest

import calibrant as cal
from calibrant.client import ServiceError
from tests.end_to_end.deployment import Deployment
from tests.waiting import PATIENCE_S, eventually

RNG = np.random.default_rng(5)
P = RNG.random(400)
Y = (RNG.random(400) < 0.25 + 0.5 * P).astype(int)
SOME = np.array([0.1, 0.5, 0.9])


def promote(deployment: Deployment, method: str) -> None:
    path = "/v1/models/followed/maps"
    made = deployment.client.post(path, json={"method": method}).json()
    now = deployment.client.get(f"{path}/current")
    header = {"If-None-Match": "*"} if now.status_code == 404 else {"If-Match": now.headers["etag"]}
    body = {"version": made["version"], "reason": "test", "override": True}
    response = deployment.client.put(f"{path}/current", json=body, headers=header)
    assert response.status_code == 200, response.text


def test_a_map_follows_promotions_and_outlives_the_service(tmp_path):
    with Deployment(tmp_path) as deployment:
        client = cal.Client(f"http://127.0.0.1:{deployment.port}")
        model = client.model("followed")
        with pytest.raises(ServiceError, match="model-unknown"):
            model.map()
        model.send(probabilities=P, labels=Y, wait=60)
        current = model.map(refresh=0.05)
        assert current.version is None and current.map is None
        assert np.array_equal(current(SOME), SOME)
        assert current(logits=np.zeros((1, 2))).tolist() == [[0.5, 0.5]]

        promote(deployment, "temperature")
        eventually(lambda: current.version == 1)
        fitted = model.frozen_map(1)
        assert np.array_equal(current(SOME), fitted(SOME))
        assert not np.allclose(current(SOME), SOME)
        promote(deployment, "platt")
        eventually(lambda: current.version == 2)
        assert np.array_equal(current(SOME), model.frozen_map(2)(SOME))

        # Observe mode takes the map away from those who follow it.
        for mode, version in (("observe", None), ("serve", 2)):
            headers = {"If-Match": deployment.client.get("/v1/models/followed").headers["etag"]}
            changed = deployment.client.patch(
                "/v1/models/followed", json={"mode": mode}, headers=headers
            )
            assert changed.status_code == 200, changed.text
            eventually(lambda expected=version: current.version == expected)
        assert np.array_equal(current(SOME), model.frozen_map(2)(SOME))

        # An unchanged map is 304: it stays the same object.
        same = current.map
        current.refresh()
        assert current.map is same

        deployment.kill("http")
        eventually(lambda: current.last_error is not None)
        assert current.version == 2
        assert current.map is same
        deployment.start("http")
        deployment.wait_ready()
        eventually(lambda: current.last_error is None)
        assert current.version == 2
        current.close()
        assert client.close(PATIENCE_S)


def test_tensors_stay_tensors(embedded):
    torch = pytest.importorskip("torch")
    with cal.Client(f"http://127.0.0.1:{embedded.port}") as client:
        model = client.model("tensors")
        model.send(probabilities=P, labels=Y, wait=60)
        current = model.map()
        given = torch.tensor(SOME, dtype=torch.float32, requires_grad=True)
        found = current(given)
        assert found.dtype == torch.float32 and np.allclose(found.numpy(), SOME)
        assert model.log(given, torch.tensor([0, 1, 1])) == 3
        current.close()
