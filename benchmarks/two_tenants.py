"""`python -m benchmarks.two_tenants`: what one tenant's worst costs another tenant's 99th percentile.

A pair is a new service with its embedded store, on which segments without and with the attack alternate: both see the same
state and the same load of the machine. The other tenant posts two rows, waits for nothing, and asks for metrics. The attacker is
a process of its own, at the lowest priority and, where there are two cores, on one core while the other tenant's client
and the service use the rest; it is stopped (SIGSTOP) in the segments without it. Printed is the median over the pairs of the ratio
of both 99th percentiles; the goal is at most 2.

`--parts` chooses parts of the attack, to find out which of them costs most.

The ratio is printed by the clock, and by the CPU time that service, engine and store used between request and response:
where the service has one core, that is the duration on a machine without other programs. The attacker's share of
its core in the segments with it is printed too: a starved attacker attacks little.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path

import httpx
import orjson

from benchmarks.end_to_end import children

PORT = 18734
URL = f"http://127.0.0.1:{PORT}"
ROWS = {"probabilities": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], "labels": [0, 1]}
REQUESTS = (
    ("POST", "/v1/models/b/predictions", ROWS),
    ("GET", "/v1/models/b/metrics?metrics=ece,brier", None),
)
START_S = 60.0
# What the attacker does at the same time, and how often at once.
PARTS = {"rows": 8, "queries": 8, "streams": 40, "half": 100}
# Predictions by id that an attacker sends in seconds may take minutes of one core to merge.
MERGE_S = 900.0


def key(name: str) -> dict[str, str]:
    """Return the header of a tenant's key."""
    return {"Authorization": f"Bearer {name}"}


@contextmanager
def service(cores: set[int]) -> Iterator[list[int]]:
    """Run a service with keys of two tenants on these cores; yield the ids of its processes."""
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
            # The other tenant sends the next request at once; on a fast machine, that is more than the default rate.
            "CALIBRANT_TENANT_RATE": "10000",
            "CALIBRANT_KEY_RATE": "10000",
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
            yield [process.pid, *children(process.pid)]
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


def wait_until_merged() -> None:
    """Wait until what was sent before is merged: it is no part of a segment without the attack."""
    deadline = time.monotonic() + MERGE_S
    while time.monotonic() < deadline:
        lines = httpx.get(f"{URL}/metrics", timeout=60).text.splitlines()
        waiting = [line for line in lines if line.startswith("calibrant_backlog_entries ")]
        if waiting and float(waiting[0].split()[1]) == 0:
            return
        time.sleep(0.2)
    raise TimeoutError("the backlog was not merged")


def attack(core: int | None, nice: int, begun: Event, parts: tuple[str, ...]) -> None:
    """Do the worst until killed: large bodies, retained records, queries, streams, half-sent requests."""
    os.nice(nice)
    if core is not None:
        os.sched_setaffinity(0, {core})
    asyncio.run(_attack(begun, parts))


async def _attack(begun: Event, parts: tuple[str, ...]) -> None:
    async with httpx.AsyncClient(base_url=URL, headers=key("attacker"), timeout=60) as client:

        async def rows(i: int) -> None:
            n = 2000
            body = {"probabilities": [[0.7, 0.2, 0.1]] * n, "ids": [f"{i}-{j}" for j in range(n)]}
            headers = {"Content-Type": "application/json"}
            await client.post(
                "/v1/models/a/predictions", content=orjson.dumps(body), headers=headers
            )

        async def ask(i: int) -> None:
            query = {
                "metrics": "ece,kde_ece,smooth_ece",
                "ci": f"{0.5 + i / 1000 % 4000 / 10_000:.4f}",
            }
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

        await rows(0)  # queries need a model with data
        begun.set()
        of = {"rows": rows, "queries": ask, "streams": stream, "half": half}
        kinds = [of[part] for part in parts for _ in range(PARTS[part])]
        await asyncio.gather(*(again(kind, number) for number, kind in enumerate(kinds, 1)))


