"""Limits of tenants and keys: rates, models, streams, settings, webhook tests, and their report."""

import asyncio
import json
import os
import sys
import threading

import pytest
from redis.exceptions import ConnectionError as StoreConnectionError

from calibrant_server.service.app import create_app
from calibrant_server.service.engine import Connection
from calibrant_server.service.http import threads
from calibrant_server.service.http.event_streams import Streams
from calibrant_server.service.http.problems import QuotaFull, RateExceeded
from calibrant_server.service.security.key_file import hash_of
from calibrant_server.service.security.rates import Rates
from calibrant_server.service.settings import Settings
from calibrant_server.workers.store.rate_limits import LEASE_S
from tests.service.conftest import PREDICTIONS, client_of, problem
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio


def entry(secret: str, tenant: str) -> dict:
    return {"sha256": hash_of(secret), "name": secret, "tenant": tenant}


def made(tmp_path, inbox, registry, **changes):
    keys = json.dumps({"keys": [entry("ann", "a"), entry("amy", "a"), entry("bob", "b")]})
    settings = Settings(data_dir=tmp_path, keys=keys, log_requests=False, **changes)
    return create_app(settings, Connection(inbox, registry))


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class Bucket:
    """A store that grants what the test says, and notes what was reported."""

    def __init__(self, grants: list[float]) -> None:
        self.grants, self.spent = grants, []

    async def renew(self, subject, rate, spent):
        self.spent.append((subject, spent))
        if not self.grants:
            raise StoreConnectionError("away")
        return self.grants.pop(0)


class Time:
    """A clock that the test moves, and pauses that end when it does."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waiting: list[tuple[float, asyncio.Event]] = []

    def __call__(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        event = asyncio.Event()
        self.waiting.append((self.now + seconds, event))
        await event.wait()

    async def pass_by(self, seconds: float) -> None:
        self.now += seconds
        for at, event in self.waiting:
            if at <= self.now:
                event.set()
        await settle()


async def settle() -> None:
    """Let tasks that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def exhausted(rates: Rates) -> int:
    """Spend until a request is rejected; return how many were not."""
    for n in range(1000):
        try:
            rates.spend("a", "k")
        except RateExceeded:
            return n
    raise AssertionError


class TestRates:
    """Tokens in one process."""

    async def test_no_request_waits_and_one_lease_is_the_overshoot(self):
        clock, bucket = Time(), Bucket([4, 0, 0, 3])
        rates = Rates(bucket, 10, 0, clock, clock.pause)
        assert exhausted(rates) == 10, "one lease, before the store was asked"
        await settle()
        assert bucket.spent == [("t:a", 10)]
        assert exhausted(rates) == 4, "what the store granted then"
        await clock.pass_by(LEASE_S)
        assert bucket.spent[-1] == ("t:a", 4)
        assert exhausted(rates) == 0
        await clock.pass_by(LEASE_S)
        assert exhausted(rates) == 0
        await clock.pass_by(LEASE_S)
        assert exhausted(rates) == 3, "renewed without a request"
        assert sum(n for _, n in bucket.spent) == 14, "everything spent was reported"
        await rates.close()

    async def test_a_client_that_waited_as_told_is_served(self):
        clock = Time()
        rates = Rates(Bucket([0, 5]), 10, 0, clock, clock.pause)
        exhausted(rates)
        await settle()
        with pytest.raises(RateExceeded) as rejected:
            rates.spend("a", "k")
        await clock.pass_by(rejected.value.retry_after_s)
        assert rates.spend("a", "k") == '"tenant";r=4;t=1'
        await rates.close()

    async def test_renewals_end_when_nothing_is_spent(self):
        clock, bucket = Time(), Bucket([9, 9, 9, 9])
        rates = Rates(bucket, 10, 0, clock, clock.pause)
        rates.spend("a", "k")
        for _ in range(5):
            await settle()
            await clock.pass_by(LEASE_S)
        assert [n for _, n in bucket.spent] == [1]
        assert rates.spend("a", "k")

    async def test_tenant_and_key_are_limited_separately(self):
        rates = Rates(Bucket([]), 10, 4)
        assert exhausted(rates) == 4
        for _ in range(4):
            rates.spend("a", "other key")
        rates.spend("b", "third key")
        assert rates.policy() == '"tenant";q=10;w=1, "key";q=4;w=1'
        await rates.close()

    async def test_a_store_that_is_away_limits_each_process_by_itself(self):
        clock = Time()
        rates = Rates(Bucket([]), 3, 0, clock, clock.pause)
        assert exhausted(rates) == 3
        await settle()
        assert exhausted(rates) == 3
        await rates.close()


async def test_requests_above_the_rate_are_rejected_with_headers(tmp_path, inbox, registry):
    inbox.rates = Bucket([0] * 1000)
    app = made(tmp_path, inbox, registry, tenant_rate=5, key_rate=3)
    async with client_of(app) as client:
        found = [await client.get("/v1/models", headers=bearer("ann")) for _ in range(4)]
        assert found[0].headers["ratelimit-policy"] == '"tenant";q=5;w=1, "key";q=3;w=1'
        assert found[0].headers["ratelimit"].startswith('"tenant";r=4;t=')
        rejected = next(each for each in found if each.status_code == 429)
        assert problem(rejected, 429, "rate-exceeded")["retryable"]
        assert rejected.headers["retry-after"] == "1"
        other = await client.get("/v1/models", headers=bearer("bob"))
        assert other.status_code == 200, "of another tenant"
    await app.state.rates.close()


