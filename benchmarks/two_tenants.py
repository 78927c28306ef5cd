"""`python -m benchmarks.two_tenants [SECONDS] [PAIRS]`: what one tenant's worst costs another tenant's 99th percentile.

A pair is one run without and one with the attacker, in changing order, each on a new service with its embedded store. The other
tenant posts two rows, waits for nothing, and asks for metrics. The attacker is a process of its own, at the lowest
priority and, where there are two cores, on one core while the other tenant's client and the service use the rest. Printed is
the median over the pairs of the ratio of both 99th percentiles; the goal is at most 2.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

PORT = 18734
URL = f"http://127.0.0.1:{PORT}"
ROWS = {"probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], "labels": [0, 1]}
REQUESTS = (
    ("POST", "/v1/models/b/predictions", ROWS),
    ("GET", "/v1/models/b/metrics?metrics=ece,brier", None),
)
START_S = 60.0


def key(name: str) -> dict[str, str]:
    """Return the header of a tenant's key."""
    return {"Authorization": f"Bearer {name}"}


@contextmanager
def service(cores: set[int]) -> Iterator[None]:
    """Run a service with keys of two tenants."""
    entries = [
        {"sha256": hashlib.sha256(name.encode()).hexdigest(), "name": name, "tenant": name}
        for name in ("attacker", "other")
    ]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "CALIBRANT_KEYS": json.dumps({"keys": entries}),
            "CALIBRANT_PORT": str(PORT),
            "CALIBRANT_DATA_DIR": folder,
            "CALIBRANT_LOG_REQUESTS": "false",
        }
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "service"],
                env=environment,
                stderr=log,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )
        try:
            wait_until_ready()
            yield
        finally:
            process.terminate()
            process.wait(START_S)


def wait_until_ready() -> None:
    """Wait until the service responds."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if httpx.get(f"{URL}/readyz").status_code == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("the service did not start")


def attack(core: int | None) -> None:
    """Do the worst until killed: large bodies, retained records, queries, streams, half-sent requests."""
    os.nice(19)
    if core is not None:
        os.sched_setaffinity(0, {core})
    asyncio.run(_attack())


async def _attack() -> None:
    async with httpx.AsyncClient(base_url=URL, headers=key("attacker"), timeout=60) as client:

        async def rows(i: int) -> None:
            n = 2000
            body = {"probabilities": [[0.7, 0.2, 0.1]] * n, "ids": [f"{i}-{j}" for j in range(n)]}
            await client.post("/v1/models/a/predictions", json=body)

        async def ask(i: int) -> None:
            query = {"metrics": "ece,kde_ece,smooth_ece", "ci": str(0.5 + i % 400 / 1000)}
            await client.get("/v1/models/a/metrics", params=query)

        async def stream(i: int) -> None:
            async with client.stream("GET", "/v1/alarms/events") as response:
                if response.status_code == 200:
                    await asyncio.sleep(3600)

        async def half(i: int) -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", PORT)
            writer.write(b"GET / HTTP/1.1\r\nX: ")
            await asyncio.sleep(5)
            writer.close()

        async def again(kind: Callable[[int], Awaitable[None]], first: int) -> None:
            for i in range(first, 10**9, 1000):
                with suppress(httpx.HTTPError, OSError):
                    await kind(i)

        kinds = [rows] * 8 + [ask] * 8 + [stream] * 40 + [half] * 100
        await asyncio.gather(*(again(kind, number) for number, kind in enumerate(kinds)))


def percentile_99(seconds: float) -> float:
    """Return the 99th percentile of the other tenant's requests, in seconds; fail if one is rejected."""
    durations: list[float] = []
    end = time.monotonic() + seconds
    with httpx.Client(base_url=URL, headers=key("other"), timeout=60) as client:
        while time.monotonic() < end:
            for method, path, body in REQUESTS:
                started = time.perf_counter()
                response = client.request(method, path, json=body)
                durations.append(time.perf_counter() - started)
                if response.status_code >= 400:
                    raise SystemExit(f"rejected: {response.status_code} {response.text}")
    return statistics.quantiles(durations, n=100)[98]


def run(seconds: float, is_attacked: bool) -> float:
    """Return the 99th percentile of one run."""
    cores = sorted(os.sched_getaffinity(0))
    own, others = (cores[-1], set(cores[:-1])) if len(cores) > 1 else (None, set(cores))
    with service(others):
        attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(own,))
        if is_attacked:
            httpx.put(f"{URL}/v1/models/a", json={"classes": 3}, headers=key("attacker"))
            attacker.start()
            time.sleep(2)
        try:
            return percentile_99(seconds)
        finally:
            if is_attacked:
                attacker.kill()
                attacker.join()


def main() -> None:
    """Print each pair and the median ratio."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    ratios = []
    for number in range(pairs):
        order = (False, True) if number % 2 == 0 else (True, False)
        found = {is_attacked: run(seconds, is_attacked) for is_attacked in order}
        ratios.append(found[True] / found[False])
        alone, attacked = found[False] * 1000, found[True] * 1000
        print(
            f"pair {number + 1}: p99 {alone:.1f} ms alone, {attacked:.1f} ms attacked", flush=True
        )
    print(f"median ratio {statistics.median(ratios):.2f} of {pairs} pairs of {seconds:g} s")


if __name__ == "__main__":
    main()
