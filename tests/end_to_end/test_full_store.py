"""A store at `maxmemory`: reads, queries and deletions are served, only ingest is rejected, and health says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from calibrant_server.workers.engine import Engine
from calibrant_server.workers.health import read_health
from calibrant_server.workers.settings import EngineSettings
from tests.stores import StoreServer
from tests.waiting import PATIENCE_S

MODEL = "/v1/models/m"
HEADERS = {"Prefer": "wait=60"}


def rows(first: int, n: int = 40) -> dict[str, list[object]]:
    return {
        "probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]] * (n // 2),
        "labels": [0, 1] * (n // 2),
        "ids": [f"i{first + i}" for i in range(n)],
    }


@pytest.fixture
async def engine(store_server: StoreServer) -> AsyncIterator[Engine]:
    settings = EngineSettings(redis_url=store_server.url, partitions=1, lease_s=2.0)
    async with Engine(settings, works_here=True) as engine:
        yield engine


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(), Connection(engine.inbox, engine.registry, engine))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def merged(client: httpx.AsyncClient, path: str, body: dict[str, list[object]]) -> None:
    sent = await client.post(path, json=body, headers=HEADERS)
    assert (sent.status_code, sent.json()["status"]) == (200, "merged"), sent.text


async def until_empty(engine: Engine) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await engine.inbox.troubles()).backlog_entries:
            await asyncio.sleep(0.02)


@pytest.mark.anyio
async def test_only_ingest_is_rejected(
    store_server: StoreServer, engine: Engine, client: httpx.AsyncClient
) -> None:
    for model in ("m", "gone"):
        await merged(client, f"/v1/models/{model}/predictions", rows(0))
    before = (await client.get(f"{MODEL}/metrics?metrics=ece")).json()
    assert engine.supervisor is not None
    host = engine.supervisor._leases.name.partition(":")[0]
    with store_server.client() as store:
        # Every request needs more memory than there is from here on.
        store.config_set("maxmemory", "1mb")

        rejected = await client.post(f"{MODEL}/predictions", json=rows(100))
        assert rejected.status_code == 503 and int(rejected.headers["Retry-After"]) <= 5
        assert "memory is full" in rejected.json()["detail"]
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["store_full"]) == (200, True)

        # Cached, computed by a worker, and by the second queue.
        assert (await client.get(f"{MODEL}/metrics?metrics=ece")).json() == before
        for path in (
            "metrics?metrics=brier,mce&bins=8", "reliability", "temperature?include=heldout", "raters", "drift",
            "metrics?metrics=ece&against=model:gone",
        ):  # fmt: skip
            found = await client.get(f"{MODEL}/{path}")
            assert found.status_code == 200, (path, found.text)
        assert (await client.get("/v1/models")).status_code == 200
        assert (await client.get(f"{MODEL}/export")).status_code == 200
        health = read_health(engine.supervisor.store, host)
        assert health.store_full and health.is_red and health.workers_here == 1
        assert health.stalled_partitions == 0

        # A prediction and a model are deleted.
        removed = await client.delete(f"{MODEL}/predictions/i0", headers=HEADERS)
        assert removed.status_code in (200, 202), removed.text
        assert list(store.scan_iter(match="*default/gone|*"))
        deleted = await client.delete("/v1/models/gone")
        assert deleted.status_code == 204, deleted.text
        await until_empty(engine)
        assert not list(store.scan_iter(match="*gone*"))

        store.config_set("maxmemory", "0")
        assert not read_health(engine.supervisor.store, host).is_red
    # The service repeats the rejection from memory for a moment.
    async with asyncio.timeout(PATIENCE_S):
        while (await client.post(f"{MODEL}/predictions", json=rows(100))).status_code == 503:
            await asyncio.sleep(0.1)
    await until_empty(engine)
    after = (await client.get(f"{MODEL}/metrics?metrics=ece")).json()
    assert after["n_predictions"] == before["n_predictions"] - 1 + 40
