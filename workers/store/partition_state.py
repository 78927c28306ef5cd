"""State of a partition for operators: its backlog, whether it advances, and what waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibrant_server.workers.store.commit import id_order
from calibrant_server.workers.store.keys import PartitionKeys


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
