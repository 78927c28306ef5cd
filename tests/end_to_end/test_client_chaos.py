"""The client's log through kills of service, workers and store: each row counts once, or the client says that it dropped it.

Row i has weight i, so that counts and weights by bin show any loss, any repeat and any mix-up. A call has one row: the
result of `log` says which rows were dropped at once for lack of room.
"""

from __future__ import annotations

import random
import tracemalloc

import httpx
import pytest

import calibrant as cal
from calibrant.client import Model
from calibrant.client.outbox import MIN_BYTES
from tests.end_to_end.deployment import Deployment
from tests.waiting import PATIENCE_S, eventually

MAX_PENDING = 200


class Producer:
    """Logs numbered rows, and remembers which found room."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.n = 0
        self.queued: list[int] = []

    def log(self, n_rows: int) -> None:
        for _ in range(n_rows):
            self.n += 1
            found = self.model.log([0.25 + 0.5 * (self.n % 2)], [self.n % 2], weights=[self.n])
            self.queued += [self.n] * found

    def log_with_room(self, n_rows: int) -> None:
        """Log rows as fast as they are sent, so that none is dropped."""
        for _ in range(0, n_rows, 10):
            eventually(lambda: self.model.log_statistics.pending < MAX_PENDING)
            self.log(10)


def restart(deployment: Deployment, name: str) -> None:
    deployment.kill(name)
    deployment.start(name)


def check(deployment: Deployment, producer: Producer) -> None:
    """The service counted the rows that found room, each once, and the client counts the others."""
    assert producer.model.flush(10 * PATIENCE_S)
    deployment.wait_ready()
    found = producer.model.log_statistics
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
@pytest.mark.timeout(3600)
def test_twenty_thousand_rows_through_everything(tmp_path):
    """With a period without service, and one with a full backlog: in both, rows are dropped and counted."""
    rng = random.Random(2)
    options = {"LEASE": "2", "PARTITIONS": "1", "BACKLOG_BYTES": "1000000"}
    options = {f"CALIBRANT_{name}": value for name, value in options.items()}
    max_bytes = MIN_BYTES
    with Deployment(tmp_path, n_workers=2, **options) as deployment:
        client = cal.Client(f"http://127.0.0.1:{deployment.port}")
        producer = Producer(client.model("chaos", linger=0.05, max_bytes=max_bytes))
        victims = ["http", "store", "worker0", "worker1"] * 6
        rng.shuffle(victims)
        for victim in victims[:12]:
            producer.log_with_room(rng.randrange(400, 700))
            restart(deployment, victim)
        # No service at all, for longer than the client's memory lasts.
        deployment.kill("http")
        tracemalloc.start()
        before = producer.model.log_statistics.n_dropped
        producer.log(4000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= max_bytes + 200 * 4000  # what this test remembers of its own rows
        assert producer.model.log_statistics.n_dropped > before
        assert producer.model.log_statistics.pending_bytes <= max_bytes
        deployment.start("http")
        producer.log_with_room(1000)
        # No worker, until the service rejects batches with 429, and then the client's memory is full again.
        for worker in ("worker0", "worker1"):
            deployment.kill(worker)
        before = producer.model.log_statistics.n_dropped
        body = {"confidences": [0.5] * 1000, "labels": [1] * 1000}
        eventually(lambda: _post(deployment, body) == 429)
        while producer.model.log_statistics.n_dropped == before:
            producer.log(100)
        for worker in ("worker0", "worker1"):
            deployment.start(worker)
        for victim in victims[12:]:
            producer.log_with_room(rng.randrange(400, 700))
            restart(deployment, victim)
        producer.log_with_room(max(0, 20_000 - producer.n))
        assert producer.n >= 20_000
        check(deployment, producer)
        assert client.close(PATIENCE_S)


def _post(deployment: Deployment, body: dict) -> int:
    """Post a batch to another model, which fills the backlog of the service."""
    try:
        return deployment.client.post("/v1/models/other/predictions", json=body).status_code
    except httpx.HTTPError:
        return 0
