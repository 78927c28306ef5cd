"""Leases of request tokens: how many requests of a tenant or key one process may serve in the next second.

The store has one bucket per subject. A process reports what it has spent and receives how much it may spend, a fair part of
the bucket. Nothing is deducted before it is spent, so several processes together may exceed the rate by one lease each.
"""

from __future__ import annotations

from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.script import run_async

LEASE_S = 1.0


@dataclass(frozen=True)
class Grant:
    """Tokens that a process may spend until its next report, and the number of processes that share the bucket."""

    tokens: float
    n_processes: int


class RateLeases:
    """Leases of one process, for the event loop. A report whose reply is lost is not repeated: it may have counted."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys
        self._name = token_hex(6)

    async def renew(self, subject: str, rate: float, spent: int) -> Grant:
        """Report what was spent of a subject's tokens, and return what may be spent next."""
        values = [rate, rate * LEASE_S, spent, self._name, LEASE_S]
        reply = await run_async(self._client, "lease_tokens", [self._keys.rate(subject)], values)
        micro, n_processes = reply
        return Grant(int(micro) / 1e6, int(n_processes))
