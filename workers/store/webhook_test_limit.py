"""Rate limit of test deliveries to webhooks: one test a minute of a model, ten of a tenant.

A test sends to every receiver of a model, anywhere on the internet.
"""

from __future__ import annotations

from typing import Any

from calibrant_server.workers.store.keys import tenant_of
from calibrant_server.workers.store.script import StorePart

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
