"""Pacing of tenants that send several requests at once: they leave the event loop to others while it is busy.

Requests of one process share its event loop, and processes may share a core. While another tenant is active and the service uses
more than half of its cores, a tenant with several open requests has a tenth of the time that the event loops have, by CPU
time. Its requests are delayed between their steps, never rejected. A tenant that waits for each response before it sends
the next request is not delayed, nor is anyone while cores are idle.

The steps of a request are what its coroutine does between two waits. They are measured as they run; so is work in threads.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from calibrant_server.service.http.tenant_activity import activity, tenant_of_request

SHARE = 0.1
# A tenant is another one's neighbour, and counts as one with several open requests, for so long.
LINGER_S = 1.0
# CPU time that a tenant may use at once, and the most that it owes.
BURST_S, MOST_OWED_S = 0.005, 0.1
# After so long, a step that waits checks again whether it has to.
MOST_WAIT_S = 0.05


class Pace:
    """CPU time of one tenant on this event loop: what it may use, and its steps that wait until it may."""

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

    @property
    def must_wait(self) -> bool:
        """Whether the next step has to wait."""
        if self._waiting:
            return True
        now = time.monotonic()
        self._refill(now)
        return self._left_s < 0 and self._is_paced(now)

    def turn(self) -> asyncio.Future[None]:
        """Return the future of the next step's turn."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._call(loop)
        return turn

    def _refill(self, now: float) -> None:
        self._left_s = min(BURST_S, self._left_s + (now - self._at) * self._rate)
        self._at = now

    @property
    def _rate(self) -> float:
        return SHARE * activity().core_share

    def _is_paced(self, now: float) -> bool:
        used = activity()
        return (
            now < self._several_until
            and used.has_others(self.tenant, now - LINGER_S)
            and used.is_high(now)
        )

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        due_s = max(0.0, -self._left_s / self._rate)
        loop.call_later(min(due_s, MOST_WAIT_S), self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the first waiting step run, if it may; it runs, and is charged, before the next one is called."""
        now = time.monotonic()
        self._refill(now)
        if self._left_s >= 0 or not self._is_paced(now):
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


class Paced:
    """A request that waits for its tenant's turn between its steps; await it once.

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
                    if self._pace is not None and self._pace.must_wait:
                        yield from self._pace.turn().__await__()
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
