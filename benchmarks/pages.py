"""`python -m benchmarks.pages [N...]`: CPU time of the HTTP process for each page, with N models.

The service runs with its store and engine in another process; the pages are served by this one, so its CPU time is that of
pages alone. `first`: nothing is cached, and workers compute results meanwhile. `status`: results are cached, but every
status is older than a minute. `again`: the median of later views. Goals: 0.1 s with 100 models, 1 s with 1,000.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end import Served, served
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import connected
from calibrant_server.service.reads.model_statuses import StatusCache
from calibrant_server.service.settings import Settings

PAGES = ("/", "/?sort=name&page=2", "/models/m00000", "/models/m00000/raters", "/keys")
DAYS, A_DAY, AGAIN = 10, 20, 7


def fill(service: Served, n_models: int) -> None:
    """Post ten days of a watched three-class model under each name."""
    rng = np.random.default_rng(1)
    first = datetime.now(UTC) - timedelta(days=DAYS + 2)
    times = [
        (first + timedelta(days=day, minutes=i)).isoformat()
        for day in range(DAYS)
        for i in range(A_DAY)
    ]
    for number in range(n_models):
        path = f"/v1/models/m{number:05d}"
        settings = {"task": "multiclass", "classes": 3, "pane": "P1D", "label_horizon": "P1D"}
        service.client.put(path, json=settings).raise_for_status()
        body = {
            "logits": rng.normal(0, 2, (DAYS * A_DAY, 3)).round(3).tolist(),
            "labels": rng.integers(0, 3, DAYS * A_DAY).tolist(),
            "event_times": times,
        }
        wait = {"Prefer": "wait=60"} if number % 50 == 49 else {}
        service.client.post(f"{path}/predictions", json=body, headers=wait).raise_for_status()


async def measured(directory: Path, n_models: int) -> list[list[str]]:
    """Return the CPU milliseconds of each page."""
    settings = Settings(
        redis_url=f"unix://{directory / 'store' / 'server.sock'}", log_requests=False
    )
    rows = []
    async with connected(settings) as connection:
        app = create_app(settings, connection)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

            async def view(path: str) -> float:
                started = time.process_time()
                (await client.get(path, timeout=120)).raise_for_status()
                return 1000 * (time.process_time() - started)

            await view("/assets/pages.css")
            for path in PAGES:
                first = await view(path)
                again = statistics.median([await view(path) for _ in range(AGAIN)])
                app.state.statuses = StatusCache(app.state.reads)
                status = await view(path)
                figures = [f"{each:.0f}" for each in (first, status, again)]
                rows.append([f"{n_models:,}", path, *figures])
    return rows


def main() -> None:
    console = Console()
    table = Table(
        "models", "page", "first, ms", "status, ms", "again, ms", title="CPU of the HTTP process"
    )
    for n_models in [int(each) for each in sys.argv[1:]] or [100, 1000]:
        with served() as service:
            fill(service, n_models)
            for row in asyncio.run(measured(service.directory, n_models)):
                table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
