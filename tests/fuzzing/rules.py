"""What must hold of every response, and a world of four models in which it is checked.

The engine is in memory: its complete state can be compared after every rejected request.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI

from calibrant_server.service.app import create_app, set_up_state
from calibrant_server.service.engine import Connection
from calibrant_server.service.settings import Settings
from tests.fuzzing.requests import FuzzRequest, request
from tests.service.conftest import client_of
from tests.service.fakes import FakeInbox, FakeRegistry

SEED = 20_261_122
REQUESTS_OF_A_BLOCK = 100
MAX_CPU_S, MAX_GROWTH_BYTES, SMALL_BYTES = 1.0, 100e6, 1_000_000
WORLD: dict[str, dict[str, Any]] = {
    "two": {"task": "binary"},
    "three": {"task": "multiclass", "classes": 3},
    "pixels": {"task": "segmentation", "classes": 3},
    "declared": {"task": "binary", "slices": {"site": ["A"]}, "unit": "patient"},
}


class RuleBroken(AssertionError):
    """A response, or the state after it, that must not be; the message has the request and its number."""


@dataclass
class Outcome:
    """Numbers of responses by status, and the largest costs."""

    statuses: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0
    growth_bytes: float = 0.0

    def add(self, other: Outcome) -> None:
        """Add the numbers of another run."""
        self.statuses += other.statuses
        self.cpu_s = max(self.cpu_s, other.cpu_s)
        self.growth_bytes = max(self.growth_bytes, other.growth_bytes)


@cache
def app_of(folder: Path) -> FastAPI:
    """Return the app, whose routes take half a second of CPU to build; a world furnishes it anew."""
    return create_app(Settings(data_dir=folder, log_requests=False))


class World:
    """The service in front of an engine in memory."""

    def __init__(self, folder: Path) -> None:
        self.registry = FakeRegistry()
        self.inbox = FakeInbox(self.registry)
        settings = Settings(data_dir=folder, log_requests=False)
        self.app = app_of(folder)
        set_up_state(self.app, settings, Connection(self.inbox, self.registry))

    def state(self) -> Any:
        """Return everything that a request can change."""
        inbox = self.inbox
        maps = (inbox.maps.versions, inbox.maps.currents, inbox.maps.records)
        return (
            dict(self.registry.configs),
            len(inbox.deliveries),
            len(inbox.orders),
            len(inbox.records),
            len(inbox.letters.done),
            repr(maps),
            repr(vars(inbox.access_keys)),
        )


async def run_block(block: int, folder: Path) -> Outcome:
    """Send the requests of one block; raise `RuleBroken` at the first rule that is broken."""
    world, outcome = World(folder), Outcome()
    rng = np.random.default_rng([SEED, block])
    async with client_of(world.app) as client:
        for name, settings in WORLD.items():
            await client.put(f"/v1/models/{name}", json=settings)
        for number in range(REQUESTS_OF_A_BLOCK):
            sent = request(rng)
            try:
                await check(world, client, sent, outcome)
            except Exception as error:
                where = f"block {block}, request {number}: {sent}"
                raise RuleBroken(f"{where}\n{type(error).__name__}: {error}") from error
    return outcome


async def check(
    world: World, client: httpx.AsyncClient, sent: FuzzRequest, outcome: Outcome
) -> None:
    """Send one request and check every rule."""
    before, peak_before, cpu = world.state(), _restarted_peak(), time.process_time()
    response = await client.request(
        sent.method, sent.path, params=sent.params, headers=sent.headers, content=sent.body
    )
    cpu, growth = time.process_time() - cpu, _peak() - peak_before
    outcome.statuses[str(response.status_code)] += 1
    outcome.cpu_s = max(outcome.cpu_s, cpu)
    outcome.growth_bytes = max(outcome.growth_bytes, growth)
    status = response.status_code
    assert status < 500 or (status == 503 and "retry-after" in response.headers), response.text
    if status >= 400:
        assert response.headers["content-type"] == "application/problem+json"
        assert len(response.json()["errors"]) <= 100
        assert world.state() == before, f"{status} changed the state"
    if len(sent.body or b"") < SMALL_BYTES:
        assert cpu < MAX_CPU_S, f"{cpu:.2f} s of CPU"
        assert growth < MAX_GROWTH_BYTES, f"{growth / 1e6:.0f} MB"


def _restarted_peak() -> float:
    """Make the system measure the peak of memory anew, where it can; return the present one."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 0.0
    return _peak()


def _peak() -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * int(each.split()[1]) for each in lines if each.startswith("VmHWM")), 0.0)
