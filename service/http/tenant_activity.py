"""Which tenants have sent requests lately, and how much of its cores the service uses: known to all of its processes."""

from __future__ import annotations

import mmap
import os
import time
from contextvars import ContextVar
from functools import lru_cache
from hashlib import blake2b

# The tenant of the request that runs, if there are several.
tenant_of_request: ContextVar[str | None] = ContextVar("tenant_of_request", default=None)

# CPU time is measured over at least this time, and counts as of now for as long as the second.
_MEASURED_S, _KNOWN_S = 0.25, 1.0
# The last tenant and the last one before it that is another: mark and time of each.
_LAST, _LAST_AT, _OTHER, _OTHER_AT, _FIRST_RATE = range(5)


@lru_cache(4096)
def _mark(tenant: str) -> float:
    """Return a number above 0 that stands for a tenant."""
    return 1.0 + int.from_bytes(blake2b(tenant.encode(), digest_size=6).digest())


def _n_cores() -> int:
    """Return how many cores the service may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class TenantActivity:
    """The last two tenants with a request, and the CPU time of each process; make it before the processes are forked.

    Two tenants show for each tenant whether there is another. Processes write without a lock: two writes at the same moment may
    leave one of them unknown, until its next request.

    Parameters
    ----------
    n_processes : that serve
    """

    def __init__(self, n_processes: int = 1) -> None:
        self.n_processes = n_processes
        self.number = 0
        self.n_cores = _n_cores()
        memory = mmap.mmap(-1, 8 * (_FIRST_RATE + 2 * n_processes))
        self._numbers = memoryview(memory).cast("d")
        self._cpu_s, self._measured_at = time.process_time(), time.monotonic()
        self._is_high = False

    def note(self, tenant: str, now: float) -> None:
        """Note a request of a tenant."""
        numbers, mark = self._numbers, _mark(tenant)
        if numbers[_LAST] != mark:
            numbers[_OTHER], numbers[_OTHER_AT] = numbers[_LAST], numbers[_LAST_AT]
            numbers[_LAST] = mark
        numbers[_LAST_AT] = now

    def has_others(self, tenant: str, since: float) -> bool:
        """Return whether another tenant has sent a request since then."""
        numbers, mark = self._numbers, _mark(tenant)
        if numbers[_LAST] != mark and numbers[_LAST_AT] >= since:
            return True
        return numbers[_OTHER] != mark and numbers[_OTHER_AT] >= since

    @property
    def core_share(self) -> float:
        """Part of a core that each process has if all are busy."""
        return min(1.0, self.n_cores / self.n_processes)

    def is_high(self, now: float) -> bool:
        """Return whether this process is busy for more than half of the time, or all together use more than half of their cores."""
        if now >= self._measured_at + _MEASURED_S:
            cpu_s = time.process_time()
            rate = (cpu_s - self._cpu_s) / (now - self._measured_at)
            self._cpu_s, self._measured_at = cpu_s, now
            at = _FIRST_RATE + 2 * self.number
            self._numbers[at], self._numbers[at + 1] = rate, now
            total = sum(
                self._numbers[i]
                for i in range(_FIRST_RATE, len(self._numbers), 2)
                if self._numbers[i + 1] >= now - _KNOWN_S
            )
            self._is_high = rate > 0.5 or total > 0.5 * min(self.n_cores, self.n_processes)
        return self._is_high


class _Used:
    """The activity of this process's service."""

    activity = TenantActivity()


def activity() -> TenantActivity:
    """Return the activity of the service of this process."""
    return _Used.activity


def share_activity(with_others: TenantActivity, number: int) -> None:
    """Share the activity of a service as its process of this number."""
    with_others.number = number
    _Used.activity = with_others


def note_tenant(tenant: str | None) -> None:
    """Note the tenant of the request that runs; None if there is only one."""
    tenant_of_request.set(tenant)
    if tenant is not None:
        _Used.activity.note(tenant, time.monotonic())
