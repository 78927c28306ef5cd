"""Supervisor of the threads of one process: partition loops, queries, webhooks, heartbeat.

It runs alone (`python -m workers`) or, by default, as threads of the HTTP service's process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from calibrant_server.workers.alarm.webhook_sender import WebhookSender
from calibrant_server.workers.ingest.partition_loop import PartitionLoop
from calibrant_server.workers.ingest.partition_threads import PartitionThreads
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.state_cache import StateCache
from calibrant_server.workers.queries.compute import Compute
from calibrant_server.workers.queries.kind import ResultKind
from calibrant_server.workers.queries.serve import QueryServer
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.leases import Leases
from calibrant_server.workers.store.properties import StoreMismatch

log = logging.getLogger(__name__)

_BEATS_A_LEASE = 4
# A newer version is noticed by the first commit, too.
_BEATS_A_CHECK = 5


class Supervisor:
    """All threads that work on a store in one process.

    Parameters
    ----------
    settings : with a `redis_url`; see `calibrant_server.workers.store.embedded` for where it comes from without an operator's
    numbers : the classes that compute; those of `calibrant` unless a test replaces them
    kinds : result kinds by name; default: those of `workers/queries/kinds`
    script_texts : the scripts of the store; default: those of the package
    on_stuck : called with a partition whose loop makes no progress. By default its place is taken by a new loop and thread:
        the fencing token keeps the old one, should it ever wake, from writing.
    on_mismatch : called after all threads were signalled to stop because a newer version has advanced the store
    """

    def __init__(
        self,
        settings: EngineSettings,
        numbers: Numerics | None = None,
        kinds: Mapping[str, ResultKind[Any]] | None = None,
        script_texts: Mapping[str, str] | None = None,
        on_stuck: Callable[[int], None] | None = None,
        on_mismatch: Callable[[], None] = lambda: None,
        loop: type[PartitionLoop] = PartitionLoop,
    ):
        self.settings = settings
        self.store = Store(settings, script_texts)
        self._numerics = numbers or Numerics()
        self._stop = threading.Event()
        self._leases = Leases(self.store, on_stuck or self._replace)
        self._loop = loop
        self._cache = StateCache.of(settings)
        compute = Compute(self.store, self._numerics, None if kinds is None else dict(kinds))
        self._serving = QueryServer(self.store, compute)
        self._partitions = PartitionThreads(self.store, self._leases, self._stop, self._make_loop)
        self._others: list[threading.Thread] = []
        self._last_beat_at = 0.0
        self._on_mismatch = on_mismatch
        self.mismatch: StoreMismatch | None = None

    def start(self) -> None:
        """Check the store and start the threads."""
        self.store.fix_properties()
        self._leases.beat()
        self._last_beat_at = time.monotonic()
        self._partitions.start()
        for thread in self._serving.threads(self._stop):
            self._others.append(thread)
            thread.start()
        webhook_sender = WebhookSender(self.store, lambda: self.partitions)
        self._start_other("webhook-sender", lambda: webhook_sender.run(self._stop))
        self._start_other("heartbeat", self._beat)

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Let each thread finish its commit and release its lease; return whether all did in time."""
        self._stop.set()
        self.store.deliveries_changed.set()
        deadline = time.monotonic() + timeout_s
        self._partitions.wake()
        with suppress(RedisError):  # then each ends with its wait
            self._serving.wake()
        threads = self._partitions.threads + self._others
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._partitions.close()
        try:
            self._leases.leave()
        except RedisError as error:
            log.warning("worker_not_deregistered error=%s", error)
        self.store.close()
        return not any(thread.is_alive() for thread in threads)

    @property
    def is_alive(self) -> bool:
        """Whether each thread runs and the heartbeat reached the store lately."""
        threads = self._partitions.threads + self._others
        beat_age_s = time.monotonic() - self._last_beat_at
        return all(t.is_alive() for t in threads) and beat_age_s < 2 * self.settings.lease_s

    @property
    def partitions(self) -> list[int]:
        """The partitions that this process serves now."""
        return [each for each in range(self.settings.partitions) if self._leases.holds(each)]

    def _make_loop(self, partition: int) -> PartitionLoop:
        return self._loop(
            self.store, partition, self._numerics, self._leases, self._stop, self._cache
        )

    def _start_other(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._others.append(thread)
        thread.start()

    def _replace(self, partition: int) -> None:
        self._partitions.replace(partition)

    def _beat(self) -> None:
        n_beats = 0
        while not self._stop.wait(self.settings.lease_s / _BEATS_A_LEASE):
            try:
                if not (n_beats := n_beats + 1) % _BEATS_A_CHECK:
                    self.store.check_properties()
                self._leases.beat()
                self._last_beat_at = time.monotonic()
                if self.store.state.problem:
                    self.store.state.responded(wrote=True)
            except StoreMismatch as error:
                # A newer version has advanced the store: this one must not write any more.
                log.critical("store_advanced error=%s", error)
                self.mismatch = error
                self._stop.set()
                self._on_mismatch()
            except RedisError as error:
                self.store.state.failed(error)
            except Exception:
                log.exception("heartbeat")
