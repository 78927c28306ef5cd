"""How much CPU time first queries of each tenant have used lately: with too much of it, the tenant's next one is a further one."""

from __future__ import annotations

import threading
import time

# Part of one core for the first queries of a tenant while another tenant has them too, and what it may use at once.
SHARE, BURST_S = 0.15, 0.25
# How long a tenant counts as one that has queries.
ACTIVE_S = 10.0


class FirstShares:
    """CPU time that each tenant may use; several threads may share one object."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        # Of each tenant that has been active: the CPU time that is left, and when that was.
        self._left: dict[str, tuple[float, float]] = {}

    def has(self, tenant: str) -> bool:
        """Return whether a first query of the tenant may be computed now: always, if no other tenant has had one lately."""
        now = time.monotonic()
        with self._changing:
            self._forget(now)
            left_s = self._left_at(tenant, now)
            self._left[tenant] = (left_s, now)
            return left_s >= 0 or len(self._left) == 1

    def charge(self, tenant: str, cpu_s: float) -> None:
        """Count CPU time that was used."""
        now = time.monotonic()
        with self._changing:
            self._left[tenant] = (max(self._left_at(tenant, now) - cpu_s, -BURST_S), now)

    def _left_at(self, tenant: str, now: float) -> float:
        left_s, at = self._left.get(tenant, (BURST_S, now))
        return min(BURST_S, left_s + (now - at) * SHARE)

    def _forget(self, now: float) -> None:
        for tenant in [each for each, (_, at) in self._left.items() if at < now - ACTIVE_S]:
            del self._left[tenant]
