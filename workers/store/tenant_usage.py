"""What a tenant uses of the bounds of each partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calibrant_server.workers.store.script import StorePart


@dataclass(frozen=True)
class PartitionUsage:
    """Use of one partition by one tenant: retained records (with those in the stream), their bytes, bytes in the stream."""

    records: int
    record_bytes: int
    backlog_bytes: int


class TenantUsage(StorePart):
    """Use of the store by tenant, for the event loop."""

    async def by_partition(self, tenant: str) -> list[PartitionUsage]:
        """Return what the tenant uses of each partition."""
        names = ("records", "coming", "bytes", "coming_bytes", "backlog")
        fields = [f"{name}:{tenant}" for name in names]

        async def once() -> list[Any]:
            async with self._client.pipeline(transaction=False) as pipe:
                for number in range(self._keys.partitions):
                    pipe.hmget(self._keys.partition(number).retained, fields)
                found: list[Any] = await pipe.execute()
            return found

        return [_usage([max(0, int(n or 0)) for n in each]) for each in await self._retried(once)]


def _usage(numbers: list[int]) -> PartitionUsage:
    records, coming, n_bytes, coming_bytes, backlog = numbers
    return PartitionUsage(records + coming, n_bytes + coming_bytes, backlog)
