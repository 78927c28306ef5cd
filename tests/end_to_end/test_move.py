"""A model with everything moves to another partition: the same responses, to the byte, and every kind of request goes on."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest

from calibrant_server.workers.lifecycle.model_move import ModelMove
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.connection import Store
from tests.end_to_end.deployment import Deployment
from tests.waiting import PATIENCE_S, eventually

PATH = "/v1/models/moved"
DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
N_DAYS, A_DAY = 21, 250
N_PARTITIONS = 8
TO = (DAY + timedelta(days=3)).isoformat()
READS = (
    "", "baselines", "maps", "maps/1", "maps/current", "sources/s", "reports", "batches/first", "dead-letters",
    "metrics", "metrics?by=site", "metrics?clock=sealed", "metrics?every=P7D", "metrics?against=baseline:b&metrics=ece,brier",
    "reliability", "temperature", "drift", "drift?slice=site:A", "drift/history",
)  # fmt: skip


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    """Two services and a worker; days older than two weeks are in files."""
    directory = tmp_path_factory.mktemp("move")
    environment = {
        "CALIBRANT_HOUSEKEEPING": "0.2", "CALIBRANT_PARTITIONS": str(N_PARTITIONS),
        "CALIBRANT_COLD_URL": str(directory / "cold"), "CALIBRANT_COLD_AFTER": "P14D",
    }  # fmt: skip
    with Deployment(directory, n_workers=1, n_services=2, **environment) as deployment:
        _fill(deployment)
        yield deployment


def _fill(deployment: Deployment) -> None:
    """Three weeks of sealed days, of which the last week's labels are reversed; ids, units, slices, a baseline, a map, jobs."""
    client = deployment.client
    settings = {
        "task": "binary", "pane": "P1D", "label_horizon": "P1D", "slices": {"site": None},
        "alarm": {"tolerance": 0.0, "scores": "raw"},
    }  # fmt: skip
    assert client.put(PATH, json=settings).status_code == 201
    rng = np.random.default_rng(8)
    n = N_DAYS * A_DAY
    p = rng.uniform(0.1, 0.9, n)
    truth = np.where(np.arange(n) < 14 * A_DAY, p, 1.0 - p)
    labels = (rng.random(n) < truth).astype(int).tolist()
    batch = {
        "batch_id": "first",
        "confidences": p.tolist(),
        "labels": labels,
        "ids": [f"i{i}" for i in range(n)],
        "slices": {"site": ["AB"[i % 2] for i in range(n)]},
        "event_times": [(DAY - timedelta(days=N_DAYS - i // A_DAY)).isoformat() for i in range(n)],
    }
    deployment.post(f"{PATH}/predictions", batch)
    first_week = {"to": (DAY - timedelta(days=15)).isoformat()}
    made = client.post(f"{PATH}/maps", json={"method": "platt", **first_week})
    assert made.status_code == 201, made.text
    promotion = {"version": 1, "reason": "first", "override": True}
    answer = client.put(f"{PATH}/maps/current", json=promotion, headers={"If-None-Match": "*"})
    assert answer.status_code == 200, answer.text
    assert client.put(f"{PATH}/baselines/b", json={"window": "P60D"}).status_code == 201
    numbered = {"confidences": [0.3, 0.4], "labels": [0, 1], "source": "s", "offsets": [0, 2]}
    deployment.post(f"{PATH}/predictions", numbered)
    deployment.post(f"{PATH}/predictions", {"confidences": [0.4, 0.7], "ids": ["late1", "late2"]})
    old = {"metrics": "ece", "to": DAY.isoformat()}
    eventually(lambda: deployment.get(f"{PATH}/metrics", **old)["matured"], pause_s=0.2)
    eventually(lambda: deployment.get(f"{PATH}/drift")["status"] == "alarm", pause_s=0.5)
    # Days that come late are moved to files after the next midnight, or by another worker.
    deployment.kill("worker0")
    deployment.start("worker0")
    eventually(lambda: n_cold_days(deployment) > 3)


def n_cold_days(deployment: Deployment) -> int:
    with deployment.store.client() as store:
        return sum(store.hlen(name) for name in store.scan_iter(match="*:cd:default/moved|*"))


def responses(client: httpx.Client) -> dict[str, tuple[int, str | None, bytes]]:
    """Status, ETag and bytes of every read."""
    found = {}
    for read in (*READS, "alarms"):
        path, _, query = read.partition("?")
        params = dict(pair.split("=") for pair in query.split("&") if pair)
        if path in ("metrics", "reliability", "temperature", "drift", "drift/history"):
            params["to"] = TO
        url = "/v1/alarms" if read == "alarms" else f"{PATH}/{path}".rstrip("/")
        answer = client.get(url, params=params)
        found[read] = (answer.status_code, answer.headers.get("etag"), answer.content)
    return found


def forget_results(deployment: Deployment) -> None:
    """Remove the caches of the store: results, and merges of panes."""
    with deployment.store.client() as store:
        for pattern in ("calibrant:a:*", "*:g:*"):
            for name in store.scan_iter(match=pattern, count=1000):
                store.delete(name)


@pytest.mark.slow
def test_a_model_with_everything_moves(deployment):
    client = deployment.client
    # It remembers the model where it was.
    other = httpx.Client(
        base_url=f"http://127.0.0.1:{deployment.ports['http1']}", timeout=PATIENCE_S
    )
    sent = {"confidences": [0.5], "labels": [1], "batch_id": "known"}
    assert (
        other.post(f"{PATH}/predictions", json=sent, headers={"Prefer": "wait=60"}).json()["status"]
        == "merged"
    )
    before = responses(client)
    assert [read for read, (status, *_) in before.items() if status != 200] == []
    assert b'"alarms":[{' in before["alarms"][2]
    settings = EngineSettings(
        redis_url=deployment.store.url, partitions=N_PARTITIONS, socket_timeout_s=PATIENCE_S,
        cold_url=str(deployment.directory / "cold"),
    )  # fmt: skip
    with closing(Store(settings)) as store:
        home = store.keys.partition_of("default/moved")
        to = (home + 3) % N_PARTITIONS
        result = ModelMove(store, "default/moved", PATIENCE_S).run(to)
        assert (result.former, result.to) == (home, to)
        assert store.client.hexists(store.keys.partition(to).models, "default/moved")
    for each in (client, other):
        forget_results(deployment)
        now = responses(each)
        assert {read for read in READS if now[read] != before[read]} == set()
        assert now["alarms"][2] == before["alarms"][2]
    goes_on(deployment, other)
    other.close()


def goes_on(deployment: Deployment, other: httpx.Client) -> None:
    """Everything that is remembered about the model is remembered, by a service that has the former configuration too."""
    client, wait = deployment.client, {"Prefer": "wait=60"}
    n_before = deployment.get(f"{PATH}/metrics", to=TO)["n_ratings"]
    # Repeats of a batch id, and of messages of a source.
    known = {"confidences": [0.5], "labels": [1], "batch_id": "known"}
    again = other.post(f"{PATH}/predictions", json=known, headers=wait).json()
    assert (again["duplicate"], again["status"]) == (True, "merged")
    numbered = {"confidences": [0.3, 0.4], "labels": [0, 1], "source": "s"}
    found = other.post(f"{PATH}/predictions", json=numbered | {"offsets": [0, 2]}).json()
    assert found["duplicate"] is True
    gap = other.post(f"{PATH}/predictions", json=numbered | {"offsets": [3, 5]})
    assert (gap.status_code, gap.json()["watermark"]) == (409, 2)
    # What comes next.
    deployment.post(f"{PATH}/predictions", numbered | {"offsets": [2, 4]})
    # A delayed label finds its prediction, another rater one of a day that is in a file.
    late = {"ids": ["i49", "late1"], "labels": [1, 1], "raters": ["r2", "r2"]}
    deployment.post(f"{PATH}/labels", late)
    # Two labels and two messages; the repeats count nothing.
    assert deployment.get(f"{PATH}/metrics", to=TO)["n_ratings"] == n_before + 4
    [alarm] = [
        each
        for each in deployment.get("/v1/alarms", model="moved")["alarms"]
        if each["state"] == "open"
    ][:1]
    assert deployment.get(f"/v1/alarms/{alarm['id']}") == alarm
    acknowledged = other.post(f"/v1/alarms/{alarm['id']}/acknowledge", json={"note": "seen"})
    assert acknowledged.status_code == 200, acknowledged.text
    assert deployment.get(f"/v1/alarms/{alarm['id']}")["note"] == "seen"
    frozen = client.post(f"{PATH}/maps", json={"method": "temperature", "window": "P20D"})
    assert frozen.status_code == 201, frozen.text
    assert (
        client.patch(PATH, json={"retention": "P900D"}, headers={"If-Match": "*"}).status_code
        == 200
    )
    assert [each["model"] for each in deployment.get("/v1/models")["models"]] == ["moved"]
    assert client.delete(PATH).status_code == 204
    assert client.get(PATH).status_code == 404
    with deployment.store.client() as store:
        # What it had in the new partition is removed at once, in the former one a minute after the move.
        moved_to = [name for name in store.scan_iter(match="*:mk", count=1000)]
        assert len(moved_to) >= 1
