"""Exactly once, through the whole service: clients that retry, processes that are killed without notice.

Every batch is one prediction whose weight is its number, so that counts and weights by bin tell any loss, any repeat and any
mix-up: they must be those of exactly the acknowledged ids. An id given up on may count at most once.
"""

from __future__ import annotations

import random
import shutil
import threading
import time

import httpx
import pytest

from tests.end_to_end.deployment import Deployment
from tests.stores import SERVERS, StoreServer, slow_disk
from tests.waiting import PATIENCE_S, eventually

N_CLIENTS = 4
RETRY_S = 0.05


class Sender(threading.Thread):
    """One client: sends its batches in order, repeating each under its id until it is acknowledged."""

    def __init__(self, deployment: Deployment, numbers: list[int], deadline: float) -> None:
        super().__init__(daemon=True)
        self.base = f"http://127.0.0.1:{deployment.port}"
        self.numbers, self.deadline = numbers, deadline
        self.acknowledged: list[int] = []
        self.given_up: list[int] = []
        self.rejected: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self.base, timeout=20) as client:
            for number in self.numbers:
                (self.acknowledged if self._send(client, number) else self.given_up).append(number)

    def _send(self, client: httpx.Client, number: int) -> bool:
        body = {
            "batch_id": f"b{number}",
            "confidences": [0.25 + 0.5 * (number % 2)],
            "labels": [number % 2],
            "weights": [number],
        }
        while time.monotonic() < self.deadline:
            try:
                answer = client.post("/v1/models/counted/predictions", json=body)
            except httpx.HTTPError:
                time.sleep(RETRY_S)
                continue
            if answer.status_code in (200, 202):
                return True
            if answer.status_code not in (429, 503, 500):
                self.rejected.append(answer.text)
            time.sleep(RETRY_S)
        return False


def storm(
    deployment: Deployment,
    seed: int,
    n_batches: int,
    n_kills: int,
    seconds: float,
    victims: tuple[str, ...] | None = None,
) -> list[Sender]:
    """Send while killing; every process that was killed is started again at once.

    Kills come at random numbers of acknowledged batches, so that they fall among the batches on any machine.
    """
    rng = random.Random(seed)
    deadline = time.monotonic() + seconds
    senders = [
        Sender(deployment, list(range(1 + i, n_batches + 1, N_CLIENTS)), deadline)
        for i in range(N_CLIENTS)
    ]
    for sender in senders:
        sender.start()
    everyone = ("store", "http", *(f"worker{i}" for i in range(deployment.n_workers)))
    drawn = list(victims or everyone) * n_kills
    rng.shuffle(drawn)
    for victim, n_before in zip(drawn, sorted(rng.sample(range(n_batches), n_kills)), strict=False):
        while sum(len(each.acknowledged) for each in senders) < n_before:
            if not any(each.is_alive() for each in senders):
                break
            time.sleep(0.005)
        deployment.kill(victim)
        deployment.start(victim)
    for sender in senders:
        sender.join()
    return senders


def check(deployment: Deployment, senders: list[Sender], n_batches: int) -> None:
    deployment.wait_ready()
    acknowledged = sorted(n for sender in senders for n in sender.acknowledged)
    given_up = sorted(n for sender in senders for n in sender.given_up)
    assert not [text for sender in senders for text in sender.rejected]
    assert len(acknowledged) + len(given_up) == n_batches
    for number in acknowledged:
        answer = settled(deployment, f"/v1/models/counted/batches/b{number}")
        assert answer["status"] == "merged", answer
    counted = set(acknowledged)
    for number in given_up:
        response = deployment.client.get(f"/v1/models/counted/batches/b{number}")
        if response.status_code == 200 and response.json()["status"] == "merged":
            counted.add(number)
    found = deployment.get("/v1/models/counted/metrics", metrics="accuracy", raters="mean")
    assert found["n_predictions"] == len(counted)
    assert found["weight"] == sum(counted)
    table = deployment.get("/v1/models/counted/reliability", bins=5, raters="mean")["table"]
    by_parity = [sum(n for n in counted if n % 2 == parity) for parity in (0, 1)]
    assert [table[1]["weight"], table[3]["weight"]] == by_parity
    assert [table[1]["n_predictions"], table[3]["n_predictions"]] == [
        sum(n % 2 == parity for n in counted) for parity in (0, 1)
    ]


def settled(deployment: Deployment, path: str) -> dict:
    def outcome() -> dict | None:
        answer = deployment.get(path)
        return None if answer["status"] == "accepted" else answer

    return eventually(outcome, pause_s=0.05)


@pytest.mark.parametrize(
    ("n_batches", "n_kills"), [(300, 8), pytest.param(1000, 30, marks=pytest.mark.slow)]
)
def test_batches_through_kills(tmp_path, n_batches, n_kills):
    with Deployment(tmp_path, n_workers=2, CALIBRANT_LEASE="2") as deployment:
        senders = storm(deployment, 20, n_batches, n_kills, seconds=5 * PATIENCE_S)
        check(deployment, senders, n_batches)
        assert sum(len(sender.acknowledged) for sender in senders) > n_batches / 2


@pytest.mark.skipif(shutil.which("cc") is None, reason="the slow disk is compiled")
def test_a_slow_disk_loses_nothing_that_was_acknowledged(tmp_path):
    """With the append-only file synced always; killed while a sync takes 50 ms, again and again."""
    deployment = Deployment(tmp_path, n_workers=1, CALIBRANT_LEASE="2")
    deployment.store.environment = slow_disk(tmp_path, 50_000)
    with deployment:
        senders = storm(
            deployment, seed=6, n_batches=120, n_kills=8, seconds=5 * PATIENCE_S, victims=("store",)
        )
        check(deployment, senders, 120)
        assert sum(len(sender.acknowledged) for sender in senders) > 60


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="the slow disk is compiled")
def test_without_syncing_always_a_slow_disk_does_lose(tmp_path):
    """So that what the documents say of `everysec` stays true: acknowledged writes can be gone after a mere kill."""
    for attempt in range(8):
        server = StoreServer(
            SERVERS["embedded"] or "", tmp_path / str(attempt), appendfsync="everysec"
        )
        server.environment = slow_disk(tmp_path, 1_500_000)
        server.start()
        with server.client() as client:
            deadline, written = time.monotonic() + 4.0, 0
            while time.monotonic() < deadline:
                client.xadd("acknowledged", {"x": "y" * 200})
                written += 1
        server.kill()
        server.environment = {}
        server.start()
        with server.client() as client:
            kept = client.xlen("acknowledged")
        server.close()
        if kept < written:
            return
    pytest.fail("nothing was lost in eight attempts: the documents promise too little")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_longer_storms(tmp_path, seed):
    with Deployment(tmp_path, n_workers=3, CALIBRANT_LEASE="2") as deployment:
        senders = storm(deployment, seed, n_batches=8000, n_kills=120, seconds=400)
        check(deployment, senders, 8000)
