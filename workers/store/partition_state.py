"""State of a partition for operators: its backlog, whether it advances, and what waits for them; with sums over all
partitions, for readiness, metrics and the command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibrant_server.workers.store.commit import id_order
from calibrant_server.workers.store.key_names import Keys, PartitionKeys
from calibrant_server.workers.store.script import run_async


@dataclass(frozen=True)
class PartitionState:
    """One partition at one moment; all times are of the store's clock, in milliseconds since the epoch.

    Attributes
    ----------
    backlog_entries, backlog_bytes : entries of the stream
    first_waiting_ms : arrival of the first entry that is not merged; None without a backlog
    progress_ms : last commit that consumed an entry; 0: none yet
    owner : name of the worker that has the lease; empty: none
    """

    backlog_entries: int
    backlog_bytes: int
    first_waiting_ms: int | None
    progress_ms: int
    now_ms: int
    dead_letters: int
    parked_entries: int
    unsealed_models: int
    owner: str

    @classmethod
    def of(cls, reply: Sequence[Any]) -> PartitionState:
        """Read the reply of `partition_state.lua`."""
        entries, bytes_in, bytes_out, first, progress_ms, now_ms, *rest, owner = reply
        dead, parked, unsealed = map(int, rest)
        return cls(
            int(entries),
            max(0, int(bytes_in) - int(bytes_out)),
            id_order(first.decode())[0] if first else None,
            int(progress_ms),
            int(now_ms),
            dead,
            parked,
            unsealed,
            owner.decode(),
        )

    def is_stalled(self, lease_s: float) -> bool:
        """Whether entries wait, and the cursor has not advanced for two leases.

        Times in the future say nothing: the clock was set back after they were written.
        """
        if self.first_waiting_ms is None:
            return False
        times = (self.first_waiting_ms, self.progress_ms)
        return not any(self._is_recent(each, lease_s * 1000) for each in times)

    @property
    def lag_s(self) -> float:
        """Age of the first waiting entry in seconds; 0 without a backlog."""
        first_ms = self.now_ms if self.first_waiting_ms is None else self.first_waiting_ms
        return max(0.0, (self.now_ms - first_ms) / 1000)

    def _is_recent(self, at_ms: int, lease_ms: float) -> bool:
        return -lease_ms <= self.now_ms - at_ms <= 2 * lease_ms


def names_of(keys: PartitionKeys) -> list[str]:
    """Return the keys that `partition_state.lua` reads."""
    return [
        keys.stream,
        keys.bytes_in,
        keys.cursor,
        keys.dead_letters,
        keys.parked,
        keys.unsealable,
        keys.lease,
    ]


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

    @classmethod
    def of(cls, states: Sequence[PartitionState], workers: set[str], lease_s: float) -> Troubles:
        """Return the sums over all partitions, given the names of the live workers."""
        return cls(
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


async def read_troubles(client: Any, keys: Keys, lease_s: float) -> Troubles:
    """Return the sums over all partitions, from the event loop."""
    names = [names_of(keys.partition(number)) for number in range(keys.partitions)]
    replies = await asyncio.gather(*(run_async(client, "partition_state", each) for each in names))
    states = [PartitionState.of(each) for each in replies]
    now_s = max(each.now_ms for each in states) / 1000
    found = await client.zrangebyscore(keys.workers, now_s - 2 * lease_s, now_s + lease_s)
    return Troubles.of(states, {name.decode() for name in found}, lease_s)
