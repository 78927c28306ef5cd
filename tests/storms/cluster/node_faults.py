"""Faults of one shard. Each begins with a complete shard and returns how many failovers it caused.

A fault that takes a master away holds `election` until its replica is promoted: that needs the votes of the other masters.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread

import redis

from tests.stores import StoreServer
from tests.storms.cluster.nodes import Shard, ShardedCluster, impatient, slot_of, slots_by_port

LAG_S = (1.5, 3.0)
AWAY_S = (0.0, 2.0)


@dataclass
class Place:
    """Where a fault happens.

    Attributes
    ----------
    accepted_s : for each master that was separated from the other nodes, how long after that it accepted writes
    rejected_with : the codes with which it rejected them then
    """

    cluster: ShardedCluster
    shard: Shard
    rng: random.Random
    accepted_s: list[float] = field(default_factory=list)
    rejected_with: set[str] = field(default_factory=set)


def kill_master(place: Place) -> int:
    """SIGKILL; the node returns as a replica."""
    master = place.shard.master
    with place.cluster.election:
        master.kill()
        place.shard.wait_promoted(place.shard.other(master))
    _restart(place, master)
    return 1


def stop_master(place: Place) -> int:
    """SIGSTOP for longer than the node timeout: it continues as a master that others have replaced."""
    master = place.shard.master
    with place.cluster.election:
        os.kill(master.pid, signal.SIGSTOP)
        try:
            place.shard.wait_promoted(place.shard.other(master))
            time.sleep(place.rng.uniform(*AWAY_S))
        finally:
            os.kill(master.pid, signal.SIGCONT)
    return 1


def isolate_master(place: Place) -> int:
    """Cut it off from everything."""
    cluster, master = place.cluster, place.shard.master
    assert cluster.network is not None
    with cluster.election:
        cluster.network.isolate(cluster.at(master))
        try:
            place.shard.wait_promoted(place.shard.other(master))
            time.sleep(place.rng.uniform(*AWAY_S))
        finally:
            cluster.network.rejoin(cluster.at(master))
    return 1


def separate_master(place: Place) -> int:
    """Cut it off from the other nodes only: services and workers still reach it. It must soon reject writes."""
    cluster, master = place.cluster, place.shard.master
    assert cluster.network is not None
    with cluster.election:
        cluster.network.separate(cluster.at(master), cluster.others(master))
        try:
            with _Writes(place, master):
                place.shard.wait_promoted(place.shard.other(master))
                time.sleep(place.rng.uniform(*AWAY_S))
        finally:
            cluster.network.unite(cluster.at(master), cluster.others(master))
    return 1


def kill_master_of_late_replica(place: Place) -> int:
    """Cut the link between a master and its replica, then kill the master: the replica lacks what came in between."""
    cluster, master = place.cluster, place.shard.master
    network, replica = cluster.network, place.shard.other(place.shard.master)
    assert network is not None
    with cluster.election:
        network.separate(cluster.at(master), [cluster.at(replica)])
        try:
            time.sleep(place.rng.uniform(*LAG_S))
            master.kill()
        finally:
            network.unite(cluster.at(master), [cluster.at(replica)])
        place.shard.wait_promoted(replica)
    _restart(place, master)
    return 1


def kill_replica(place: Place) -> int:
    """SIGKILL of the replica: until it is back, its master rejects writes."""
    replica = place.shard.other(place.shard.master)
    replica.kill()
    _restart(place, replica)
    return 0


def kill_both(place: Place) -> int:
    """SIGKILL of a master and its replica together; both return with their files, in either order."""
    nodes = list(place.shard.nodes)
    place.rng.shuffle(nodes)
    with place.cluster.election:
        for node in nodes:
            os.kill(node.pid, signal.SIGKILL)
        for node in nodes:
            _restart(place, node)
        place.shard.wait_complete()
    return 0


NodeFault = Callable[[Place], int]
FAULTS: dict[str, NodeFault] = {
    "kill of a master": kill_master,
    "stop of a master": stop_master,
    "kill of a replica": kill_replica,
}
FAULTS_OF_THE_NETWORK: dict[str, NodeFault] = {
    "master without network": isolate_master,
    "master without other nodes": separate_master,
    "late replica, kill of its master": kill_master_of_late_replica,
}
DOUBLE_FAULTS: dict[str, NodeFault] = {"kill of a master and its replica": kill_both}


def _restart(place: Place, node: StoreServer) -> None:
    node.kill()
    time.sleep(place.rng.uniform(*AWAY_S))
    node.start()


class _Writes:
    """Writes to a master ten times a second, over its socket, to find when it begins to reject them."""

    def __init__(self, place: Place, node: StoreServer) -> None:
        self._place, self._node, self._end = place, node, Event()
        own = {slot for slot, port in slots_by_port(node).items() if port == node.port}
        names = (f"storm-write-{number}" for number in range(1 << 20))
        self._key = next(name for name in names if slot_of(name) in own)
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        started_at, last_s = time.monotonic(), 0.0
        with impatient(self._node) as client:
            while not self._end.wait(0.1):
                try:
                    client.incr(self._key)
                    last_s = time.monotonic() - started_at
                except redis.ResponseError as error:
                    self._place.rejected_with.add(_code(error))
                except (redis.RedisError, OSError):
                    continue
        self._place.accepted_s.append(round(last_s, 1))


def _code(error: redis.ResponseError) -> str:
    text = str(getattr(error, "status_code", None) or type(error).__name__)
    return text if text != "ResponseError" else str(error).split()[0]
