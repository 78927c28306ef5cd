"""`python -m benchmarks.requests`: CPU time of small requests and of Arrow bodies, over HTTP with store and workers.

The client is another process, and its CPU time does not count. Requests a core are requests per CPU second of service, store
and workers. Keys, limits and the access log are on, and the log goes to a file.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end import N_CLASSES, N_RATERS, ROOT, _wait_ready, children, columns

KEY = "benchmark-key"
KEYS = {"keys": [{"sha256": hashlib.sha256(KEY.encode()).hexdigest(), "name": "benchmark"}]}
AUTHORIZATION = f"Authorization: Bearer {KEY}\r\n"
ARROW = "application/vnd.apache.arrow.stream"


@dataclass
class Service:
    """A running service, with the CPU time of all its processes."""

    port: int
    process: subprocess.Popen[bytes]
    client: httpx.Client

    def processor_s(self) -> float:
        """Return the CPU seconds of service, workers and store so far, to the nanosecond."""
        return sum(map(processor_s, [self.process.pid, *children(self.process.pid)]))

    def memory_bytes(self) -> int:
        """Return the memory of service, workers and store that is in use; shared pages count once."""
        pids = [self.process.pid, *children(self.process.pid)]
        return sum(_memory_bytes(Path(f"/proc/{pid}/smaps_rollup")) for pid in pids)


def _memory_bytes(file: Path) -> int:
    lines = file.read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def processor_s(pid: int) -> float:
    """Return the CPU seconds of the threads of a process so far."""
    return sum(map(_thread_s, Path(f"/proc/{pid}/task").iterdir()))


def _thread_s(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


@contextmanager
def served(
    data: str | None = None, module: Sequence[str] = ("service",), **settings: str
) -> Iterator[Service]:
    """Start a service with a key and with high limits on a free port, with its own empty store or on the state in a directory.

    Parameters
    ----------
    module : what to run, with its arguments
    """
    with socket.socket() as probe, tempfile.TemporaryDirectory() as empty:
        directory = data or empty
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        environment = (
            os.environ
            | {
                "PORT": str(port),
                "DATA_DIR": directory,
                "OPENBLAS_NUM_THREADS": "1",
                "CALIBRANT_KEYS": orjson.dumps(KEYS).decode(),
                "CALIBRANT_TENANT_RATE": "1000000",
                "CALIBRANT_KEY_RATE": "1000000",
            }
            | settings
        )
        with (Path(empty) / "log").open("wb") as log:
            command = [sys.executable, "-m", *module]
            process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=log)
        try:
            base, headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {KEY}"}
            with httpx.Client(base_url=base, headers=headers, timeout=120) as client:
                _wait_ready(client)
                yield Service(port, process, client)
        finally:
            process.terminate()
            process.wait()


def request(method: str, path: str, body: bytes = b"", head: str = "", kind: str = "") -> bytes:
    """Return the bytes of a request."""
    kind = f"Content-Type: {kind or 'application/json'}\r\n" if body else ""
    first = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZATION}{kind}{head}"
    return f"{first}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes
) -> tuple[int, bytes, bytes]:
    """Send a request; return status, head and body of the response."""
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    lower = head.lower()
    at = lower.find(b"content-length:")
    length = int(head[at + 15 : head.index(b"\r\n", at)]) if at >= 0 else 0
    return int(head[9:12]), head, await reader.readexactly(length)


async def _client(port: int, requests: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for each in requests:
        status, _, body = await exchange(reader, writer, each)
        if status not in (200, 202, 304):
            raise RuntimeError(f"{status} {body[:300]!r}")
    writer.close()


def per_request_s(service: Service, requests: list[bytes], n_clients: int) -> float:
    """Return the CPU seconds of one of these requests, divided among so many clients."""

    async def all_clients() -> None:
        parts = [requests[i::n_clients] for i in range(n_clients)]
        await asyncio.gather(*(_client(service.port, part) for part in parts if part))

    before = service.processor_s()
    asyncio.run(all_clients())
    return (service.processor_s() - before) / len(requests)


def posts(model: str, n: int, n_rows: int = 1) -> list[bytes]:
    """Return requests that post batches; the last one waits until all are merged."""
    path = f"/v1/models/{model}/predictions"
    bodies = [orjson.dumps(columns(n_rows, seed)) for seed in range(n)]
    found = [request("POST", path, body) for body in bodies]
    return [*found, request("POST", path, bodies[0], "Prefer: wait=60\r\n")]


def arrow_body(n: int, seed: int, **more: Any) -> bytes:
    """Return float32 probabilities and int8 labels as an Arrow stream."""
    import pyarrow as pa

    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(N_CLASSES, 0.3), n).astype("f4")
    labels = rng.integers(0, N_CLASSES, (n, N_RATERS)).astype("i1")
    table = pa.table(
        {
            "probabilities": pa.FixedSizeListArray.from_arrays(scores.ravel(), N_CLASSES),
            "labels": pa.FixedSizeListArray.from_arrays(labels.ravel(), N_RATERS),
            **more,
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def unchanged_s(service: Service, n: int) -> np.ndarray:
    """Return the CPU seconds of reads whose response has not changed."""
    path = "/v1/models/one/metrics"

    async def reads() -> np.ndarray:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        sent = request("GET", path)
        found: list[float] = []
        n_changed = 0
        while len(found) < n + 20:
            before = service.processor_s()
            status, head, _ = await exchange(reader, writer, sent)
            if status == 304:
                found.append(service.processor_s() - before)
                continue
            # The first response, and the first one after a pane has left the window.
            n_changed += 1
            if status != 200 or n_changed > 3:
                raise RuntimeError(f"expected 304, received {status} {n_changed} times")
            etag = next(
                line for line in head.decode().split("\r\n") if line.lower().startswith("etag")
            )
            sent = request("GET", path, head=f"If-None-Match:{etag.partition(':')[2]}\r\n")
        return np.array(found[20:])

    return asyncio.run(reads())


def main(rounds: int, n_requests: int) -> None:
    """Print a table."""
    table = Table("what", "CPU, median of rounds", "spread", "target")
    with served() as service:
        per_request_s(service, posts("one", 50), 8)

        def row(name: str, found: list[float], scale: float, unit: str, target: str) -> None:
            low, mid, high = (scale * each for each in np.quantile(found, [0, 0.5, 1]))
            table.add_row(name, f"{mid:.3g} {unit}", f"{low:.3g} to {high:.3g}", target)

        livez = [request("GET", "/livez")] * n_requests
        found = [per_request_s(service, livez, 1) for _ in range(rounds)]
        row("GET /livez, one client", found, 1e6, "µs", "")
        for n_clients, target in ((1, "1000 µs"), (64, "200 µs")):
            found = [
                per_request_s(service, posts("one", n_requests), n_clients) for _ in range(rounds)
            ]
            row(f"one row, {n_clients} clients", found, 1e6, "µs", target)
        unchanged = unchanged_s(service, 300)
        row("304 (median, min to p99)", [unchanged.min(), float(np.median(unchanged)),
            float(np.quantile(unchanged, 0.99))], 1e3, "ms", "p99 1 ms")  # fmt: skip
        n, n_batches = 10_000, 20
        bodies = [arrow_body(n, seed) for seed in range(n_batches)]
        path = "/v1/models/arrow/predictions"
        sent = [request("POST", path, each, kind=ARROW) for each in bodies]
        sent.append(request("POST", path, bodies[0], "Prefer: wait=60\r\n", ARROW))
        per_request_s(service, sent[-3:], 1)
        found = [per_request_s(service, sent, 1) / n for _ in range(rounds)]
        row("Arrow, float32, 10,000 rows: a prediction", found, 1e6, "µs", "2 µs")
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=600)
    chosen = parser.parse_args()
    main(chosen.rounds, chosen.requests)
