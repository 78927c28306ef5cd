"""The real service with its embedded store, in this process, for one scenario."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import httpx

from calibrant.kernel import VARIABLE
from calibrant_server.service.app import create_app
from calibrant_server.service.settings import Settings
from calibrant_server.workers.settings import PREFIX
from tests.recorded.clock import fixed_clock
from tests.recorded.exchanges import Exchange, exchange_of
from tests.recorded.masks import masked
from tests.waiting import PATIENCE_S

_POLL_S = 0.02
# Cohorts are sealed at once. Hours stay hours: nobody knows when days are made of them. A busy machine is no fault of the store.
SETTINGS = {
    "CALIBRANT_HOUSEKEEPING": "0.1",
    "CALIBRANT_COMPACT_AFTER": "P30000D",
    "CALIBRANT_SOCKET_TIMEOUT": "30",
}


WITH_DETAILS = re.compile("/models/[^/]+/(metrics|temperature)")


class Client:
    """Sends requests one after another and records each response."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.exchanges: list[Exchange] = []

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request and record the response."""
        response = await self.http.request(method, f"/v1{path}", **options)
        self.exchanges.append(masked(exchange_of(response)))
        return response

    async def get(
        self, path: str, headers: Any = None, short: bool = False, **params: Any
    ) -> httpx.Response:
        """GET; `from_` stands for the parameter `from`. Metrics and temperatures come with details, unless `short`."""
        query = {name.rstrip("_"): value for name, value in params.items()}
        if WITH_DETAILS.fullmatch(path) and not short:
            query["include"] = ",".join(filter(None, (query.get("include"), "details")))
        return await self.send("GET", path, params=query, headers=headers)

    async def put(self, path: str, json: Any, **options: Any) -> httpx.Response:
        """PUT a document."""
        return await self.send("PUT", path, json=json, **options)

    async def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        """POST a document or `content`, and wait until a batch is merged."""
        headers = {"Prefer": "wait=60"} | (options.pop("headers", None) or {})
        if json is not None:
            options["json"] = json
        return await self.send("POST", path, headers=headers, **options)

    async def until(self, path: str, is_reached: Callable[[Any], bool], **params: Any) -> None:
        """Repeat a GET, without recording it, until its body is as expected; the engine works in its own time."""
        for _ in range(int(PATIENCE_S / _POLL_S)):
            response = await self.http.get(f"/v1{path}", params=params)
            if response.status_code == 200 and is_reached(response.json()):
                return
            await asyncio.sleep(_POLL_S)
        raise AssertionError(f"{path} never reached the expected state: {response.text[:500]}")


Scenario = Callable[[Client], Coroutine[Any, Any, None]]


@asynccontextmanager
async def _serving(directory: Path) -> AsyncIterator[Client]:
    app = create_app(Settings(data_dir=directory, log_requests=False))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=PATIENCE_S
        ) as http,
    ):
        yield Client(http)


async def _exchanges(scenario: Scenario, then: Scenario | None) -> list[Exchange]:
    with TemporaryDirectory() as directory:
        async with _serving(Path(directory)) as client:
            await scenario(client)
            exchanges = list(client.exchanges)
            if then is not None:
                await then(client)
            return exchanges


def record(scenario: Scenario, then: Scenario | None = None) -> list[Exchange]:
    """Return the exchanges of a scenario with a new service, whose clock is fixed and whose settings are the defaults.

    What `then` asks of the same service afterwards is not recorded.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == VARIABLE or not name.startswith(PREFIX)
    }
    kept.pop("DATA_DIR", None)
    changed = kept | SETTINGS
    with patch.dict(os.environ, changed, clear=True), fixed_clock():
        return asyncio.run(_exchanges(scenario, then))