class Measured:
    """Durations of the other tenant's requests, in seconds, and CPU seconds of these processes meanwhile."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids
        self.of: dict[str, list[float]] = {method: [] for method, _, _ in REQUESTS}
        self.cpu_of: dict[str, list[float]] = {method: [] for method, _, _ in REQUESTS}

    def send(self, client: httpx.Client, seconds: float) -> None:
        """Send requests for so long; fail if one is rejected."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for method, path, body in REQUESTS:
                cpu_s, started = _cpu_s(self.pids), time.perf_counter()
                response = client.request(method, path, json=body)
                self.of[method].append(time.perf_counter() - started)
                self.cpu_of[method].append(_cpu_s(self.pids) - cpu_s)
                if response.status_code >= 400:
                    raise SystemExit(f"rejected: {response.status_code} {response.text}")

    @property
    def p99(self) -> tuple[float, float]:
        """By the clock and by CPU time."""
        return _overall_p99(self.of), _overall_p99(self.cpu_of)

    def text(self) -> str:
        """Return percentiles of each kind of request, in ms."""
        parts = []
        for method, found in self.of.items():
            clock = [_percentile(found, percent) * 1000 for percent in (50, 99)]
            cpu = [_percentile(self.cpu_of[method], percent) * 1000 for percent in (50, 99)]
            parts.append(
                f"{method} p50 {clock[0]:.1f} p99 {clock[1]:.1f} ms, "
                f"CPU p50 {cpu[0]:.1f} p99 {cpu[1]:.1f} ms (n {len(found)})"
            )
        return "; ".join(parts)


def _overall_p99(by_method: dict[str, list[float]]) -> float:
    return _percentile([each for found in by_method.values() for each in found], 99)


def _percentile(found: list[float], percent: int) -> float:
    return statistics.quantiles(found, n=100)[percent - 1]


def _cpu_s(pids: list[int]) -> float:
    """Return the CPU seconds of processes so far; see clock_getcpuclockid(3)."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def pair(
    seconds: float,
    segment_s: float,
    nice: int,
    parts: tuple[str, ...],
    with_attack_first: bool,
) -> tuple[float, float]:
    """Run one pair; print the percentiles and return the ratios by the clock and by CPU time."""
    cores = sorted(os.sched_getaffinity(0))
    own, others = (cores[-1], set(cores[:-1])) if len(cores) > 1 else (None, set(cores))
    attack_s = attack_cpu_s = 0.0
    with (
        service(others) as pids,
        httpx.Client(base_url=URL, headers=key("other"), timeout=60) as client,
    ):
        alone, attacked = Measured(pids), Measured(pids)
        httpx.put(f"{URL}/v1/models/a", json={"classes": 3}, headers=key("attacker"), timeout=60)
        httpx.put(f"{URL}/v1/models/b", json={"classes": 3}, headers=key("other"), timeout=60)
        context = multiprocessing.get_context("spawn")
        begun = context.Event()
        attacker = context.Process(target=attack, args=(own, nice, begun, parts))
        attacker.start()
        assert attacker.pid is not None
        begun.wait(START_S)
        own_cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, others)
        try:
            for i in range(2 * round(seconds / segment_s)):
                is_attacked = (i % 2 == 0) == with_attack_first
                os.kill(attacker.pid, signal.SIGCONT if is_attacked else signal.SIGSTOP)
                if is_attacked:
                    Measured(pids).send(client, 1.0)
                else:
                    wait_until_merged()
                started, before_s = time.monotonic(), _cpu_s([attacker.pid])
                (attacked if is_attacked else alone).send(client, segment_s)
                if is_attacked:
                    attack_s += time.monotonic() - started
                    attack_cpu_s += _cpu_s([attacker.pid]) - before_s
        finally:
            os.sched_setaffinity(0, own_cores)
            attacker.kill()
            attacker.join()
    print(f"  alone:    {alone.text()}\n  attacked: {attacked.text()}")
    print(f"  the attacker used {attack_cpu_s / attack_s:.0%} of a core")
    by_clock, by_cpu = (
        with_it / without for with_it, without in zip(attacked.p99, alone.p99, strict=True)
    )
    return by_clock, by_cpu


def main() -> None:
    """Print each pair and the median ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of attack, for each pair")
    parser.add_argument("--segment", type=float, default=5.0, help="seconds of one segment")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--nice",
        type=int,
        default=19,
        help="of the attacker; less on a busy machine, where 19 would starve it",
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        help="of the attack; default: all at the same time",
    )
    given = parser.parse_args()
    parts = tuple(given.parts)
    ratios = []
    for number in range(given.pairs):
        ratios.append(pair(given.seconds, given.segment, given.nice, parts, number % 2 == 1))
        by_clock, by_cpu = ratios[-1]
        print(
            f"pair {number + 1}: ratio of p99 {by_clock:.2f} by the clock, {by_cpu:.2f} by CPU time"
        )
    by_clock, by_cpu = (statistics.median(found) for found in zip(*ratios, strict=True))
    print(
        f"median ratio of {given.pairs} pairs of {given.seconds:g} s: "
        f"{by_clock:.2f} by the clock, {by_cpu:.2f} by CPU time"
    )


if __name__ == "__main__":
    main()
