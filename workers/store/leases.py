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
from calibrant_server.workers.store.partition_state import LASTS

log = logging.getLogger(__name__)

# A worker that commits nothing for this long while entries wait releases its lease. The longest commits take seconds.
STUCK_S = 60.0
# Parts of `lease_s`. A worker that has not reached the store for 3/4 no longer works on its partitions. Another worker serves
# them within one `lease_s`: after 0.8 the name of the dead worker no longer protects its leases; by then it has not counted in
# the share for a beat; and the others try every 1/8 (`RETRIES_A_LEASE`).
_HOLD = 0.75
_IS_GONE = 0.8
_COUNTS = 0.5
# With more than a few partitions, a beat reads the owner of a part of them.
CHECKED_IN_BEATS, FEW = 8, 8
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
        self._renew_at: dict[int, float] = {}
        self._turn, self._beat_at = 0, -math.inf
        self._share = store.settings.partitions
        self.name = f"{socket.gethostname()}:{os.getpid()}:{token_hex(4)}"

    def take(self, partition: int) -> bool:
        """Try to lease a partition."""
        with self._lock:
            if partition not in self._until and len(self._until) >= self._share:
                return False
        # Only the last beat protects it from other workers.
        since = time.monotonic() if self._beat_at == -math.inf else self._beat_at
        until = since + self._hold_s
        if not self._acquire(partition):
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
        self._lease(partition, 0)

    @property
    def n_held(self) -> int:
        """Number of partitions that this worker holds."""
        return len(self._until)

    def busy(self, partition: int) -> None:
        """Record that work on an entry (or a commit) begins."""
        self._busy[partition] = time.monotonic()

    def idle(self, partition: int) -> None:
        """Record that the work ended."""
        self._busy.pop(partition, None)

    def beat(self) -> None:
        """Renew the leases, announce this worker, compute its share."""
        started_at = time.monotonic()
        until = started_at + self._hold_s
        workers = self._roll_call()
        self._share = math.ceil(self._settings.partitions / max(1, workers))
        self._drop_surplus()
        held = [each for each, lasts in list(self._until.items()) if lasts]
        owners = self._owners(self._to_check(held))
        for partition in held:
            if self._is_stuck(partition):
                self._forget(partition)
                log.error("partition_stuck partition=%d", partition)
                self._on_stuck(partition)
            elif self._is_mine(partition, owners.get(partition, self.name.encode())):
                self._renewed(partition, until)
                if partition not in self._until:  # released since the beat began
                    self._lease(partition, 0)
            else:
                self._forget(partition)
        self._beat_at = started_at

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

    def _to_check(self, held: list[int]) -> list[int]:
        """Return the partitions of which another worker may have the lease; each once in some beats in any case.

        No worker takes a lease from one that has beaten in the meantime.
        """
        self._turn = (self._turn + 1) % CHECKED_IN_BEATS
        is_late = time.monotonic() - self._beat_at > self._settings.lease_s * _COUNTS
        return held if is_late or len(held) <= FEW else sorted(held)[self._turn :: CHECKED_IN_BEATS]

    def _owners(self, partitions: list[int]) -> dict[int, bytes | None]:
        """Return who has the leases, in one round trip."""
        if not partitions:
            return {}
        with self._store.client.pipeline(transaction=False) as pipe:
            for partition in partitions:
                pipe.get(self._store.keys.partition(partition).lease)
            return dict(zip(partitions, pipe.execute(), strict=True))

    def _is_mine(self, partition: int, owner: bytes | None) -> bool:
        """Whether this worker still has a lease; renew it if it is due, or has ended."""
        if owner != self.name.encode():
            return owner is None and self._acquire(partition)
        return time.monotonic() < self._renew_at.get(partition, 0.0) or self._acquire(partition)

    def _acquire(self, partition: int) -> bool:
        """Take or renew a lease; take it from a worker that no longer reaches the store."""
        lasts_s = self._settings.lease_s * LASTS
        renew_at = time.monotonic() + lasts_s / 2
        holder = self._lease(partition, int(lasts_s * 1000))
        if holder and self._is_gone(holder):
            holder = self._lease(partition, int(lasts_s * 1000), holder)
        if holder:
            return False
        self._renew_at[partition] = renew_at
        return True

    def _lease(self, partition: int, milliseconds: int, gone: bytes = b"") -> bytes:
        """Run the script; return the name of another worker that has the lease, empty if none has."""
        keys = self._store.keys.partition(partition)
        arguments = [self.name, milliseconds, gone]
        holder: bytes = self._store.run(partition, "lease", [keys.lease], arguments)
        return holder

    def _is_gone(self, name: bytes) -> bool:
        """Whether a worker has no heartbeat that still protects its leases. One in the future says nothing."""
        with self._store.client.pipeline(transaction=False) as pipe:
            pipe.zscore(self._store.keys.workers, name)
            pipe.time()
            beat_at, (seconds, microseconds) = pipe.execute()
        if beat_at is None:
            return True
        age_s = seconds + microseconds / 1e6 - beat_at
        return not -_COUNTS <= age_s / self._settings.lease_s <= _IS_GONE

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
