"""Processes that start while the store is away: they wait, say so, and serve once it is there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from calibrant_server.workers.store.key_names import SCHEMA, Keys
from tests.end_to_end.deployment import Deployment
from tests.stores import SERVERS, StoreServer
from tests.waiting import PATIENCE_S, eventually

ROWS = {"probabilities": [[0.7, 0.3]], "labels": [0], "batch_id": "b1"}


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Deployment]:
    """A service and a worker, started without their store."""
    store = StoreServer(SERVERS["embedded"] or "", tmp_path / "store", appendfsync="always")
    found = Deployment(tmp_path, n_workers=1, store=store, CALIBRANT_SOCKET_TIMEOUT="2.5")
    for name in ("http", "worker0"):
        found.start(name)
    yield found
    found.__exit__()


def responds(deployment: Deployment, path: str) -> httpx.Response | None:
    try:
        return deployment.client.get(path)
    except httpx.HTTPError:
        return None


def log_of(deployment: Deployment, name: str) -> str:
    return (deployment.directory / f"{name}.log").read_text()


def test_a_start_without_the_store_waits_for_it(away):
    alive = eventually(lambda: responds(away, "/livez"))
    assert alive.status_code == 200
    for path in ("/readyz", "/v1/models/m/metrics", "/metrics"):
        waiting = away.client.get(path)
        assert (waiting.status_code, waiting.headers["retry-after"]) == (503, "2")
        assert "waits for the store" in waiting.json()["detail"]
    assert away.client.post("/v1/models/m/predictions", json=ROWS).status_code == 503
    assert away.client.get("/version").status_code == 200
    eventually(lambda: "worker_waits_for_store" in log_of(away, "worker0"))
    assert away.processes["worker0"].poll() is None
    away.store.start()
    away.wait_ready()
    assert away.post("/v1/models/m/predictions", ROWS)["status"] == "merged"
    assert away.get("/v1/models/m/metrics")["n_predictions"] == 1
    log = log_of(away, "http")
    assert log.count("service_waits_for_store") == log.count("service_has_reached_store") == 1


def test_a_stop_while_waiting_is_clean_and_another_version_ends_the_start(away):
    eventually(lambda: responds(away, "/livez"))
    eventually(lambda: "worker_waits_for_store" in log_of(away, "worker0"))
    away.processes["worker0"].terminate()
    assert away.processes["worker0"].wait(PATIENCE_S) == 0
    away.store.start()
    os.kill(away.store.pid, signal.SIGSTOP)  # it accepts connections and says nothing
    away.start("worker0")
    eventually(lambda: log_of(away, "worker0").count("worker_waits_for_store") == 2)
    assert away.client.get("/readyz").status_code == 503
    away.kill("http")
    away.start("http")
    eventually(lambda: responds(away, "/livez"))
    away.kill("store")
    other = StoreServer(away.store.binary, away.directory / "store")
    other.start()
    with other.client() as client:
        client.hset(Keys("calibrant", 8).configuration, "schema", SCHEMA + 1)
    other.kill()
    away.store.start()
    assert away.processes["http"].wait(PATIENCE_S) == 3
    assert "by a newer version of Calibrant" in log_of(away, "http").splitlines()[-1]
    assert away.processes["worker0"].wait(PATIENCE_S) == 69
    other.close()
