"""`python -m benchmarks.polling`: serving processes that poll the map to use, 1,000 times a second, while it is changed.

Two connections request `GET maps/current` with their current tag at a fixed rate, independent of the responses. Another
connection promotes versions and rolls them back. Each response is checked: digest, version, one body per tag, and never an
older promotion after a newer one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from dataclasses import dataclass, field

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.end_to_end import Served, served
from calibrant.calibrators.map_method import digest

URL = "/v1/models/polled/maps"
N_CONNECTIONS = 2


@dataclass
class Poller:
    """One connection: its responses and their times, counted from the scheduled request."""

    host: str
    port: int
    every_s: float
    etag: str | None = None
    last: int = 0
    n_unchanged: int = 0
    n_other: int = 0
    ended: float = 0
    late_s: list[float] = field(default_factory=list)
    bodies: dict[str, bytes] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def poll(self, begin: float, until: float) -> None:
        """Send requests at the rate from `begin` to `until`, in seconds of the monotonic clock."""
        connection, due = http.client.HTTPConnection(self.host, self.port), begin
        while due < until:
            time.sleep(max(0.0, due - time.monotonic()))
            connection.request(
                "GET", f"{URL}/current", headers={"If-None-Match": self.etag} if self.etag else {}
            )
            response = connection.getresponse()
            self._take(response.status, response.headers.get("etag", ""), response.read())
            self.late_s.append(time.monotonic() - due)
            due += self.every_s
        self.ended = time.monotonic()
        connection.close()

    def _take(self, status: int, etag: str, body: bytes) -> None:
        if status == 304:
            self.n_unchanged += 1
            return
        if status != 200:
            self.n_other += 1
            return
        found, self.etag = json.loads(body), etag
        number = found["promotion"]["promotion"]
        if self.bodies.setdefault(etag, body) != body or digest(found) != found["digest"]:
            self.wrong.append(f"half a map under {etag}")
        if found["version"] != found["promotion"]["version"] or number <= self.last:
            self.wrong.append(f"promotion {number} after {self.last}")
        self.last = number


def freeze(client: httpx.Client) -> str:
    """Create two versions with different temperatures; return the tag of the first promotion."""
    rng = np.random.default_rng(0)
    for temperature in (1.0, 3.0):
        z = rng.normal(0.0, 3.0, (2000, 3))
        p = np.exp(z / temperature)
        p /= p.sum(axis=1, keepdims=True)
        labels = (p.cumsum(axis=1) > rng.random((2000, 1))).argmax(axis=1)
        body = {"logits": z.tolist(), "labels": labels.tolist()}
        client.post(
            "/v1/models/polled/predictions", json=body, headers={"Prefer": "wait=60"}
        ).raise_for_status()
        client.post(URL, json={}).raise_for_status()
    return _promoted(client, 1, {"If-None-Match": "*"})


def _promoted(client: httpx.Client, version: int, held: dict[str, str]) -> str:
    body = {"version": version, "reason": "to and fro", "override": True}
    response = client.put(f"{URL}/current", json=body, headers=held)
    response.raise_for_status()
    return str(response.headers["etag"])


def poll(service: Served, table: Table, rate: float, seconds: float, promotions: float) -> None:
    """Poll at `rate` per second for a number of seconds, with promotions in between."""
    etag = freeze(service.client)
    base, begin = service.client.base_url, time.monotonic() + 0.2
    pollers = [
        Poller(base.host, base.port or 80, N_CONNECTIONS / rate) for _ in range(N_CONNECTIONS)
    ]
    threads = [
        threading.Thread(target=each.poll, args=(begin + i / rate, begin + seconds), daemon=True)
        for i, each in enumerate(pollers)
    ]
    before, n_promotions = service.processor_s(), 0
    for thread in threads:
        thread.start()
    while time.monotonic() < begin + seconds:
        etag = _promoted(service.client, 1 + (n_promotions + 1) % 2, {"If-Match": etag})
        n_promotions += 1
        time.sleep(1 / promotions)
    for thread in threads:
        thread.join()
    busy, passed = service.processor_s() - before, max(each.ended for each in pollers) - begin
    late = np.concatenate([each.late_s for each in pollers])
    p50, p99 = np.quantile(late, [0.5, 0.99]) * 1e3
    reported = {
        "asked a second": f"{rate:,.0f}",
        "answered a second": f"{len(late) / passed:,.0f}",
        "promotions meanwhile": f"{n_promotions}",
        "share of 304": f"{sum(each.n_unchanged for each in pollers) / len(late):.3f}",
        "neither 200 nor 304": f"{sum(each.n_other for each in pollers)}",
        "wrong answers": f"{sum(len(each.wrong) for each in pollers)}",
        "p50 and p99, ms from when it was due": f"{p50:.1f} and {p99:.1f}",
        "cores busy": f"{busy / passed:.2f}",
    }
    for row in reported.items():
        table.add_row(*row)


def main(rate: float, seconds: float, promotions: float) -> None:
    """Print the requested rate, the reached rate, and the number of wrong responses."""
    table = Table(title="Polling maps/current", show_header=False)
    with served() as service:
        poll(service, table, rate, seconds, promotions)
    Console(width=110).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--promotions", type=float, default=10, help="a second")
    chosen = parser.parse_args()
    main(chosen.rate, chosen.seconds, chosen.promotions)
