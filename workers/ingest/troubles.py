"""Counts of what requires an operator (such as dead letters), summed over all partitions, for readiness and metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from calibrant_server.workers.store.keys import Keys
from calibrant_server.workers.store.partition_state import PartitionState, names_of
from calibrant_server.workers.store.script import run_async


@dataclass(frozen=True)
class Troubles:
    """Conditions that need an operator, and the size of the backlog.

    Attributes
    ----------
    parked_entries : acknowledged, not merged, stored for a replay
    unsealed_models : models with a damaged pane that prevents the sealing of a cohort
    dead_letters : entries that could not be merged, stored until they are replayed or discarded
    stalled_partitions : partitions with a backlog whose cursor has not advanced for two leases
    partitions_without_lease : partitions that no worker serves
    merge_lag_s : age of the oldest entry that waits, in seconds
    workers : processes with a heartbeat in the last two leases
    files_unavailable : whether the files of cold days cannot be read or written now
    """

    parked_entries: int
    unsealed_models: int
    dead_letters: int = 0
    stalled_partitions: int = 0
    partitions_without_lease: int = 0
    backlog_entries: int = 0
    backlog_bytes: int = 0
    merge_lag_s: float = 0.0
    workers: int = 0
    files_unavailable: bool = False


async def read_states(client: Any, keys: Keys) -> list[PartitionState]:
    """Return the state of each partition, from the event loop."""
    names = [names_of(keys.partition(number)) for number in range(keys.partitions)]
    replies = await asyncio.gather(*(run_async(client, "partition_state", each) for each in names))
    return [PartitionState.of(each) for each in replies]


async def read_troubles(client: Any, keys: Keys, lease_s: float) -> Troubles:
    """Return the sums over all partitions, from the event loop."""
    states = await read_states(client, keys)
    now_s = max(each.now_ms for each in states) / 1000
    found = await client.zrangebyscore(keys.workers, now_s - 2 * lease_s, now_s + lease_s)
    workers = {name.decode() for name in found}
    return Troubles(
        parked_entries=sum(each.parked_entries for each in states),
        unsealed_models=sum(each.unsealed_models for each in states),
        dead_letters=sum(each.dead_letters for each in states),
        stalled_partitions=sum(each.is_stalled(lease_s) for each in states),
        partitions_without_lease=sum(each.owner not in workers for each in states),
        backlog_entries=sum(each.backlog_entries for each in states),
        backlog_bytes=sum(each.backlog_bytes for each in states),
        merge_lag_s=max((each.lag_s for each in states), default=0.0),
        workers=len(workers),
    )
