"""One node fault per shard at a time: each begins once the shard's replica is connected, `master_link_status:up`."""

from __future__ import annotations

import random
import time
from collections import Counter

from tests.storms.cluster.node_faults import NodeFault, Place
from tests.storms.cluster.nodes import Shard, ShardedCluster
from tests.storms.storm_thread import StormThread

PAUSE_S = (0.5, 2.0)


class FaultyShard(StormThread):
    """Inflicts faults on one shard, by turns in random order.

    Attributes
    ----------
    n_failovers : promotions of its replica that were waited for
    """

    def __init__(
        self,
        cluster: ShardedCluster,
        shard: Shard,
        faults: dict[str, NodeFault],
        n_faults: int,
        rng: random.Random,
    ) -> None:
        super().__init__()
        self.shard, self.faults, self.n_faults, self.rng = shard, faults, n_faults, rng
        self.place = Place(cluster, shard, rng)
        self.inflicted: Counter[str] = Counter()
        self.n_failovers = 0

    def work(self) -> None:
        for name in self._names():
            time.sleep(self.rng.uniform(*PAUSE_S))
            with self.shard.lock:
                self.shard.wait_complete()
                self.n_failovers += self.faults[name](self.place)
                self.inflicted[name] += 1
                self.shard.wait_complete()

    def _names(self) -> list[str]:
        """Return every kind equally often, except for a rest."""
        found: list[str] = []
        while len(found) < self.n_faults:
            found += self.rng.sample(sorted(self.faults), len(self.faults))
        return found[: self.n_faults]
