"""Rates of tenants and keys: requests are counted in this process, and the tokens for them are leased from the store.

A lease lasts about a second and is renewed by a task, so no request waits for the store. A process may spend one lease
before it is renewed: that is the overshoot, per process. It is paid back, because the store deducts all that was spent.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from logging import getLogger
from typing import Protocol

from redis.exceptions import RedisError

from calibrant_server.service.http.problems import RateExceeded
from calibrant_server.workers.store.rate_limits import LEASE_S

FORGET_AFTER_S = 60.0
MAX_SUBJECTS = 10_000

log = getLogger("service.rates")


class TokenLeases(Protocol):
    """The buckets in the store."""

    async def renew(self, subject: str, rate: float, spent: int) -> float:
        """Report what was spent, and return what may be spent next."""


@dataclass
class Lease:
    """Tokens of one subject in this process."""

    tokens: float
    until_s: float
    spent: int = 0
    task: asyncio.Task[None] | None = None


class Rates:
    """Limits of the requests per second of each tenant and key.

    Parameters
    ----------
    of_tenant, of_key : requests per second; 0: unlimited
    """

    def __init__(
        self,
        leases: TokenLeases,
        of_tenant: float,
        of_key: float,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store, self._clock, self._pause = leases, clock, pause
        self._limits = {"tenant": of_tenant, "key": of_key}
        self._leases: dict[str, Lease] = {}
        self._policy = ", ".join(
            f'"{name}";q={limit:g};w={LEASE_S:g}' for name, limit in self._limits.items() if limit
        )

    def policy(self) -> str:
        """Return the value of the header RateLimit-Policy; empty without limits."""
        return self._policy

    def spend(self, tenant: str, key_id: str) -> str:
        """Take a token of the tenant and of the key; return the value of the header RateLimit.

        Raises
        ------
        RateExceeded
            One of them has none left.
        """
        now = self._clock()
        subjects = {"tenant": f"t:{tenant}", "key": f"k:{key_id}"}
        taken = {
            name: self._lease(subject, self._limits[name], now)
            for name, subject in subjects.items()
            if self._limits[name]
        }
        for name, lease in taken.items():
            if lease.tokens < 1:
                limit = f"{self._limits[name]:g} requests per second"
                detail = f"Your {name} has reached its limit of {limit}. Send fewer requests."
                raise RateExceeded(detail, retry_after_s=max(lease.until_s - now, 0.0))
        for lease in taken.values():
            lease.tokens -= 1
            lease.spent += 1
        return ", ".join(
            f'"{name}";r={max(0, math.floor(lease.tokens))};t={math.ceil(max(lease.until_s - now, 0))}'
            for name, lease in taken.items()
        )

    def _lease(self, subject: str, limit: float, now: float) -> Lease:
        lease = self._leases.get(subject)
        if lease is None:
            self._forget(now)
            lease = self._leases[subject] = Lease(self._unleased(limit), now)
        if lease.task is None:
            lease.task = asyncio.create_task(self._renewed(subject, lease, limit))
        return lease

    async def _renewed(self, subject: str, lease: Lease, limit: float) -> None:
        """Renew a lease while it is used, and until it has a token for the next request."""
        while True:
            await self._renew(subject, lease, limit)
            await self._pause(LEASE_S)
            if lease.spent == 0 and lease.tokens >= 1:
                lease.task = None
                return

    async def _renew(self, subject: str, lease: Lease, limit: float) -> None:
        spent, lease.spent = lease.spent, 0
        try:
            granted = await self._store.renew(subject, limit, spent)
        except (RedisError, OSError) as error:
            # Requests that need the store fail by themselves; the others are counted in this process.
            log.warning("rate_lease_not_renewed error=%s", error)
            granted = self._unleased(limit)
        lease.tokens = granted - lease.spent
        lease.until_s = self._clock() + LEASE_S

    def _unleased(self, limit: float) -> float:
        """Return the tokens of this process without a reply of the store: at least one."""
        return max(limit * LEASE_S, 1.0)

    async def close(self) -> None:
        """End the renewals."""
        tasks = [each.task for each in self._leases.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, now: float) -> None:
        """Forget subjects that were not used lately; what they have spent is booked."""
        if len(self._leases) >= MAX_SUBJECTS:
            self._leases = {
                name: each
                for name, each in self._leases.items()
                if each.task is not None or each.spent or now - each.until_s < FORGET_AFTER_S
            }
