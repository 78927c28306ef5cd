"""A damaged pane is named to who reads its window; batches for it are parked, and merged once it is readable again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from calibrant_server.workers.engine import Engine
from calibrant_server.workers.settings import EngineSettings
from tests.stores import StoreServer

MODEL = "/v1/models/m"
HEADERS = {"Prefer": "wait=60"}


def rows(hour: int) -> dict[str, list[object]]:
    times = [f"2026-01-01T{hour:02d}:10:00Z"] * 2
    return {
        "probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]],
        "labels": [0, 1],
        "event_times": times,
        "slices": {"site": ["A", "B"]},
    }


@pytest.fixture
async def client(store_server: StoreServer) -> AsyncIterator[httpx.AsyncClient]:
    settings = EngineSettings(redis_url=store_server.url, partitions=1, held_panes_bytes=0)
    async with Engine(settings, works_here=True) as engine:
        app = create_app(Settings(), Connection(engine.inbox, engine.registry, engine))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


def window(first: int, last: int, **more: str) -> dict[str, str]:
    times = {
        name: f"2026-01-01T{hour:02d}:00:00Z" for name, hour in (("from", first), ("to", last))
    }
    return {**times, "metrics": "ece", **more}


@pytest.mark.anyio
async def test_it_is_named_and_its_batches_wait(
    store_server: StoreServer, client: httpx.AsyncClient
) -> None:
    created = await client.put(
        MODEL,
        json={"task": "multiclass", "classes": ["a", "b", "c"], "slices": {"site": ["A", "B"]}},
    )
    assert created.status_code in (200, 201), created.text
    for hour in range(3):
        sent = await client.post(f"{MODEL}/predictions", json=rows(hour), headers=HEADERS)
        assert sent.json()["status"] == "merged", sent.text
    with store_server.client() as store:
        [name] = store.scan_iter(match="*:t:default/m|*|" + str(1767225600 + 3600))
        intact = store.hgetall(name)
        store.hset(name, mapping=dict.fromkeys(intact, b"damaged"))

        for asked in (window(0, 3, bins="5"), window(1, 2, bins="5")):
            found = await client.get(f"{MODEL}/metrics", params=asked)
            assert found.status_code == 500, found.text
            problem = found.json()
            assert problem["type"] == "/v1/problems/pane-damaged"
            [error] = problem["errors"]
            assert error["rule"] == "damaged_pane"
            assert "from 2026-01-01T01:00:00Z to 2026-01-01T02:00:00Z" in error["detail"]
        # Its neighbours are served.
        for asked in (window(0, 1), window(2, 3), window(0, 1, slice="site:A")):
            assert (await client.get(f"{MODEL}/metrics", params=asked)).status_code == 200

        body = {**rows(1), "batch_id": "late"}
        sent = await client.post(f"{MODEL}/predictions", json=body)
        assert sent.status_code == 202

        async def letters() -> list[dict[str, object]]:
            return (await client.get(f"{MODEL}/dead-letters")).json()["dead_letters"]

        while not (parked := await letters()):
            await asyncio.sleep(0.02)
        assert parked[0]["status"] == "parked" and parked[0]["batch_id"] == "late"
        assert "2026-01-01T01:00:00Z" in str(parked[0]["reason"])
        receipt = (await client.get(f"{MODEL}/batches/late")).json()
        assert (receipt["status"], receipt["accepted"], receipt["errors"]) == ("parked", 2, [])

        store.hset(name, mapping=intact)
        replayed = await client.post(f"{MODEL}/dead-letters/{parked[0]['id']}/replay")
        assert replayed.status_code == 202, replayed.text
        while (await client.get(f"{MODEL}/batches/late")).json()["status"] != "merged":
            await asyncio.sleep(0.02)
    after = (await client.get(f"{MODEL}/metrics", params=window(0, 3))).json()
    assert after["n_predictions"] == 8
    assert await letters() == []
