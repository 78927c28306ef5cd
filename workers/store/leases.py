"""Leases: which worker serves which partition. Advisory: they avoid double work; correctness does not depend on them.

A lease has no end. It counts while the heartbeat of its worker does: an idle worker writes one heartbeat, whatever the number of
its partitions. Workers share the partitions by rendezvous hashing, weighted by the bytes that these merged lately (`lease_plan.py`).
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from secrets import token_hex

from calibrant_server.workers.store.cluster import ClusterClient
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.lease_plan import Loads, planned, weights_of

log = logging.getLogger(__name__)

# A worker that commits nothing for this long while entries wait releases its lease. The longest commits take seconds.
STUCK_S = 60.0
# Parts of `lease_s`. A worker that has not reached the store for 3/4 no longer works on its partitions. Another worker serves
# them within one `lease_s`: after 0.8 the name of the dead worker no longer protects its leases; by then it has not counted
# among the workers for a beat; and the others try to take it every 1/8 (`RETRIES_A_LEASE`).
_HOLD = 0.75
_IS_GONE = 0.8
_COUNTS = 0.5
RETRIES_A_LEASE = 8
# A name stays in the list of workers this long, so that health can tell a late worker from one that left.
_LEASES_LISTED = 2
# Beats between two looks at what each partition merged.
_BEATS_A_SURVEY = 5


class Leases:
    """The leases that one worker holds, protected by its heartbeat.

    A worker takes vacant partitions, and releases some when another worker has less work.
    """

    def __init__(self, store: Store, on_stuck: Callable[[int], None] = lambda partition: None):
        self._store = store
        self._settings = store.settings
        self._on_stuck = on_stuck
        self._lock = threading.Lock()
        self._until: dict[int, float] = {}
        self._busy: dict[int, float] = {}
        self._beat_at = -math.inf
        self._numbers = range(store.settings.partitions)
        self._names = [store.keys.partition(number).lease for number in self._numbers]
        self._plan: dict[int, str] = {}
        self._workers: Sequence[str] = ()
        self._vacant: set[int] = set()
        self._left: set[int] = set()
        self._loads = Loads()
        self._survey_in = 0
        self.name = f"{socket.gethostname()}:{os.getpid()}:{token_hex(4)}"

    def take(self, partition: int) -> bool:
        """Try to lease a partition."""
        # Only the last beat protects it from other workers.
        since = time.monotonic() if self._beat_at == -math.inf else self._beat_at
        until = since + self._hold_s
        if not self._acquire(partition):
            return False
        with self._lock:
            self._busy.pop(partition, None)
            self._until[partition] = until
        return True

    @property
    def is_alone(self) -> bool:
        """Whether no other worker is alive."""
        return len(self._workers) < 2

    def wanted(self, partitions: Iterable[int]) -> list[int]:
        """Return the partitions, of some that this worker does not serve, that it should try to lease now.

        Those are the ones that the plan gives to this worker, and those that no worker has served for two beats.
        """
        if self.is_alone:
            return list(partitions)
        return [
            each for each in partitions if self._plan.get(each) == self.name or each in self._left
        ]

    def holds(self, partition: int) -> bool:
        """Whether this worker still holds the partition."""
        return time.monotonic() < self._until.get(partition, 0.0)

    def give_back(self, partition: int) -> None:
        """Release a partition at once."""
        self._forget(partition)
        self._lease(partition, is_taken=False)

    def busy(self, partition: int) -> None:
        """Record that work on an entry (or a commit) begins."""
        self._busy[partition] = time.monotonic()

    def idle(self, partition: int) -> None:
        """Record that the work ended."""
        self._busy.pop(partition, None)

    def beat(self) -> None:
        """Announce this worker, and check its leases and its share of the work."""
        started_at = time.monotonic()
        held = [each for each, lasts in list(self._until.items()) if lasts]
        workers, owners = self._roll_call()
        self._share_work(workers)
        for partition in held:
            self._check(partition, owners[partition], started_at + self._hold_s)
        self._beat_at = started_at
        self._note_vacant(owners)

    def _check(self, partition: int, owner: str | None, until: float) -> None:
        """Rely on a lease for longer, unless another worker has it or this one is stuck."""
        if self._is_stuck(partition):
            self._forget(partition)
            log.error("partition_stuck partition=%d", partition)
            self._on_stuck(partition)
        elif owner == self.name or (owner is None and self._acquire(partition)):
            self._renewed(partition, until)
            if partition not in self._until:  # released since the beat began
                self._lease(partition, is_taken=False)
        else:
            self._forget(partition)

    def leave(self) -> None:
        """Remove this worker from the list of live workers."""
        self._store.client.zrem(self._store.keys.workers, self.name)

    def _share_work(self, workers: Sequence[str]) -> None:
        """Plan who serves what, some beats after the last plan or when the workers have changed; release what others should serve."""
        self._survey_in -= 1
        has_changed, self._workers = workers != self._workers, workers
        if self.is_alone or not (has_changed or self._survey_in <= 0):
            return
        self._survey_in = _BEATS_A_SURVEY
        self._loads.note(self._bytes_merged(), time.monotonic())
        self._plan = planned(weights_of(self._loads.of(self._numbers)), workers)
        with self._lock:
            for partition in self._until:
                if self._plan[partition] != self.name:
                    # Its loop notices that the lease is no longer held and releases it after the current commit.
                    self._until[partition] = 0.0

    def _note_vacant(self, owners: Mapping[int, str | None]) -> None:
        """Note partitions that no live worker serves: plans of two workers may differ, or a worker may be of an earlier version.

        Nor does this worker serve one that the store has under its name only because it could not be released there.
        """
        vacant = {
            number
            for number, owner in owners.items()
            if owner not in self._workers or (owner == self.name and number not in self._until)
        }
        self._left, self._vacant = vacant & self._vacant, vacant

    def _bytes_merged(self) -> dict[int, int]:
        """Return the bytes that each partition has ever merged, in one round trip."""
        with self._store.client.pipeline(transaction=False) as pipe:
            for partition in self._numbers:
                pipe.hget(self._store.keys.partition(partition).cursor, "out")
            return {number: int(n or 0) for number, n in enumerate(pipe.execute())}

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

    def _acquire(self, partition: int) -> bool:
        """Take a lease, from a worker that no longer reaches the store too."""
        holder = self._lease(partition)
        if holder and holder not in self._protected():
            holder = self._lease(partition, gone=holder)
        return not holder

    def _lease(self, partition: int, is_taken: bool = True, gone: str = "") -> str:
        """Run the script; return the name of another worker that has the lease, empty if none has."""
        keys = self._store.keys.partition(partition)
        arguments = [self.name, int(is_taken), gone]
        holder: bytes = self._store.run(partition, "lease", [keys.lease], arguments)
        return holder.decode()

    def _protected(self) -> set[str]:
        """Return the workers whose heartbeat still protects their leases. One in the future says nothing."""
        with self._store.client.pipeline(transaction=False) as pipe:
            pipe.zrange(self._store.keys.workers, 0, -1, withscores=True)
            pipe.time()
            beats, (seconds, microseconds) = pipe.execute()
        now_s, lease_s = seconds + microseconds / 1e6, self._settings.lease_s
        return {
            name.decode()
            for name, beat_s in beats
            if -_COUNTS <= (now_s - beat_s) / lease_s <= _IS_GONE
        }

    def _roll_call(self) -> tuple[list[str], dict[int, str | None]]:
        """Announce this worker; return the workers that are alive, and who has the lease of each partition."""
        store, lease_s = self._store, self._settings.lease_s
        is_cluster = isinstance(store.client, ClusterClient)
        names = [store.keys.workers, *([] if is_cluster else self._names)]
        arguments = [self.name, lease_s * _COUNTS, lease_s * _LEASES_LISTED]
        workers, owners = store.run_on(store.client, "roll_call", names, arguments)
        if is_cluster:
            with store.client.pipeline(transaction=False) as pipe:
                for name in self._names:
                    pipe.get(name)
                owners = pipe.execute()
        found = {n: None if owner is None else owner.decode() for n, owner in enumerate(owners)}
        return sorted(name.decode() for name in workers), found

    def _is_stuck(self, partition: int) -> bool:
        since = self._busy.get(partition)
        return since is not None and time.monotonic() - since > STUCK_S
