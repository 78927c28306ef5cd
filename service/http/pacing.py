"""Pacing of tenants that send several requests at once: they leave the event loops to others while the service is busy.

Requests of one process share its event loop, and processes may share a core. While another tenant is active and the service is
busy, a tenant with several open requests has a tenth of the time that the event loops have, by CPU time. Its requests wait
before they begin, when they hold nothing that another request needs; none is rejected. A tenant that waits for each response before
it sends the next request is not delayed, nor is anyone while cores are idle.

What a request uses is measured in steps: what its coroutine does between two waits, and its work in threads.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from calibrant_server.service.http.tenant_activity import activity, note_tenant, tenant_of_request

SHARE = 0.1
# A tenant is another one's neighbour, and counts as one with several open requests, for so long.
LINGER_S = 1.0
# CPU time that a tenant may use at once, and the most that it owes.
BURST_S, MOST_OWED_S = 0.005, 0.1
# After so long, a request that waits checks again whether it has to.
MOST_WAIT_S = 0.05


class Pace:
    """CPU time of one tenant on this event loop: what it may use, and its requests that wait until it may."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.n_open = 0
        self._several_until = 0.0
        self._left_s = BURST_S
        self._at = time.monotonic()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def enter(self) -> None:
        """Begin a request."""
        self.n_open += 1
        if self.n_open > 1:
            self._several_until = time.monotonic() + LINGER_S

    def leave(self) -> None:
        """End a request."""
        self.n_open -= 1

    def charge(self, cpu_s: float) -> None:
        """Count CPU time that was used."""
        self._refill(time.monotonic())
        self._left_s = max(self._left_s - cpu_s, -MOST_OWED_S)

    async def turn(self) -> None:
        """Wait until the next request may begin."""
        if self._waiting or self._is_due(time.monotonic()):
            loop = asyncio.get_running_loop()
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
            if len(self._waiting) == 1:
                self._call(loop)
            await turn

    def _is_due(self, now: float) -> bool:
        """Whether requests have to wait now."""
        self._refill(now)
        if self._left_s >= 0 or now >= self._several_until:
            return False
        used = activity()
        return used.has_others(self.tenant, now - LINGER_S) and used.is_high(now)

    def _refill(self, now: float) -> None:
        self._left_s = min(BURST_S, self._left_s + (now - self._at) * self._rate)
        self._at = now

    @property
    def _rate(self) -> float:
        return SHARE * activity().core_share

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        due_s = max(0.0, -self._left_s / self._rate)
        loop.call_later(min(due_s, MOST_WAIT_S), self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the first request begin, if it may; its first step runs, and is charged, before the next one is called."""
        now = time.monotonic()
        if self.n_open > 1:
            self._several_until = now + LINGER_S
        if not self._is_due(now):
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    break
        if self._waiting:
            self._call(loop)


_paces: dict[str, Pace] = {}


def pace_of(tenant: str) -> Pace:
    """Return the pace of a tenant on this event loop."""
    found = _paces.get(tenant)
    if found is None:
        found = _paces[tenant] = Pace(tenant)
    return found


async def begin(tenant: str | None) -> None:
    """Begin the request that runs, of this tenant, as soon as its tenant may; None if there is only one tenant.

    A request that has begun goes on.
    """
    if tenant_of_request.get() is None:
        note_tenant(tenant)
        if tenant is not None:
            await pace_of(tenant).turn()


class Measured:
    """A request whose steps are counted as its tenant's; await it once.

    Parameters
    ----------
    request : what serves it
    is_answered : whether its response has begun: then it is not open any more
    """

    def __init__(self, request: Awaitable[None], is_answered: Callable[[], bool]) -> None:
        self._request = request
        self._is_answered = is_answered
        self._pace: Pace | None = None
        self._is_open = False

    def __await__(self) -> Generator[Any, None, None]:
        steps = self._request.__await__()
        error: BaseException | None = None
        try:
            while True:
                started = time.thread_time()
                try:
                    waits_for = steps.send(None) if error is None else steps.throw(error)
                except StopIteration:
                    return
                finally:
                    self._count(time.thread_time() - started)
                error = None
                try:
                    yield waits_for
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as raised:
                    error = raised  # the request handles it, as if it had waited itself
        finally:
            self._close()

    def _count(self, cpu_s: float) -> None:
        """Count a step; the tenant is known from the step on that checked its key."""
        tenant = tenant_of_request.get()
        if tenant is None:
            return
        if self._pace is None:
            self._pace = pace_of(tenant)
            self._pace.enter()
            self._is_open = True
        self._pace.charge(cpu_s)
        if self._is_answered():
            self._close()

    def _close(self) -> None:
        if self._is_open and self._pace is not None:
            self._is_open = False
            self._pace.leave()
