"""Threads for work that would block the event loop: few at a time, which bounds memory.

Parsing a large body takes several times its size. More threads would not be faster, since most of the
work holds the interpreter's lock. One of several tenants has at most half of the threads: the work of another
never waits behind all that the first has sent. While others use the service too, it has one: the interpreter is then shared
by as many threads as there are tenants, however much one of them sends.

On Linux, these threads have a lower priority than the event loop, which serves small requests meanwhile. The difference is small:
a thread that has the interpreter's lock and waits for a core delays the event loop too.
"""

import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from calibrant_server.service.http.pacing import pace_of
from calibrant_server.service.http.tenant_activity import activity, tenant_of_request

T = TypeVar("T")
N_THREADS = 4
AT_ONCE = CapacityLimiter(N_THREADS)
OF_TENANT, OF_TENANT_AMONG_OTHERS = N_THREADS // 2, 1
NICE = 5  # added to the nice value of the threads: they have a third of the event loop's weight
ACTIVE_S = 10.0  # how long a tenant counts as active after a request

_turns: dict[str, CapacityLimiter] = {}
_lowered = threading.local()


async def in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Call `work` in a thread as soon as one is free."""
    tenant = tenant_of_request.get()
    if tenant is None:
        return await to_thread.run_sync(_at_low_priority, work, *arguments, limiter=AT_ONCE)
    spent_s: list[float] = []
    async with _turn(tenant):
        try:
            return await to_thread.run_sync(_timed, spent_s, work, *arguments, limiter=AT_ONCE)
        finally:
            pace_of(tenant).charge(sum(spent_s))


def _timed(spent_s: list[float], work: Callable[..., T], *arguments: object) -> T:
    """Call `work`, and report its CPU time."""
    started = time.thread_time()
    try:
        return _at_low_priority(work, *arguments)
    finally:
        spent_s.append(time.thread_time() - started)


def _at_low_priority(work: Callable[..., T], *arguments: object) -> T:
    """Call `work` in a thread of low priority; the thread keeps that priority, because raising it needs a privilege."""
    if sys.platform == "linux" and not getattr(_lowered, "is_done", False):
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread) + NICE
        os.setpriority(os.PRIO_PROCESS, thread, min(nice, 19))
        _lowered.is_done = True
    return work(*arguments)


@asynccontextmanager
async def _turn(tenant: str) -> AsyncIterator[None]:
    """Wait until the tenant has fewer than its part of the threads."""
    limiter = _turns.setdefault(tenant, CapacityLimiter(OF_TENANT))
    is_among_others = activity().has_others(tenant, time.monotonic() - ACTIVE_S)
    limiter.total_tokens = OF_TENANT_AMONG_OTHERS if is_among_others else OF_TENANT
    owner = object()
    await limiter.acquire_on_behalf_of(owner)
    try:
        yield
    finally:
        limiter.release_on_behalf_of(owner)
        found = limiter.statistics()
        if not found.borrowed_tokens and not found.tasks_waiting and _turns.get(tenant) is limiter:
            del _turns[tenant]
