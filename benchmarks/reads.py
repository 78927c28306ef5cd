"""`python -m benchmarks.reads`: CPU time of queries, of service, workers and store together, relative to `GET /livez`.

A window of hourly panes of ten classes and five raters is filled over HTTP. Each query is preceded by one prediction in the newest
pane, so that no result is cached. A cold query is the first after a start, with no pane in memory.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end import columns
from benchmarks.requests import Service, served

PATHS = ("metrics", "metrics?metrics=ece", "temperature")
A_BATCH = 10_000


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


def spent(service: Service, call: Callable[[], httpx.Response]) -> float:
    """CPU seconds until one request has its response; on a busy machine the first one may be 503."""
    before = service.processor_s()
    while (response := call()).status_code == 503:
        time.sleep(1.0)
    response.raise_for_status()
    return service.processor_s() - before


def warm_s(service: Service, n_panes: int, rows: int, repeats: int) -> dict[str, list[float]]:
    """Return CPU seconds of queries of a window with one changed pane, and of `livez`."""
    client, model = service.client, f"warm-{n_panes}"
    newest = fill(client, model, n_panes, rows)
    found = {"livez": [spent(service, partial(client.get, "/livez")) for _ in range(repeats)]}
    for path in PATHS:
        times = []
        for seed in range(repeats + 2):
            changed(client, model, newest, seed)
            times.append(spent(service, partial(client.get, f"/v1/models/{model}/{path}")))
        found[path] = times[2:]
    return found


def cold_s(
    directory: str, n_panes: int, rows: int, starts: int, paths: tuple[str, ...] = PATHS
) -> dict[str, list[float]]:
    """Return CPU seconds of the first query after each start, for each path, and of `livez`."""
    with served(directory) as service:
        newest = fill(service.client, "cold", n_panes, rows)
    times: dict[str, list[float]] = {path: [] for path in ("livez", *paths)}
    for seed in range(starts):
        for path in paths:
            with served(directory) as service:
                client = service.client
                # The first query of all loads what every later one shares.
                _post(client, "other", columns(100, seed))
                spent(service, partial(client.get, f"/v1/models/other/{path}"))
                changed(client, "cold", newest, seed)
                times["livez"].append(spent(service, partial(client.get, "/livez")))
                times[path].append(spent(service, partial(client.get, f"/v1/models/cold/{path}")))
    return times


def _report(table: Table, state: str, found: dict[str, list[float]]) -> None:
    least = float(np.median(found["livez"]))
    for path, times in found.items():
        p50, p99 = np.quantile(times, [0.5, 0.99])
        row = f"{1e3 * p50:.1f}", f"{1e3 * p99:.1f}", f"{p50 / least:.1f}"
        table.add_row(f"GET {path}", state, *row)


def main(panes: int, cold_panes: int, rows: int, repeats: int, starts: int) -> None:
    """Print CPU time of queries."""
    table = Table(
        "read", "state", "CPU ms p50", "p99", "p50 / livez", title=f"Reads, {rows} rows a pane"
    )
    with served() as service:
        _report(table, f"{panes} panes, one changed", warm_s(service, panes, rows, repeats))
    if cold_panes:
        with tempfile.TemporaryDirectory() as directory:
            _report(table, f"{cold_panes} panes, cold", cold_s(directory, cold_panes, rows, starts))
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
