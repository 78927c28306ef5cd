"""Partition loop: fills entries into panes, many in one commit.

A worker reads a partition's stream from the cursor, fills entries into deltas and adds them to its cached panes. It commits
panes, batch records, dead letters, cursor and trim in one script (`store/scripts/commit.lua`), guarded by the fencing
token. Records are read after the token. So a record that was missing then is still missing when the commit is written, or
the commit is rejected. If the worker is killed before the commit, nothing has happened; after it, everything has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from itertools import takewhile

from redis.exceptions import RedisError

from calibrant_server.workers.ingest.attempts import Attempts, FailedAloneError, Parking
from calibrant_server.workers.ingest.commit_group import CommitGroup, GroupFailedError, Item
from calibrant_server.workers.ingest.dead_letters import read_head
from calibrant_server.workers.ingest.entries import ALONE
from calibrant_server.workers.ingest.entry_reader import EntryReader
from calibrant_server.workers.ingest.pane_cache import PaneCache
from calibrant_server.workers.ingest.record_store import RecordStore
from calibrant_server.workers.ingest.reduce import Numerics, StoreReads
from calibrant_server.workers.ingest.sole_entries import SoleEntries
from calibrant_server.workers.ingest.state_cache import StateCache
from calibrant_server.workers.lifecycle.housekeeping import Housekeeping
from calibrant_server.workers.store.commit import (
    FIRST_ID,
    Commit,
    FencingToken,
    StaleTokenError,
    first_of,
    is_full,
)
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.leases import Leases
from calibrant_server.workers.store.transient_errors import NO_VERDICT, is_transient

log = logging.getLogger(__name__)

_MAX_GAP_S = 1.0
# A loop whose stream is empty waits this long for the next entry, if its thread has nothing else to do.
READ_BLOCK_S = 0.3
_AFTER_ERROR_S = 0.2
# Partitions that wait for a thread get one after this time, at the next commit.
_MAX_TURN_S = 0.5
# Maximum state written per second: commits are spaced so that a network disk keeps up.
COMMIT_WRITE_RATE = 20_000_000
# Entries that come within this time after a commit share the next one: the fixed cost of a commit is that of ten small entries.
SHARED_COMMIT_S = 0.01
# Where a commit had this many entries, others come so fast that twice or three times as long saves most of that cost.
FAST_ENTRIES, MOST_SHARED = 4, 3


class Turn(Enum):
    """How a turn of a loop ended."""

    EMPTY = "no entry waits"
    ENTRIES = "entries wait"
    PAUSED = "nothing is to be done before `due_at`"
    NO_LEASE = "the worker does not have the lease"


class PartitionLoop:
    """Consumes one partition while its worker has the lease. One thread at a time calls it.

    Attributes
    ----------
    abandoned : another loop has taken its place
    is_open : it works under a lease
    resumes_at : monotonic seconds before which a turn would only repeat the last error
    """

    def __init__(
        self,
        store: Store,
        partition: int,
        numerics: Numerics,
        leases: Leases,
        stop: threading.Event,
        cache: StateCache | None = None,
    ):
        self._store = store
        self._settings = store.settings
        self._numerics = numerics
        self._leases = leases
        self._stop = stop
        self.partition = partition
        self.abandoned = False
        self.keys = store.keys.partition(partition)
        self._node = store.node(partition)
        self._reader = EntryReader(self._node, self.keys)
        self._fencing = FencingToken(store, self.keys)
        self._busy = partial(leases.busy, partition)
        self._cache = PaneCache(store, self.keys, numerics, cache or StateCache.of(store.settings))
        self._housekeeping = Housekeeping(store, self.keys, self._fencing, numerics)
        self._sole = SoleEntries(
            store,
            self.keys,
            self._fencing,
            numerics,
            self._housekeeping,
            forget=self._cache.forget,
            busy=self._busy,
        )
        self._retained = RecordStore(self._node, self.keys)
        self._parking = Parking(store, self.keys, self._fencing)
        self._attempts = Attempts()
        self._at_work: list[str] = []
        self.is_open = False
        self._counted = False
        self._must_reload = False
        self.resumes_at = 0.0
        self._next_read_at = 0.0
        self._is_wanted: Callable[[], bool] = lambda: False

    @property
    def after_id(self) -> str:
        """The last entry consumed."""
        return self._fencing.cursor.id

    @property
    def due_at(self) -> float:
        """Monotonic seconds at which the loop needs a turn, whether or not there are entries."""
        return self.resumes_at or self._housekeeping.due_at

    def turn(self, is_wanted: Callable[[], bool] = lambda: False) -> Turn:
        """Acquire the lease, or work while it is valid until the stream is empty, or return it.

        Parameters
        ----------
        is_wanted : whether another partition waits for this thread, or may need it
        """
        self.resumes_at, self._is_wanted = 0.0, is_wanted
        try:
            if not self.is_open and not (self._goes_on and self._leases.take(self.partition)):
                return Turn.NO_LEASE
            return self._turn_while_leased(is_wanted)
        except NO_VERDICT as error:
            self._report(error)
        except Exception:
            log.exception("partition_restarted partition=%d", self.partition)
        self.resumes_at = time.monotonic() + _AFTER_ERROR_S
        return Turn.PAUSED

    def _turn_while_leased(self, is_wanted: Callable[[], bool]) -> Turn:
        until = time.monotonic() + _MAX_TURN_S
        try:
            if not self.is_open:
                self._cache.forget()
                self._fencing.reload()
                self._counted, self.is_open, self._must_reload = False, True, False
            while self._goes_on and self._leases.holds(self.partition):
                wanted = is_wanted()
                found = self._step_or_reload(0.0 if wanted else READ_BLOCK_S)
                if self.resumes_at:
                    return Turn.PAUSED
                if not found:
                    return Turn.EMPTY
                if wanted and time.monotonic() > until:
                    return Turn.ENTRIES
        except BaseException:
            self.close()
            raise
        self.close()
        return Turn.NO_LEASE

    def close(self) -> None:
        """Forget what is cached, and return the lease."""
        self.is_open = False
        self._cache.forget()
        if self.abandoned:
            return
        try:
            if self._counted and self._fencing.cursor.danger_id != FIRST_ID:
                self._fencing.leave()
        finally:
            self._leases.idle(self.partition)
            self._leases.give_back(self.partition)

    @property
    def _goes_on(self) -> bool:
        return not self._stop.is_set() and not self.abandoned

    def _step_or_reload(self, block_s: float = 0.0) -> bool:
        """Do a step; return whether there was something to do. After an error, pause until `due_at`."""
        try:
            if self._must_reload:
                self._at_work = []
                self._fencing.reload()
                self._must_reload = False
            return self.step(block_s)
        except (StaleTokenError, FailedAloneError, *NO_VERDICT) as error:
            # Rejected, or the outcome is unknown: the memory may be ahead of the store or behind it.
            self._cache.forget()
            if isinstance(error, MemoryError):
                self._reader.count = 1
            if isinstance(error, StaleTokenError):
                self._fencing.reload()
                return True
            self._report(error)
            self._must_reload = True
            pause_s = self._attempts.failed(self._at_work, error, self._fencing.cursor)
            self.resumes_at = time.monotonic() + pause_s
            return False
        finally:
            self._leases.idle(self.partition)

    def _report(self, error: BaseException) -> None:
        """Log an error; a state of the store once for all partitions of the process."""
        if is_transient(error) and isinstance(error, RedisError):
            self._store.state.failed(error)
        else:
            log.warning("partition_interrupted partition=%d error=%r", self.partition, error)

    def step(self, block_s: float = 0.0) -> bool:
        """Read the entries that are there, waiting for the first; commit them, and return whether there were any."""
        self._at_work = []
        if time.monotonic() >= self._housekeeping.due_at and self._housekeeping.run(self._busy):
            self._cache.forget()
        if self._park_next():
            return True
        self._wait_for_others()
        items, dry = self._read(self._fencing.cursor.id, block_s)
        if not items:
            return False
        self._busy()
        if not self._counted:
            # Count the attempt once there is an entry to die of; read the entry again from the counted cursor.
            self._fencing.take_over()
            self._counted = True
            return True
        self._at_work = [items[0].id]
        self._commit_next(items, dry)
        self._attempts.succeeded()
        return True

    def _commit_next(self, items: list[Item], dry: bool) -> None:
        """Commit the next entries together; if that fails, they are committed one by one.

        An unexpected error of an entry that is alone counts as a failed attempt of it.
        """
        is_alone = self._is_alone(items[0])
        reads = StoreReads(self._retained, self._retained.slices, self._settings.max_slice_values)
        group = CommitGroup(self._numerics, self._busy, reads)
        try:
            if is_alone:
                self._add(group, items[:1])
                self._reader.count = 1
            left_none = not is_alone and self._gather(group, items, dry)
            n_bytes = self._commit(group)
            if left_none:
                gap_s = min(_MAX_GAP_S, n_bytes / COMMIT_WRITE_RATE)
                self._next_read_at = time.monotonic() + max(gap_s, shared_s(len(group.items)))
        except GroupFailedError as error:
            log.info("entries_one_by_one to=%s error=%s", self._at_work[-1], error)
            self._cache.forget()
            self._attempts.separate(self._at_work[-1])
        except (StaleTokenError, *NO_VERDICT):
            raise
        except Exception as error:
            if not is_alone:
                raise
            log.exception("entry_failed_alone entry_id=%s", items[0].id)
            raise FailedAloneError(f"{type(error).__name__}: {error}") from error

    def _wait_for_others(self) -> None:
        """Wait a moment after a commit that left no entries in the stream."""
        left_s = self._next_read_at - time.monotonic()
        while left_s > 0 and not self._stop.is_set():
            self._stop.wait(min(left_s, SHARED_COMMIT_S))
            left_s -= SHARED_COMMIT_S
            if self._is_wanted():
                return

    def _park_next(self) -> bool:
        """Park the next entry if it failed alone too often, or its readers died; its payload, which may be why, is not read."""
        spent, cursor = self._attempts.spent(self._fencing.cursor), self._fencing.cursor
        head = read_head(self._node, self.keys.stream, f"({cursor.id}") if spent else None
        if spent is None or head is None or spent[0] not in ("", head.id):
            return False
        self._busy()
        self._at_work = [head.id]
        self._parking.park(head, spent[1])
        self._attempts.succeeded()
        return True

    def _is_alone(self, item: Item) -> bool:
        """Whether an entry has a commit of its own."""
        has_own = item.entry is not None and item.entry.kind in ALONE
        return has_own or self._attempts.is_alone(item.id, self._fencing.cursor)

    def _gather(self, group: CommitGroup, items: list[Item], dry: bool) -> bool:
        """Fill the entries read, and read on until the stream is empty or the group is large enough; return whether it left none."""
        while True:
            plain = first_of([*takewhile(lambda item: not self._is_alone(item), items)], group)
            self._add(group, plain)
            if dry or len(plain) < len(items) or is_full(group, len(group.items)):
                return dry and len(plain) == len(items)
            items, dry = self._read(group.last_id, 0.0)

    def _read(self, after_id: str, block_s: float) -> tuple[list[Item], bool]:
        """Return the entries after one, and whether the stream had no more of them."""
        try:
            return self._reader.read(after_id, block_s)
        except MemoryError:
            if self._reader.count == 1 and not self._at_work:
                # The entry alone is too large for the memory there is: this is its failure.
                head = read_head(self._node, self.keys.stream, f"({after_id}")
                self._at_work = [head.id] if head is not None else []
            raise

    def _add(self, group: CommitGroup, items: list[Item]) -> None:
        self._at_work = [item.id for item in (*group.items, *items)]
        self._reader.look_up(items)
        for item in items:
            group.add(item)

    def _commit(self, group: CommitGroup) -> int:
        """Commit a group; return the bytes written."""
        token, sole = self._fencing.new_token(), group.sole
        commit = self._filled(group, token) if sole is None else self._sole.apply(sole, token)
        group.write(commit, self.keys, self._settings.idempotency_ttl_s)
        self._fencing.send(commit, token, group.last_id, group.n_merged, group.n_bytes)
        self._cache.trim()
        return commit.n_bytes

    def _filled(self, group: CommitGroup, token: bytes) -> Commit:
        """Return a commit of what a group adds to panes and records."""
        commit = Commit(self.keys)
        group.apply(self._cache)
        if group.parked_bytes:
            self._parking.check_room(group.parked_bytes)
        self._cache.write(commit, token)
        group.write_records(commit, self.keys)
        return commit


def shared_s(n_entries: int) -> float:
    """Return how long entries are waited for after a commit of so many that left none.

    >>> [shared_s(n) for n in (1, 3, 4, 8, 100)]
    [0.01, 0.01, 0.02, 0.03, 0.03]
    """
    return SHARED_COMMIT_S * min(1 + n_entries // FAST_ENTRIES, MOST_SHARED)
