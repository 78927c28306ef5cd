"""Slots that move from one shard to another while clients send, with the keys of partitions in them."""

from __future__ import annotations

import random

from calibrant_server.workers.store.key_names import Keys
from tests.clusters import move_slot
from tests.storms.cluster.nodes import (
    Shard,
    ShardedCluster,
    slot_of,
    slots_by_port,
    wait_replicated,
)
from tests.storms.storm_thread import StormThread

PAUSE_S = (8.0, 16.0)
PARTITIONS = 8
# Of a namespace's partitions; each is in one slot.
SLOTS_IN_USE = [
    slot_of(Keys("calibrant", PARTITIONS).partition(number).stream) for number in range(PARTITIONS)
]
N_EMPTY_SLOTS = 20


class Resharder(StormThread):
    """Moves slots from the shard with most partitions to the one with fewest, again and again.

    No node of the two shards has a fault meanwhile: a master that takes keys confirms them before its replica has them.
    """

    def __init__(self, cluster: ShardedCluster, rng: random.Random) -> None:
        super().__init__()
        self.cluster, self.rng = cluster, rng
        self.n_moves = self.n_slots = 0

    def work(self) -> None:
        while not self.may_end.wait(self.rng.uniform(*PAUSE_S)):
            self.move_some()

    def move_some(self) -> None:
        """Move a partition and empty slots, with both shards locked."""
        source, target = self._places()
        first, second = sorted((source, target), key=lambda shard: shard.number)
        with first.lock, second.lock:
            source.wait_complete()
            target.wait_complete()
            donor, receiver = source.master, target.master
            mine = [slot for slot, port in slots_by_port(donor).items() if port == donor.port]
            used = [slot for slot in mine if slot in SLOTS_IN_USE]
            if not used:
                return
            empty = [slot for slot in mine if slot not in SLOTS_IN_USE]
            moved = [self.rng.choice(used), *self.rng.sample(empty, N_EMPTY_SLOTS)]
            for slot in moved:
                move_slot(slot, donor, receiver)
            wait_replicated(receiver)
            self.cluster.wait_agreed(moved, receiver)
        self.n_moves += 1
        self.n_slots += len(moved)

    def _places(self) -> tuple[Shard, Shard]:
        def n_used(shard: Shard) -> int:
            return sum(slot in SLOTS_IN_USE for slot in self.cluster.slots_of(shard))

        shards = self.cluster.shards[:]
        self.rng.shuffle(shards)
        shards.sort(key=n_used)
        return shards[-1], shards[0]
