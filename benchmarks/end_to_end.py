"""`python -m benchmarks.end_to_end`: CPU time of the complete service relative to reading the same bytes.

It starts the service on its embedded default, sends batches over HTTP and counts the CPU time of service and store. The
reference is `orjson.loads` and `numpy.asarray` of each column of the same bytes in one thread. Then reads are timed: with
one pane changed, with another query of the same state, and unchanged.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

N_CLASSES, N_RATERS = 10, 5
ROOT = Path(__file__).parents[1]
TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Served:
    """A running service with its processes."""

    client: httpx.Client
    process: subprocess.Popen[bytes]
    directory: Path

    def processor_s(self) -> float:
        """CPU seconds of the service and its store so far."""
        return sum(_processor_s(pid) for pid in [self.process.pid, *children(self.process.pid)])


def _processor_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def children(pid: int) -> list[int]:
    """Return all descendants of process `pid`."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
    found, frontier = [], {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += sorted(frontier)
    return found


@contextmanager
def served(data: str | None = None) -> Iterator[Served]:
    """Start a service on a free port with its own empty store, or on the state in a directory."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as empty:
        directory = data or empty
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        environment = os.environ | {
            "PORT": str(port),
            "DATA_DIR": directory,
            "CALIBRANT_LOG_REQUESTS": "false",
            "OPENBLAS_NUM_THREADS": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "service"], env=environment, cwd=ROOT, stderr=subprocess.DEVNULL
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                _wait_ready(client)
                yield Served(client, process, Path(directory))
        finally:
            process.terminate()
            process.wait()


def _wait_ready(client: httpx.Client) -> None:
    for _ in range(2400):
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise RuntimeError("the service did not start")


def columns(n: int, seed: int) -> dict[str, list[Any]]:
    """Return plausible probabilities of ten classes, and the classes of five raters."""
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(N_CLASSES, 0.3), n)
    labels = rng.integers(0, N_CLASSES, (n, N_RATERS))
    return {"probabilities": scores.tolist(), "labels": labels.tolist()}


def body(n: int, form: str, seed: int) -> bytes:
    """Return the bytes of a batch as JSON or NDJSON."""
    made = columns(n, seed)
    if form == "json":
        return orjson.dumps(made)
    rows = zip(made["probabilities"], made["labels"], strict=True)
    return b"\n".join(orjson.dumps({"probability": p, "label": y}) for p, y in rows)


def floor_s(data: bytes, form: str, repeats: int) -> float:
    """Measure the CPU seconds of reading the bytes into arrays."""
    start = time.process_time()
    for _ in range(repeats):
        if form == "json":
            found = orjson.loads(data)
            made = [np.asarray(found["probabilities"]), np.asarray(found["labels"])]
        else:
            records = [orjson.loads(line) for line in data.split(b"\n")]
            made = [
                np.asarray([r["probability"] for r in records]),
                np.asarray([r["label"] for r in records]),
            ]
        del made
    return (time.process_time() - start) / repeats


def ingest(service: Served, table: Table, rounds: int) -> None:
    """Print CPU time per batch relative to the reference, for three sizes in two forms."""
    for n, n_batches in ((1, 300), (100, 150), (10_000, 12)):
        for form, media_type in (("json", "application/json"), ("ndjson", "application/x-ndjson")):
            data = [body(n, form, seed) for seed in range(n_batches)]
            model = f"{form}-{n}"
            _send(service.client, model, data[:2], media_type)
            ratios, rates = [], []
            for _ in range(rounds):
                least = floor_s(data[0], form, max(3, 30_000 // n // 10))
                before, started = service.processor_s(), time.perf_counter()
                _send(service.client, model, data, media_type)
                passed = time.perf_counter() - started
                ratios.append((service.processor_s() - before) / n_batches / least)
                rates.append(n * n_batches / passed)
            table.add_row(
                f"{n:,}", form, f"{np.median(ratios):.1f}", f"{min(ratios):.1f} to {max(ratios):.1f}",
                f"{np.median(rates):,.0f}",
            )  # fmt: skip


def _send(client: httpx.Client, model: str, bodies: list[bytes], media_type: str) -> None:
    headers = {"Content-Type": media_type}
    for data in bodies[:-1]:
        client.post(
            f"/v1/models/{model}/predictions", content=data, headers=headers
        ).raise_for_status()
    last = client.post(
        f"/v1/models/{model}/predictions",
        content=bodies[-1],
        headers=headers | {"Prefer": "wait=60"},
    )
    last.raise_for_status()
    if last.json()["status"] != "merged":
        raise RuntimeError(last.text)


def reads(service: Served, table: Table, n_panes: int, repeats: int) -> None:
    """Print reads of a window of panes: new state, new query, unchanged."""
    model, client = f"panes-{n_panes}", service.client
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=n_panes)
    for hour in range(n_panes):
        made = columns(2000, hour)
        at = (start + timedelta(hours=hour, minutes=1)).isoformat()
        _post(client, model, made | {"event_times": [at] * 2000})
    for path in ("metrics", "temperature"):
        fresh, asked, unchanged = [], [], []
        for i in range(repeats):
            _post(
                client,
                model,
                columns(1, i) | {"event_times": [(start + timedelta(minutes=2)).isoformat()]},
            )
            fresh.append(_timed(client, f"/v1/models/{model}/{path}")[0])
            asked.append(_timed(client, f"/v1/models/{model}/{path}", ci=0.9 + 0.0001 * i)[0])
            etag = client.get(f"/v1/models/{model}/{path}").headers["etag"]
            passed, status = _timed(client, f"/v1/models/{model}/{path}", etag=etag)
            assert status == 304
            unchanged.append(passed)
        for name, times in (
            ("one pane changed", fresh),
            ("another question", asked),
            ("304", unchanged),
        ):
            p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
            table.add_row(path, f"{n_panes}", name, f"{p50:.1f}", f"{p99:.1f}")


def _post(client: httpx.Client, model: str, made: dict[str, list[Any]]) -> None:
    response = client.post(
        f"/v1/models/{model}/predictions", json=made, headers={"Prefer": "wait=60"}
    )
    response.raise_for_status()


def _timed(
    client: httpx.Client, path: str, etag: str | None = None, **params: float
) -> tuple[float, int]:
    headers = {"If-None-Match": etag} if etag else {}
    started = time.perf_counter()
    response = client.get(path, params=params, headers=headers)
    return time.perf_counter() - started, response.status_code


def main(rounds: int, repeats: int, panes: list[int]) -> None:
    """Print both tables."""
    console = Console()
    with served() as service:
        table = Table(
            "rows a batch",
            "form",
            "processor time / floor",
            "spread",
            "predictions/s",
            title="Ingest",
        )
        ingest(service, table, rounds)
        console.print(table)
        table = Table("read", "panes", "state", "p50 ms", "p99 ms", title="Reads")
        for n_panes in panes:
            reads(service, table, n_panes, repeats)
        console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--panes", type=int, nargs="*", default=[24, 720])
    chosen = parser.parse_args()
    main(chosen.rounds, chosen.repeats, chosen.panes)