async def test_an_open_service_has_no_rates(client):
    answer = await client.get("/v1/models")
    assert "ratelimit" not in answer.headers


async def test_a_tenant_has_a_maximum_of_models(tmp_path, inbox, registry):
    app = made(tmp_path, inbox, registry, tenant_models=2)
    async with client_of(app) as client:
        for i in range(2):
            await client.put(f"/v1/models/m{i}", headers=bearer("ann"), json={"classes": 3})
        full = await client.put("/v1/models/m2", headers=bearer("ann"), json={"classes": 3})
        problem(full, 429, "quota-full")
        url = "/v1/models/m3/predictions"
        problem(await client.post(url, headers=bearer("ann"), json=PREDICTIONS), 429, "quota-full")
        known = await client.post(
            "/v1/models/m1/predictions", headers=bearer("ann"), json=PREDICTIONS
        )
        assert known.status_code == 202
        other = await client.post(url, headers=bearer("bob"), json=PREDICTIONS)
        assert other.status_code == 202


def test_one_tenant_cannot_open_all_streams():
    streams = Streams()
    with streams.place(4, "a", 0.5), streams.place(4, "a", 0.5):
        with pytest.raises(QuotaFull), streams.place(4, "a", 0.5):
            pass
        with streams.place(4, "b", 0.5), streams.place(4, "b", 0.5):
            assert streams.open == 4
    assert streams.open == 0 and not streams.of


@pytest.mark.parametrize(
    "slices",
    [{f"k{i}": None for i in range(65)}, {"k": [f"v{i}" for i in range(1001)]}],
)
async def test_settings_have_a_maximum_of_slices(client, slices):
    answer = await client.put("/v1/models/m", json={"classes": 3, "slices": slices})
    found = problem(answer, 422, "invalid-input")
    assert found["errors"][0]["pointer"].startswith("/slices")


async def test_settings_have_a_maximum_of_bytes(client):
    body = json.dumps({"classes": 3, "unit": "x" * 2_000_000})
    answer = await client.put(
        "/v1/models/m", content=body, headers={"Content-Type": "application/json"}
    )
    problem(answer, 413, "body-too-large")


async def test_a_second_webhook_test_has_to_wait(client):
    alarm = {"webhooks": [{"url": "https://pager.example.org/x"}]}
    body = {"classes": 3, "label_horizon": "P7D", "alarm": alarm}
    await client.put("/v1/models/m", json=body)
    assert (await client.post("/v1/models/m/alarm/test")).status_code == 202
    answer = await client.post("/v1/models/m/alarm/test")
    problem(answer, 429, "quota-full")
    assert answer.headers["retry-after"] == "42"


async def test_usage_names_every_limit(tmp_path, inbox, registry):
    app = made(tmp_path, inbox, registry, tenant_models=10, key_rate=0)
    async with client_of(app) as client:
        await client.put("/v1/models/m", headers=bearer("ann"), json={"classes": 3})
        answer = await client.get("/v1/usage", headers=bearer("ann"))
    assert answer.status_code == 200, answer.text
    body = answer.json()
    found = {each.pop("name"): each for each in body["limits"]}
    assert body["tenant"] == "a"
    assert (found["models"]["used"], found["models"]["limit"]) == (1, 10)
    assert (found["retained_records"]["used"], found["retained_records"]["total"]) == (12, 12)
    assert found["retained_records"]["limit"] == 20_000_000, "half: there is another tenant"
    assert found["backlog_bytes"]["used"] == 9
    assert found["event_streams"] == {"limit": 50, "used": 0, "total": None, "scope": "process"}
    assert found["requests_per_second"]["limit"] == 1000
    assert found["requests_per_second_of_a_key"]["limit"] is None


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are those of Linux")
async def test_work_that_blocks_has_a_lower_priority_than_the_event_loop():
    def nice() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = nice()
    found = [await threads.in_thread(nice) for _ in range(3)]
    assert found == [min(before + threads.NICE, 19)] * 3, "lowered once"
    assert nice() == before


async def test_the_work_of_another_tenant_does_not_wait_behind_all_of_ones_own():
    """Work of one tenant that blocks takes one thread, however much of it there is."""
    release, began = threading.Event(), []

    def block(name: str) -> None:
        began.append(name)
        release.wait(PATIENCE_S)

    async def work(tenant: str, name: str) -> None:
        threads.tenant_of_request.set(tenant)
        await threads.in_thread(block, name)

    blocked = [asyncio.create_task(work("a", "a")) for _ in range(10)]
    while not began:
        await asyncio.sleep(0.01)
    other = asyncio.create_task(work("b", "b"))
    while "b" not in began:
        await asyncio.sleep(0.01)
    assert began == ["a", "b"]
    release.set()
    await asyncio.gather(*blocked, other)
    assert len(began) == 11
