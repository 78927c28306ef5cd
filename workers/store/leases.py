"""Leases: which worker serves which partition. Advisory: they avoid double work; correctness does not depend on them.

A lease has no end. It counts while the heartbeat of its worker does: an idle worker writes one heartbeat, whatever the number of
its partitions. Workers share the partitions by the bytes that these merged lately (`lease_plan.py`).
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from secrets import token_hex

from calibrant_server.workers.store.cluster import ClusterClient
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.lease_plan import planned, weights_of

log = logging.getLogger(__name__)

# A worker that commits nothing for this long while entries wait releases its lease. The longest commits take seconds.
STUCK_S = 60.0
# Parts of `lease_s`. A worker that has not reached the store for 3/4 no longer works on its partitions. Another worker serves
# them within one `lease_s`: after 0.8 the name of the dead worker no longer protects its leases; by then it has not counted
# among the workers for a beat; and the others try to take it every 1/8 (`RETRIES_A_LEASE`).
_HOLD = 0.75
_IS_GONE = 0.8
_COUNTS = 0.5
# With more than a few partitions, a beat reads the owner of a part of them.
CHECKED_IN_BEATS, FEW = 8, 8
RETRIES_A_LEASE = 8
# A name stays in the list of workers this long, so that health can tell a late worker from one that left.
_LEASES_LISTED = 2
# Beats between two looks at what each partition merged, and the part of a new rate in the mean.
_BEATS_A_SURVEY = 5
_NEW_RATE = 0.5


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
        self._turn, self._beat_at = 0, -math.inf
        self._plan: dict[int, str] = {}
        self._workers: Sequence[str] = ()
        self._vacant: set[int] = set()
        self._left: set[int] = set()
        self._loads = _Loads()
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

    def wanted(self, partitions: Iterable[int]) -> list[int]:
        """Return the partitions, of some that this worker does not serve, that it should try to lease now.

        Those are the ones that the plan gives to this worker, and those that no worker has served for two beats.
        """
        if len(self._workers) < 2:
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
        until = started_at + self._hold_s
        self._share_work(self._roll_call())
        held = [each for each, lasts in list(self._until.items()) if lasts]
        owners = self._owners(self._to_check(held))
        for partition in held:
            if self._is_stuck(partition):
                self._forget(partition)
                log.error("partition_stuck partition=%d", partition)
                self._on_stuck(partition)
            elif self._is_mine(partition, owners.get(partition, self.name)):
                self._renewed(partition, until)
                if partition not in self._until:  # released since the beat began
                    self._lease(partition, is_taken=False)
            else:
                self._forget(partition)
        self._beat_at = started_at

        self._note_vacant()

    def leave(self) -> None:
        """Remove this worker from the list of live workers."""
        self._store.client.zrem(self._store.keys.workers, self.name)

    def _share_work(self, workers: Sequence[str]) -> None:
        """Plan who serves what, some beats after the last plan or when the workers have changed; release what others should serve."""
        self._survey_in -= 1
        if len(workers) < 2:
            self._workers, self._survey_in = workers, 0
            return
        if tuple(workers) == tuple(self._workers) and self._survey_in > 0:
            return
        numbers = list(range(self._settings.partitions))
        owners = self._owners(numbers)
        self._loads.note(self._bytes_merged(numbers), time.monotonic())
        self._plan = planned(weights_of(self._loads.of(numbers)), owners, workers)
        self._workers, self._survey_in = workers, _BEATS_A_SURVEY
        with self._lock:
            for partition in self._until:
                if self._plan[partition] != self.name:
                    # Its loop notices that the lease is no longer held and releases it after the current commit.
                    self._until[partition] = 0.0

    def _note_vacant(self) -> None:
        """Find partitions that no worker serves: plans of two workers may differ, or a worker may be of an earlier version."""
        if len(self._workers) < 2:
            self._vacant, self._left = set(), set()
            return
        others = [each for each in range(self._settings.partitions) if each not in self._until]
        gone = self._gone()
        vacant = {
            number for number, owner in self._owners(others).items() if owner is None or gone(owner)
        }
        self._left, self._vacant = vacant & self._vacant, vacant

    def _bytes_merged(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the bytes that each partition has ever merged, in one round trip."""
        with self._store.client.pipeline(transaction=False) as pipe:
            for partition in partitions:
                pipe.hget(self._store.keys.partition(partition).cursor, "out")
            found = pipe.execute()
        return {number: int(n or 0) for number, n in zip(partitions, found, strict=True)}

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
        """Return the partitions whose lease another worker may have; each once in some beats in any case.

        No worker takes a lease from one that has beaten in the meantime.
        """
        self._turn = (self._turn + 1) % CHECKED_IN_BEATS
        is_late = time.monotonic() - self._beat_at > self._settings.lease_s * _COUNTS
        return held if is_late or len(held) <= FEW else sorted(held)[self._turn :: CHECKED_IN_BEATS]

    def _owners(self, partitions: Sequence[int]) -> dict[int, str | None]:
        """Return who has the leases, in one round trip."""
        if not partitions:
            return {}
        names = [self._store.keys.partition(partition).lease for partition in partitions]
        found = self._values(names)
        return {
            number: None if owner is None else owner.decode()
            for number, owner in zip(partitions, found, strict=True)
        }

    def _values(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the values of keys: by one command where one server has them all, which a beat of many partitions makes cheaper."""
        client = self._store.client
        if not isinstance(client, ClusterClient):
            found: list[bytes | None] = client.mget(names)
            return found
        with client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.get(name)
            replies: list[bytes | None] = pipe.execute()
        return replies

    def _is_mine(self, partition: int, owner: str | None) -> bool:
        """Whether this worker still has a lease; take it again if it has been lost."""
        return owner == self.name or (owner is None and self._acquire(partition))

    def _acquire(self, partition: int) -> bool:
        """Take a lease, from a worker that no longer reaches the store too."""
        holder = self._lease(partition)
        if holder and self._gone()(holder):
            holder = self._lease(partition, gone=holder)
        return not holder

    def _lease(self, partition: int, is_taken: bool = True, gone: str = "") -> str:
        """Run the script; return the name of another worker that has the lease, empty if none has."""
        keys = self._store.keys.partition(partition)
        arguments = [self.name, int(is_taken), gone]
        holder: bytes = self._store.run(partition, "lease", [keys.lease], arguments)
        return holder.decode()

    def _gone(self) -> Callable[[str], bool]:
        """Return whether a worker has no heartbeat that still protects its leases. One in the future says nothing."""
        with self._store.client.pipeline(transaction=False) as pipe:
            pipe.zrange(self._store.keys.workers, 0, -1, withscores=True)
            pipe.time()
            beats, (seconds, microseconds) = pipe.execute()
        now_s, lease_s = seconds + microseconds / 1e6, self._settings.lease_s
        protected = {
            name.decode()
            for name, beat_s in beats
            if -_COUNTS <= (now_s - beat_s) / lease_s <= _IS_GONE
        }
        return lambda name: name not in protected

    def _roll_call(self) -> list[str]:
        lease_s = self._settings.lease_s
        arguments = [self.name, lease_s * _COUNTS, lease_s * _LEASES_LISTED]
        store = self._store
        found = store.run_on(store.client, "roll_call", [store.keys.workers], arguments)
        return sorted(name.decode() for name in found)

    def _is_stuck(self, partition: int) -> bool:
        since = self._busy.get(partition)
        return since is not None and time.monotonic() - since > STUCK_S


class _Loads:
    """Bytes merged per second and partition, a mean in which the last rate has the largest part."""

    def __init__(self) -> None:
        self._rates: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._seen_at = 0.0

    def note(self, merged: dict[int, int], now_s: float) -> None:
        """Record how many bytes each partition has ever merged."""
        seconds = now_s - self._seen_at
        for number, n_bytes in merged.items():
            if number in self._seen and seconds > 0:
                rate = max(0, n_bytes - self._seen[number]) / seconds
                before = self._rates.get(number, rate)
                self._rates[number] = before + _NEW_RATE * (rate - before)
        self._seen, self._seen_at = merged, now_s

    def of(self, partitions: Iterable[int]) -> dict[int, float]:
        """Return the rates; 0 where none is known yet."""
        return {number: self._rates.get(number, 0.0) for number in partitions}
