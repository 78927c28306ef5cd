"""Rate limits in the store: of requests by tenant or key, and of test deliveries to webhooks, one a minute of a model, ten of a tenant.

A test sends to every receiver of a model, anywhere on the internet.

How many requests one process may serve in the next second is leased. The store has one bucket per subject. A process reports what it
has spent and receives how much it may spend, a fair part of the bucket. Nothing is deducted before it is spent, so several processes
together may exceed the rate by one lease each.
"""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from calibrant_server.workers.store.key_names import Keys, tenant_of
from calibrant_server.workers.store.script import StorePart, run_async

PERIOD_S = 60
MAX_OF_TENANT = 10  # tests of all models of a tenant in one period; of one model: one


class WebhookTestLimit(StorePart):
    """Counts the tests of models and tenants in the store, for the event loop."""

    async def wait_s(self, model: str) -> int:
        """Take a turn for a model (`tenant/model`); return 0, or the seconds after which there is one."""

        async def once() -> list[Any]:
            of_tenant = self._keys.webhook_tests(tenant_of(model))
            async with self._client.pipeline(transaction=True) as pipe:
                pipe.set(self._keys.webhook_tests(model), 1, nx=True, ex=PERIOD_S)
                pipe.ttl(self._keys.webhook_tests(model))
                pipe.set(of_tenant, 0, nx=True, ex=PERIOD_S)
                pipe.incr(of_tenant)
                pipe.ttl(of_tenant)
                found: list[Any] = await pipe.execute()
            return found

        is_first, ttl_s, _, n_of_tenant, tenant_ttl_s = await self._retried(once)
        if not is_first:
            return max(1, int(ttl_s))
        return max(1, int(tenant_ttl_s)) if n_of_tenant > MAX_OF_TENANT else 0


LEASE_S = 1.0


class RateLeases:
    """Leases of one process, for the event loop. A report whose reply is lost is not repeated: it may have counted."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys
        self._name = token_hex(6)

    async def renew(self, subject: str, rate: float, spent: int) -> float:
        """Report what was spent of a subject's tokens, and return how many may be spent until the next report."""
        values = [rate, rate * LEASE_S, spent, self._name, LEASE_S]
        micro = await run_async(self._client, "lease_tokens", [self._keys.rate(subject)], values)
        return int(micro) / 1e6
