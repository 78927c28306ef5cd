"""The client's log through kills of service, workers and store: each row counts once, or the client says that it dropped it.

Row i has weight i, so that counts and weights by bin show any loss, any repeat and any mix-up. A call has one row: the
result of `log` says which rows were dropped at once for lack of room.
"""

from __future__ import annotations

import random

import httpx
import pytest

import calibrant as cal
from calibrant.client.outbox import MIN_BYTES
from tests.end_to_end.deployment import Deployment
from tests.end_to_end.fast_clock import IS_AVAILABLE, MISSING, OUTAGE_SPEED
from tests.end_to_end.logging_client import LoggingClient, Producer
from tests.waiting import PATIENCE_S, eventually

HOUR_S = 3600.0
# What the client's process remembers of a row of a command: its number.
REMEMBERED_BYTES = 200


def restart(deployment: Deployment, name: str) -> None:
    deployment.kill(name)
    deployment.start(name)


def check(deployment: Deployment, producer: Producer | LoggingClient) -> None:
    """The service counted the rows that found room, each once, and the client counts the others."""
    assert producer.flush(10 * PATIENCE_S)
    deployment.wait_ready()
    found = producer.statistics
    counted = producer.queued
    assert found.logged == producer.n
    assert found.acknowledged == len(counted), found
    assert found.n_dropped == found.dropped.get("full", 0) == producer.n - len(counted), found
    assert found.rejected == found.pending == 0, found
    eventually(lambda: _served(deployment)["n_predictions"] >= len(counted))
    served = _served(deployment)
    assert (served["n_predictions"], served["weight"]) == (len(counted), sum(counted))
    table = deployment.get("/v1/models/chaos/reliability", bins=5, raters="mean")["table"]
    by_parity = [sum(n for n in counted if n % 2 == parity) for parity in (0, 1)]
    assert [table[1]["weight"], table[3]["weight"]] == by_parity


def _served(deployment: Deployment) -> dict:
    return deployment.get("/v1/models/chaos/metrics", metrics="accuracy", raters="mean")


def test_each_row_counts_once_through_kills(tmp_path):
    rng = random.Random(1)
    with Deployment(tmp_path, n_workers=1, CALIBRANT_LEASE="1") as deployment:
        client = cal.Client(f"http://127.0.0.1:{deployment.port}")
        producer = Producer(client.model("chaos", linger=0.01))
        for victim in ("http", "store", "worker0"):
            producer.log_with_room(rng.randrange(50, 150))
            restart(deployment, victim)
        producer.log_with_room(100)
        check(deployment, producer)
        assert producer.queued == list(range(1, producer.n + 1))
        assert client.close(PATIENCE_S)


@pytest.mark.slow
@pytest.mark.timeout(3600 + HOUR_S / OUTAGE_SPEED)
@pytest.mark.skipif(not IS_AVAILABLE, reason=MISSING)
def test_twenty_thousand_rows_through_everything(tmp_path):
    """With an hour without service, and a full backlog: in both, rows are dropped and counted, and memory is bounded."""
    rng = random.Random(2)
    options = {"LEASE": "2", "PARTITIONS": "1", "BACKLOG_BYTES": "1000000"}
    options = {f"CALIBRANT_{name}": value for name, value in options.items()}
    with (
        Deployment(tmp_path, n_workers=2, **options) as deployment,
        LoggingClient(
            tmp_path, f"http://127.0.0.1:{deployment.port}", OUTAGE_SPEED, MIN_BYTES
        ) as producer,
    ):
        victims = ["http", "store", "worker0", "worker1"] * 6
        rng.shuffle(victims)
        for victim in victims[:12]:
            producer.log_with_room(rng.randrange(400, 700))
            restart(deployment, victim)
        figures = {"outage": an_hour_without_service(deployment, producer)}
        producer.log_with_room(1000)
        figures["backlog"] = a_full_backlog(deployment, producer)
        for victim in victims[12:]:
            producer.log_with_room(rng.randrange(400, 700))
            restart(deployment, victim)
        producer.log_with_room(max(0, 20_000 - producer.n))
        assert producer.n >= 20_000
        check(deployment, producer)
        found = producer.statistics
        print(
            f"logged={found.logged} acknowledged={found.acknowledged} dropped={found.dropped} {figures}"
        )


def an_hour_without_service(deployment: Deployment, producer: LoggingClient) -> dict:
    """For longer than the client's memory lasts: it stays within its bound, drops rows and counts them."""
    deployment.kill("http")
    before = producer.statistics
    producer.trace_memory()
    producer.log_for(HOUR_S, 4000)
    peak, clock_s = producer.peak_bytes, producer.clock_s
    assert min(clock_s) >= HOUR_S
    assert peak <= MIN_BYTES + REMEMBERED_BYTES * 4000
    after = producer.statistics
    assert after.n_dropped > before.n_dropped
    assert after.acknowledged <= before.acknowledged + before.pending
    assert 0 < after.pending_bytes <= MIN_BYTES
    deployment.start("http")
    return {"clock_s": clock_s, "peak_bytes": peak, "dropped": after.n_dropped - before.n_dropped}


def a_full_backlog(deployment: Deployment, producer: LoggingClient) -> dict:
    """No worker, until the service rejects batches with 429, and then the client's memory is full again."""
    for worker in ("worker0", "worker1"):
        deployment.kill(worker)
    before = producer.statistics
    # Scores at random hardly compress: equal ones would take thousands of batches.
    scores = random.Random(3)
    body = {"confidences": [scores.random() for _ in range(1000)], "labels": [1] * 1000}
    eventually(lambda: _post(deployment, body) == 429)
    peak = 0
    while producer.statistics.n_dropped == before.n_dropped:
        producer.log(100)
        peak = max(peak, producer.peak_bytes)
    assert peak <= MIN_BYTES + REMEMBERED_BYTES * 100
    for worker in ("worker0", "worker1"):
        deployment.start(worker)
    return {"peak_bytes": peak}


def _post(deployment: Deployment, body: dict) -> int:
    """Post a batch to another model, which fills the backlog of the service."""
    try:
        return deployment.client.post("/v1/models/other/predictions", json=body).status_code
    except httpx.HTTPError:
        return 0
