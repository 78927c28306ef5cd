"""`python -m benchmarks.pages [N...]`: CPU time of the HTTP process for each page, with N models.

The service runs with its store and engine in another process; the pages are served by this one, so its CPU time is that of
pages alone. `first`: nothing is cached, and workers compute results meanwhile. `changed`: every model on the page has new
data. `status`: nothing has changed, but no status was checked for a minute. `again`: the median of later views.
Every view must be within the goal: 0.1 s with at most 100 models, 1 s with more. The exit code is 1 if one is not.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end import Served, served
from calibrant_server.service.app import create_app
from calibrant_server.service.engine import connected
from calibrant_server.service.pages.models_page import PAGE_SIZE
from calibrant_server.service.pages.rendering import load_templates
from calibrant_server.service.reads import fleet
from calibrant_server.service.settings import Settings

PAGES = ("/", "/?sort=name&page=2", "/models/m00000", "/models/m00000/raters", "/keys")
DAYS, A_DAY, AGAIN = 10, 20, 7


@dataclass(frozen=True)
class PageCost:
    """CPU milliseconds of one page in each situation."""

    n_models: int
    path: str
    first: float
    changed: float
    status: float
    again: float

    @property
    def goal(self) -> float:
        """Return the CPU milliseconds that a view may take."""
        return 100.0 if self.n_models <= 100 else 1000.0

    @property
    def is_within_goal(self) -> bool:
        """Return whether every view was within the goal."""
        return max(self.first, self.changed, self.status, self.again) <= self.goal


def post_days(service: Served, number: int, rng: np.random.Generator, first: datetime) -> None:
    """Post ten days of one watched three-class model; every 25th waits until all is merged."""
    times = [
        (first + timedelta(days=day, minutes=i)).isoformat()
        for day in range(DAYS)
        for i in range(A_DAY)
    ]
    body = {
        "logits": rng.normal(0, 2, (DAYS * A_DAY, 3)).round(3).tolist(),
        "labels": rng.integers(0, 3, DAYS * A_DAY).tolist(),
        "event_times": times,
    }
    wait = {"Prefer": "wait=60"} if number % PAGE_SIZE == PAGE_SIZE - 1 else {}
    path = f"/v1/models/m{number:05d}"
    service.client.post(f"{path}/predictions", json=body, headers=wait).raise_for_status()


def fill(service: Served, n_models: int) -> None:
    """Post the days of a watched three-class model under each name."""
    rng = np.random.default_rng(1)
    first = datetime.now(UTC) - timedelta(days=DAYS + 2)
    for number in range(n_models):
        settings = {"task": "multiclass", "classes": 3, "pane": "P1D", "label_horizon": "P1D"}
        service.client.put(f"/v1/models/m{number:05d}", json=settings).raise_for_status()
        post_days(service, number, rng, first)


async def measured(service: Served, n_models: int) -> list[PageCost]:
    """Return the cost of each page."""
    store = service.directory / "store" / "server.sock"
    settings = Settings(redis_url=f"unix://{store}", log_requests=False)
    rng, now = np.random.default_rng(2), datetime.now(UTC)
    load_templates()
    rows: list[PageCost] = []
    async with connected(settings) as connection:
        app = create_app(settings, connection)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:

            async def view(path: str) -> float:
                started = time.process_time()
                (await client.get(path, timeout=120)).raise_for_status()
                return 1000 * (time.process_time() - started)

            fleet.STATUS_AGE_S = 0.0  # the statuses of changed models are computed at once
            await view("/assets/pages.css")
            for path in PAGES:
                first = await view(path)
                again = statistics.median([await view(path) for _ in range(AGAIN)])
                status = await view(path)
                # Models of the first two pages; times differ, so no batch repeats an earlier one.
                for number in range(min(n_models, 2 * PAGE_SIZE)):
                    begin = now - timedelta(days=DAYS, seconds=len(rows))
                    await asyncio.to_thread(post_days, service, number, rng, begin)
                changed = await view(path)
                rows.append(PageCost(n_models, path, first, changed, status, again))
    return rows


def main() -> None:
    table = Table(
        *("models", "page", "first, ms", "changed, ms", "status, ms", "again, ms", "goal, ms"),
        title="CPU of the HTTP process",
    )
    found: list[PageCost] = []
    for n_models in [int(each) for each in sys.argv[1:]] or [100, 1000]:
        with served() as service:
            fill(service, n_models)
            found += asyncio.run(measured(service, n_models))
    for each in found:
        figures = (each.first, each.changed, each.status, each.again, each.goal)
        table.add_row(f"{each.n_models:,}", each.path, *(f"{figure:.0f}" for figure in figures))
    Console().print(table)
    sys.exit(not all(each.is_within_goal for each in found))


if __name__ == "__main__":
    main()
