"""`python -m benchmarks.reads`: CPU time of queries, of service, workers and store together, relative to `GET /livez`.

A window of hourly panes of ten classes and five raters is filled over HTTP. Each query is preceded by one prediction in the newest
pane, so that no result is cached. A cold query is the first after a start, with no pane in memory.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end import Served, children, columns, served

PATHS = ("metrics", "metrics?metrics=ece", "temperature")
A_BATCH = 10_000


def processor_s(service: Served) -> float:
    """CPU seconds of all threads so far, to the nanosecond; `Served.processor_s` counts hundredths of a second."""
    pids = [service.process.pid, *children(service.process.pid)]
    return sum(_of_threads(Path(f"/proc/{pid}/task")) for pid in pids)


def _of_threads(tasks: Path) -> float:
    spent = 0
    for task in tasks.iterdir():
        try:
            spent += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue
    return spent / 1e9


def fill(client: httpx.Client, model: str, n_panes: int, rows: int) -> datetime:
    """Fill a number of hourly panes; return the start of the newest."""
    last = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    starts = [last - timedelta(hours=n_panes - 1 - hour) for hour in range(n_panes)]
    times = [(start + timedelta(minutes=1)).isoformat() for start in starts for _ in range(rows)]
    for first in range(0, len(times), A_BATCH):
        some = times[first : first + A_BATCH]
        made = columns(len(some), first) | {"event_times": some}
        _post(client, model, made)
    return last


def _post(client: httpx.Client, model: str, made: dict[str, list[object]]) -> None:
    response = client.post(
        f"/v1/models/{model}/predictions", json=made, headers={"Prefer": "wait=60"}
    )
    response.raise_for_status()


def changed(client: httpx.Client, model: str, newest: datetime, seed: int) -> None:
    """Add one prediction to the newest pane."""
    at = (newest + timedelta(minutes=2)).isoformat()
    _post(client, model, columns(1, seed) | {"event_times": [at]})


def spent(service: Served, call: Callable[[], httpx.Response]) -> float:
    """CPU seconds of one request."""
    before = processor_s(service)
    call().raise_for_status()
    return processor_s(service) - before


def warm(service: Served, table: Table, n_panes: int, rows: int, repeats: int) -> None:
    """Measure queries of a window of which one pane has changed."""
    client, model = service.client, f"warm-{n_panes}"
    newest = fill(client, model, n_panes, rows)
    least = np.median([spent(service, lambda: client.get("/livez")) for _ in range(repeats)])
    table.add_row("GET /livez", "", f"{1e3 * least:.2f}", "", "1")
    for path in PATHS:
        times = []
        for seed in range(repeats + 2):
            changed(client, model, newest, seed)
            times.append(spent(service, lambda: client.get(f"/v1/models/{model}/{path}")))  # noqa: B023
        _report(table, path, f"{n_panes} panes, one changed", times[2:], float(least))


def cold(directory: str, table: Table, n_panes: int, rows: int, repeats: int) -> None:
    """Measure the first query after a start, for each path."""
    with served(directory) as service:
        newest = fill(service.client, "cold", n_panes, rows)
    times: dict[str, list[float]] = {path: [] for path in PATHS}
    least = []
    for seed in range(repeats):
        for path, found in times.items():
            with served(directory) as service:
                client = service.client
                # The first query of all loads what every later one shares.
                columns_of_another = columns(100, seed)
                _post(client, "other", columns_of_another)
                client.get(f"/v1/models/other/{path}").raise_for_status()
                changed(client, "cold", newest, seed)
                least.append(spent(service, lambda: client.get("/livez")))  # noqa: B023
                found.append(spent(service, lambda: client.get(f"/v1/models/cold/{path}")))  # noqa: B023
    for path, found in times.items():
        _report(table, path, f"{n_panes} panes, cold", found, float(np.median(least)))


def _report(table: Table, path: str, state: str, times: list[float], least: float) -> None:
    p50, p99 = np.quantile(times, [0.5, 0.99])
    table.add_row(
        f"GET {path}", state, f"{1e3 * p50:.1f}", f"{1e3 * p99:.1f}", f"{p50 / least:.1f}"
    )


def main(panes: int, cold_panes: int, rows: int, repeats: int, starts: int) -> None:
    """Print CPU time of queries."""
    table = Table(
        "read", "state", "CPU ms p50", "p99", "p50 / livez", title=f"Reads, {rows} rows a pane"
    )
    with served() as service:
        warm(service, table, panes, rows, repeats)
    if cold_panes:
        with tempfile.TemporaryDirectory() as directory:
            cold(directory, table, cold_panes, rows, starts)
    Console(width=110).print(table)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--panes", type=int, default=24)
    parser.add_argument("--cold-panes", type=int, default=720, help="0: no cold queries")
    parser.add_argument("--rows", type=int, default=2000, help="a pane")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--starts", type=int, default=3, help="of the service, for cold queries")
    chosen = parser.parse_args()
    main(chosen.panes, chosen.cold_panes, chosen.rows, chosen.repeats, chosen.starts)
