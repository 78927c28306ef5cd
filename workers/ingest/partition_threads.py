"""The threads of a worker that serve its partitions: a few for all, whatever their number.

One thread waits for entries of all partitions that rest (`store/stream_watch.py`) and for the times at which they need work
without an entry. It queues them for the others, each of which takes one partition at a time until its stream is empty. While
no other partition may need its thread, a loop waits there for its next entries itself, which is quicker.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from redis.exceptions import RedisError

from calibrant_server.workers.ingest.partition_loop import PartitionLoop, Turn
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.leases import RETRIES_A_LEASE, Leases
from calibrant_server.workers.store.stream_watch import StreamWatch

log = logging.getLogger(__name__)

# Several, so that a partition that waits for the store or for a sandbox does not delay others.
THREADS = 8
# Of these, at most so many serve partitions that met an error: a master of a cluster that hangs holds each for a time-out.
MAX_TROUBLED = 2
_AFTER_ERROR_S = 0.2
# While one worker serves all partitions, nothing changes but by entries and due times: it looks for a lost lease this often.
RESTS_A_LEASE = 1


@dataclass
class _Slot:
    """A partition: its loop, whether it waits for a thread, the thread that runs it, whether it met an error, and whether
    entries have arrived while it ran.
    """

    loop: PartitionLoop
    queued: bool = False
    thread: threading.Thread | None = None
    is_troubled: bool = False
    has_entries: bool = False

    @property
    def rests(self) -> bool:
        return not self.queued and self.thread is None


class PartitionThreads:
    """Serves the partitions of one worker until `stop` is set.

    Parameters
    ----------
    make_loop : makes the loop of a partition
    """

    def __init__(
        self,
        store: Store,
        leases: Leases,
        stop: threading.Event,
        make_loop: Callable[[int], PartitionLoop],
    ):
        self._leases = leases
        self._stop = stop
        self._make_loop = make_loop
        self._watch = StreamWatch(store)
        self._changed = threading.Condition()
        self._slots = {
            number: _Slot(make_loop(number)) for number in range(store.settings.partitions)
        }
        self._queue: deque[int] = deque()
        self._n_idle = 0
        self._check_s = store.settings.lease_s / RETRIES_A_LEASE
        self._rest_s = store.settings.lease_s / RESTS_A_LEASE
        self._take_at, self._look_at = -math.inf, -math.inf
        self._workers: list[threading.Thread] = []
        self._scheduler = threading.Thread(
            target=self._schedule, name="watch-partitions", daemon=True
        )

    @property
    def threads(self) -> list[threading.Thread]:
        """Every thread, without those that are stuck."""
        return [self._scheduler, *self._workers]

    @property
    def loops(self) -> list[PartitionLoop]:
        """The loop of each partition."""
        return [slot.loop for slot in self._slots.values()]

    def start(self) -> None:
        """Start the threads: one more than partitions, so that each loop may wait for its entries."""
        for _ in range(min(THREADS, len(self._slots) + 1)):
            self._start_worker()
        self._scheduler.start()

    def replace(self, partition: int) -> None:
        """Give a partition that makes no progress another loop, and another thread for the one that it occupies."""
        with self._changed:
            slot = self._slots[partition]
            slot.loop.abandoned = True
            stuck = slot.thread
            self._slots[partition] = _Slot(self._make_loop(partition))
            if partition in self._queue:
                self._queue.remove(partition)
            if stuck is not None:
                self._workers = [each for each in self._workers if each is not stuck]
        if stuck is not None:
            self._start_worker()

    def wake(self) -> None:
        """Have every thread look at `stop`."""
        self._watch.wake()
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Return the leases of partitions that rest, after the threads have ended."""
        for slot in self._slots.values():
            if slot.thread is None and slot.loop.is_open:
                try:
                    slot.loop.close()
                except RedisError as error:
                    log.warning("lease_not_returned error=%s", error)
                    return

    def _start_worker(self) -> None:
        name = f"partition-{len(self._workers)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._workers.append(thread)
        thread.start()

    def _schedule(self) -> None:
        while not self._stop.is_set():
            try:
                self._schedule_once()
            except RedisError:
                # The heartbeat reports it.
                self._stop.wait(_AFTER_ERROR_S)
            except Exception:
                log.exception("partitions_not_scheduled")
                self._stop.wait(_AFTER_ERROR_S)
        self._watch.close()
        with self._changed:
            self._changed.notify_all()

    def _schedule_once(self) -> None:
        """Queue what is due, and wait for entries until something else is.

        All partitions are looked at only when one may be due: with each entry, the look would cost as much as reading it.
        """
        now = time.monotonic()
        with self._changed:
            looks = now >= self._look_at
            if looks:  # a turn that ends during the look may set an earlier time
                self._look_at = now + self._rest_s
        if looks:
            self._enqueue(self._due(now), has_entries=False)
        ready, failed = self._watch.poll(self._look_at - time.monotonic())
        self._enqueue(ready)
        self._enqueue(failed, with_error=True)

    def _due(self, now: float) -> list[int]:
        """Return the partitions that need a turn without an entry, and note when the next one will."""
        due_at = math.inf
        due, closed = [], []
        for partition, slot in list(self._slots.items()):
            if not slot.rests:
                continue
            if not slot.loop.is_open:
                if now >= slot.loop.resumes_at:
                    closed.append(partition)
            elif now >= slot.loop.due_at or not self._leases.holds(partition):
                due.append(partition)
            else:
                due_at = min(due_at, slot.loop.due_at)
        if closed or not self._leases.is_alone:
            due_at = min(due_at, now + self._check_s)
        if closed and now >= self._take_at:
            self._take_at = now + self._check_s
            due += self._leases.wanted(closed)
        with self._changed:
            self._look_at = min(self._look_at, due_at)
        return due

    def _enqueue(
        self, partitions: Iterable[int], with_error: bool = False, has_entries: bool = True
    ) -> None:
        """Queue partitions that rest. One that is only due stays watched: housekeeping seldom finds entries."""
        with self._changed:
            for partition in partitions:
                slot = self._slots[partition]
                slot.has_entries |= has_entries
                if slot.rests:
                    slot.is_troubled |= with_error
                    slot.queued = True
                    self._queue.append(partition)
                    self._changed.notify()

    def _work(self) -> None:
        while True:
            slot = self._next()
            if slot is None:
                return
            outcome = slot.loop.turn(self._is_wanted)
            if outcome is not Turn.EMPTY:
                self._watch.remove(slot.loop.partition)
            is_lost = outcome is Turn.EMPTY and not self._watched(slot.loop)
            with self._changed:
                slot.thread = None
                if slot.loop.abandoned:
                    return
                self._end_turn(slot, outcome, is_lost)

    def _next(self) -> _Slot | None:
        """Wait for a partition that needs a thread; None at a stop."""
        with self._changed:
            self._n_idle += 1
            self._changed.wait_for(self._has_work)
            self._n_idle -= 1
            if self._stop.is_set():
                return None
            partition = next(filter(self._may_run, self._queue))
            self._queue.remove(partition)
            slot = self._slots[partition]
            slot.queued, slot.thread = False, threading.current_thread()
            slot.has_entries = False
            return slot

    def _has_work(self) -> bool:
        return self._stop.is_set() or any(map(self._may_run, self._queue))

    def _may_run(self, partition: int) -> bool:
        if not self._slots[partition].is_troubled:
            return True
        running = [each for each in self._slots.values() if each.thread is not None]
        return sum(each.is_troubled for each in running) < MAX_TROUBLED

    def _watched(self, loop: PartitionLoop) -> bool:
        """Have the entries of a loop waited for; return whether that was possible."""
        try:
            self._watch.add(loop.partition, loop.after_id)
        except (RedisError, OSError):
            return False
        return True

    def _end_turn(self, slot: _Slot, outcome: Turn, is_lost: bool) -> None:
        if slot.is_troubled:
            self._changed.notify()  # Another may have waited for its end.
        slot.is_troubled = is_lost or outcome is Turn.PAUSED
        if outcome is Turn.ENTRIES or (outcome is Turn.EMPTY and (is_lost or slot.has_entries)):
            slot.queued = True
            self._queue.append(slot.loop.partition)
            self._changed.notify()
        elif outcome is not Turn.EMPTY or slot.loop.due_at < self._look_at:
            self._look_at = -math.inf
            self._watch.wake()

    def _is_wanted(self) -> bool:
        """Whether a thread that waits for one partition would keep others waiting."""
        return bool(self._queue) or self._n_idle == 0
