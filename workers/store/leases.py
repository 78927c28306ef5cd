"""Leases: which worker serves which partition. Advisory: they avoid double work; correctness does not depend on them."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from secrets import token_hex

from calibrant_server.workers.store.connection import Store

log = logging.getLogger(__name__)

# A worker that commits nothing for this long while entries wait releases its lease. The longest commits take seconds.
STUCK_S = 60.0
# Parts of `lease_s`. Another worker serves a dead worker's partitions within one `lease_s`: its lease ends after 3/4; by
# then its name has not counted in the share for two beats; and the others try every 1/8 (`RETRIES_A_LEASE`).
_HOLD = 0.75
_COUNTS = 0.5
RETRIES_A_LEASE = 8
# A name stays in the list of workers this long, so that health can tell a late worker from one that left.
_LEASES_LISTED = 2


class Leases:
    """The leases that one worker holds, renewed by its heartbeat.

    A worker takes at most its share of the partitions, and releases the surplus when another worker joins.
    """

    def __init__(self, store: Store, on_stuck: Callable[[int], None] = lambda partition: None):
        self._store = store
        self._settings = store.settings
        self._on_stuck = on_stuck
        self._lock = threading.Lock()
        self._until: dict[int, float] = {}
        self._busy: dict[int, float] = {}
        self._share = store.settings.partitions
        self.name = f"{socket.gethostname()}:{os.getpid()}:{token_hex(4)}"

    def take(self, partition: int) -> bool:
        """Try to lease a partition."""
        with self._lock:
            if partition not in self._until and len(self._until) >= self._share:
                return False
        until = time.monotonic() + self._hold_s
        if not self._hold(partition, self._hold_ms):
            return False
        with self._lock:
            self._busy.pop(partition, None)
            self._until[partition] = until
        return True

    def holds(self, partition: int) -> bool:
        """Whether this worker still holds the partition."""
        return time.monotonic() < self._until.get(partition, 0.0)

    def give_back(self, partition: int) -> None:
        """Release a partition at once."""
        self._forget(partition)
        self._hold(partition, 0)

    def busy(self, partition: int) -> None:
        """Record that work on an entry (or a commit) begins."""
        self._busy[partition] = time.monotonic()

    def idle(self, partition: int) -> None:
        """Record that the work ended."""
        self._busy.pop(partition, None)

    def beat(self) -> None:
        """Renew the leases, announce this worker, compute its share."""
        workers = self._roll_call()
        self._share = math.ceil(self._settings.partitions / max(1, workers))
        self._drop_surplus()
        for partition in [each for each, until in list(self._until.items()) if until]:
            until = time.monotonic() + self._hold_s
            if self._is_stuck(partition):
                self._forget(partition)
                log.error("partition_stuck partition=%d", partition)
                self._on_stuck(partition)
            elif self._hold(partition, self._hold_ms):
                self._renewed(partition, until)
            else:
                self._forget(partition)

    def leave(self) -> None:
        """Remove this worker from the list of live workers."""
        self._store.client.zrem(self._store.keys.workers, self.name)

    def _forget(self, partition: int) -> None:
        with self._lock:
            self._until.pop(partition, None)
            self._busy.pop(partition, None)

    def _renewed(self, partition: int, until: float) -> None:
        with self._lock:
            # Not if it was released, or is about to be.
            if self._until.get(partition):
                self._until[partition] = until

    @property
    def _hold_s(self) -> float:
        return self._settings.lease_s * _HOLD

    @property
    def _hold_ms(self) -> int:
        return int(self._hold_s * 1000)

    def _hold(self, partition: int, milliseconds: int) -> bool:
        keys = self._store.keys.partition(partition)
        return bool(self._store.run(partition, "lease", [keys.lease], [self.name, milliseconds]))

    def _roll_call(self) -> int:
        lease_s = self._settings.lease_s
        arguments = [self.name, lease_s * _COUNTS, lease_s * _LEASES_LISTED]
        store = self._store
        return int(store.run_on(store.client, "roll_call", [store.keys.workers], arguments))

    def _drop_surplus(self) -> None:
        with self._lock:
            for partition in sorted(self._until)[self._share :]:
                # Its loop notices that the lease is no longer held and releases it after the current commit.
                self._until[partition] = 0.0

    def _is_stuck(self, partition: int) -> bool:
        since = self._busy.get(partition)
        return since is not None and time.monotonic() - since > STUCK_S
