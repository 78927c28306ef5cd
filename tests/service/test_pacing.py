"""A tenant that sends several requests at once leaves the event loop to other tenants while it is busy."""

from __future__ import annotations

import asyncio
import time
from contextvars import Context

import pytest

from calibrant_server.service.http import pacing, tenant_activity
from calibrant_server.service.http.pacing import Measured, begin
from calibrant_server.service.http.tenant_activity import TenantActivity
from calibrant_server.service.http.threads import in_thread

pytestmark = pytest.mark.anyio

STEP_S = 0.002


class Busy(TenantActivity):
    """Activity of a service whose cores are busy."""

    def is_high(self, now):
        return True


@pytest.fixture(autouse=True)
def used(monkeypatch):
    found = Busy()
    found.n_cores = 1
    monkeypatch.setattr(tenant_activity._Used, "activity", found)
    monkeypatch.setattr(pacing, "_paces", {})
    return found


async def steps(tenant, n, spent=None):
    """A request of some steps, which begins as one does whose key was checked."""
    await begin(tenant)
    for _ in range(n):
        started = time.thread_time()
        while time.thread_time() < started + STEP_S:
            pass
        if spent is not None:
            spent.append(time.thread_time() - started)
        await asyncio.sleep(0)


async def ask(tenant, n=5, spent=None):
    """Serve a request as the middleware does, in a task of its own; its response begins at its end."""

    async def task():
        await Measured(steps(tenant, n, spent), lambda: False)

    await asyncio.create_task(task(), context=Context())


async def keep_asking(tenant, until, spent):
    while time.monotonic() < until:
        await ask(tenant, spent=spent)


async def run_both(seconds=1.5, n_at_once=4, other="b"):
    """Return the CPU seconds of tenant a, with requests at once, and of the other, with one after the other; and the seconds of the clock."""
    a, b = [], []
    started = time.monotonic()
    until = started + seconds
    every = [keep_asking("a", until, a) for _ in range(n_at_once)]
    await asyncio.gather(*every, keep_asking(other, until, b))
    return sum(a), sum(b), time.monotonic() - started


async def test_a_tenant_with_several_requests_leaves_the_time_to_others():
    a_s, b_s, clock_s = await run_both()
    assert a_s < 1.5 * pacing.SHARE * clock_s + 0.05 and b_s > 0


async def test_without_pacing_it_would_take_most_of_it(monkeypatch):
    """The simulation above can fail."""
    monkeypatch.setattr(pacing.Pace, "_is_due", lambda self, now: False)
    a_s, b_s, _ = await run_both(seconds=0.5)
    assert a_s > 2 * b_s


@pytest.mark.parametrize("case", ["idle cores", "one request at a time", "no other tenant"])
async def test_nobody_waits_otherwise(case, used, monkeypatch):
    def call(self, loop):
        raise AssertionError("a request waits")

    monkeypatch.setattr(pacing.Pace, "_call", call)
    if case == "idle cores":
        monkeypatch.setattr(used, "is_high", lambda now: False)
    n_at_once, other = 1 if case == "one request at a time" else 4, "b"
    if case == "no other tenant":
        other = "a"
    await run_both(0.3, n_at_once, other)


async def test_waiting_requests_begin_when_the_other_tenant_has_gone(monkeypatch):
    monkeypatch.setattr(pacing, "LINGER_S", 0.2)
    monkeypatch.setattr(pacing, "SHARE", 1e-6)
    await ask("b")
    await asyncio.wait_for(asyncio.gather(*(ask("a") for _ in range(4))), 60)


async def test_a_request_whose_response_has_begun_is_not_open():
    release = asyncio.Event()

    async def stream():
        await begin("a")
        await release.wait()

    async def task():
        await Measured(stream(), lambda: True)

    open_ones = [asyncio.create_task(task(), context=Context()) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert pacing.pace_of("a").n_open == 0
    release.set()
    await asyncio.gather(*open_ones)
    assert pacing.pace_of("a").n_open == 0


async def test_errors_and_cancellation_reach_the_request():
    seen = []

    async def request(end):
        await begin("a")
        try:
            await asyncio.sleep(0 if end == "raises" else 60)
            raise ValueError("its own")
        except BaseException as error:
            seen.append(type(error))
            raise

    async def task(end):
        await Measured(request(end), lambda: False)

    with pytest.raises(ValueError, match="its own"):
        await asyncio.create_task(task("raises"), context=Context())
    waiting = asyncio.create_task(task("waits"), context=Context())
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert seen == [ValueError, asyncio.CancelledError]
    assert pacing.pace_of("a").n_open == 0


async def test_requests_that_wait_hold_nothing_and_can_be_cancelled(monkeypatch):
    monkeypatch.setattr(pacing, "SHARE", 1e-6)
    monkeypatch.setattr(pacing, "LINGER_S", 60.0)
    begun = []

    async def request():
        await begin("a")
        begun.append(1)
        started = time.thread_time()
        while time.thread_time() < started + 0.02:
            pass
        await asyncio.sleep(60)

    async def task():
        await Measured(request(), lambda: False)

    await ask("b")
    several = [asyncio.create_task(task(), context=Context()) for _ in range(8)]
    await asyncio.sleep(4 * pacing.MOST_WAIT_S)
    n_begun = len(begun)
    assert 1 <= n_begun <= 3, "until their steps have used what the tenant has"
    assert pacing.pace_of("a").n_open == 8
    for each in several:
        each.cancel()
    ended = await asyncio.gather(*several, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    assert pacing.pace_of("a").n_open == 0 and len(begun) == n_begun


async def test_a_request_begins_once():
    """One whose 304 was looked up goes on to its route."""
    await begin("a")
    pacing.pace_of("a").turn = None
    await begin("a")


async def test_work_in_threads_counts():
    def work():
        started = time.thread_time()
        while time.thread_time() < started + 0.05:
            pass

    await begin("a")
    before = pacing.pace_of("a")._left_s
    await in_thread(work)
    assert pacing.pace_of("a")._left_s < before - 0.02


def test_two_tenants_show_whether_there_is_another():
    activity = TenantActivity()
    assert not activity.has_others("a", 0.5)
    activity.note("a", 1.0)
    assert not activity.has_others("a", 0.5) and activity.has_others("b", 0.5)
    activity.note("b", 2.0)
    activity.note("c", 3.0)
    assert activity.has_others("c", 1.5) and not activity.has_others("c", 2.5)
    assert activity.has_others("a", 2.5)
    activity.note("c", 4.0)
    assert activity.has_others("c", 2.0), "the last other one is known"


def test_the_load_is_that_of_all_processes():
    first, second = TenantActivity(2), TenantActivity(2)
    second._numbers, second.number = first._numbers, 1
    for each in (first, second):
        each.n_cores = 4
    at = first._measured_at

    def measure(each, rate, now):
        each._cpu_s, each._measured_at = time.process_time() - rate, now - 1.0
        return each.is_high(now)

    assert not measure(first, 0.2, at + 10)
    assert measure(second, 0.6, at + 10), "its own event loop is busy"
    assert not measure(first, 0.3, at + 10.5), "0.9 of 2 cores"
    assert measure(second, 0.9, at + 10.6) and measure(first, 0.4, at + 10.7), "1.3 of 2 cores"
    assert not measure(first, 0.4, at + 20), "the other one's is not known any more"
