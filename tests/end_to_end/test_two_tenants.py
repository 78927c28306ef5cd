"""One tenant does its worst against a running service: nothing of the other tenant's is rejected.

The attacker goes on until the other tenant has had a fixed list of requests, so no outcome depends on the machine's speed.
Where the other tenant stands in each queue is bounded by what one tenant may have in it: `tests/workers/test_tenant_shares.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest

from calibrant_server.service.security.key_file import hash_of
from tests.forking import ForkedProcess, run_module
from tests.ports import reserved_port
from tests.waiting import PATIENCE_S, eventually

ROUNDS = 6
BINS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20)
ROWS = {"probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], "labels": [0, 1]}
# Bounds so small that the attacker reaches each of them.
BOUNDS = {
    "CALIBRANT_PARTITIONS": "1",
    "CALIBRANT_BACKLOG_BYTES": "200000",
    "CALIBRANT_RETAINED_RECORDS": "400",
    "CALIBRANT_MAX_STREAMS": "6",
    "CALIBRANT_TENANT_MODELS": "8",
    "CALIBRANT_MAX_BYTES_IN_HAND": str(4 << 20),
    "CALIBRANT_MAX_BODY_BYTES": str(1 << 20),
    "CALIBRANT_TENANT_RATE": "300",
    "CALIBRANT_LOG_REQUESTS": "false",
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A service with keys of two tenants."""
    port = reserved_port()
    keys = [
        {"sha256": hash_of(name), "name": name, "tenant": name} for name in ("attacker", "other")
    ]
    environment = os.environ | BOUNDS | {
        "CALIBRANT_KEYS": json.dumps({"keys": keys}),
        "CALIBRANT_PORT": str(port),
        "CALIBRANT_DATA_DIR": str(tmp_path),
    }  # fmt: skip
    log = tmp_path / "log"
    service = ForkedProcess(run_module, "service", environment=environment, log=log)

    def is_ready() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/readyz", verify=False).status_code == 200
        return False

    try:
        eventually(is_ready)
        yield "127.0.0.1", port
    finally:
        service.terminate()
        service.wait(PATIENCE_S)


def client_of(address: tuple[str, int], key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url="http://{}:{}".format(*address),
        headers={"Authorization": f"Bearer {key}"},
        timeout=PATIENCE_S,
        limits=httpx.Limits(max_connections=100),
    )


class Attacker:
    """Everything that a tenant can do, again and again."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.client = client_of(address, "attacker")

    @asynccontextmanager
    async def attacking(self) -> AsyncIterator[None]:
        """Attack during the block."""
        kinds = [self.send_rows] * 3 + [self.ask] * 3 + [self.make_models, self.test_webhooks]
        tasks = [asyncio.create_task(self.again(kind, number)) for number, kind in enumerate(kinds)]
        tasks += [asyncio.create_task(self.stream()) for _ in range(8)]
        tasks += [asyncio.create_task(self.announce()) for _ in range(10)]
        tasks += [asyncio.create_task(self.begin()) for _ in range(20)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.client.aclose()

    @property
    def rejected(self) -> set[str]:
        """Names of the requests that were rejected at least once."""
        return {kind for (kind, status) in self.statuses if status in (429, 503)}

    async def again(self, kind, number: int) -> None:
        for i in range(10**9):
            with suppress(httpx.TransportError):
                response = await kind(f"{number}-{i}")
                self.statuses[kind.__name__, response.status_code] += 1

    async def send_rows(self, name: str) -> httpx.Response:
        n = 300
        ids = [f"{name}-{i}" for i in range(n)]
        rows = {"probabilities": [[0.7, 0.2, 0.1]] * n, "ids": ids}
        return await self.client.post("/v1/models/a/predictions", json=rows)

    async def ask(self, name: str) -> httpx.Response:
        bins = BINS[int(name.rpartition("-")[2]) % len(BINS)]
        query = {
            "metrics": "ece,brier,nll,kde_ece",
            "bins": bins,
            "ci": 0.5 + hash(name) % 400 / 1000,
        }
        return await self.client.get("/v1/models/a/metrics", params=query)

    async def make_models(self, name: str) -> httpx.Response:
        return await self.client.put(f"/v1/models/new-{name}", json={"classes": 3})

    async def test_webhooks(self, name: str) -> httpx.Response:
        return await self.client.post("/v1/models/a/alarm/test")

    async def stream(self) -> None:
        with suppress(httpx.TransportError):
            async with self.client.stream("GET", "/v1/alarms/events") as response:
                self.statuses["stream", response.status_code] += 1
                if response.status_code == 200:
                    await asyncio.sleep(PATIENCE_S)

    async def announce(self) -> None:
        """Announce a body and send nothing of it."""
        await self.say(
            b"POST /v1/models/a/predictions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer attacker\r\n"
            b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
        )

    async def begin(self) -> None:
        """Begin a request and do not end it."""
        await self.say(b"GET / HTTP/1.1\r\nX: ")

    async def say(self, text: bytes) -> None:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(*self.address)
            try:
                writer.write(text)
                await asyncio.sleep(PATIENCE_S)
            finally:
                writer.close()


@pytest.mark.anyio
async def test_nothing_of_the_other_tenants_is_rejected(address: tuple[str, int]) -> None:
    attacker = Attacker(address)
    await attacker.client.put("/v1/models/a", json={"classes": 3})
    async with client_of(address, "other") as other, attacker.attacking():
        statuses = Counter[tuple[str, int]]()
        for i in range(ROUNDS):
            for name, response in await one_round(other, i):
                statuses[name, response.status_code] += 1
                assert response.status_code < 400, (name, response.text, attacker.statuses)
        async with other.stream("GET", "/v1/alarms/events") as stream:
            assert stream.status_code == 200
        found = await other.get("/v1/models/b/metrics?metrics=brier")
        assert found.json()["n_predictions"] == 2 * ROUNDS, "each batch counted once"
        # Its requests are paced: few may have ended by now.
        async with asyncio.timeout(PATIENCE_S):
            while not attacker.rejected >= {"send_rows", "make_models", "stream"}:
                await asyncio.sleep(0.1)


async def one_round(other: httpx.AsyncClient, i: int) -> list[tuple[str, httpx.Response]]:
    """Do what a tenant does: declare, send, wait until it is merged, label, ask."""
    rows = ROWS | {"batch_id": f"b{i}", "ids": [f"{i}x", f"{i}y"]}
    return [
        ("declare", await other.put(f"/v1/models/m{i % 4}", json={"classes": 3})),
        (
            "send",
            await other.post("/v1/models/b/predictions", json=rows, headers={"Prefer": "wait=60"}),
        ),
        ("metrics", await other.get(f"/v1/models/b/metrics?metrics=ece&bins={BINS[i]}")),
        ("models", await other.get("/v1/models")),
        ("usage", await other.get("/v1/usage")),
    ]
