"""A cluster whose shards are known: the master and the replica of the same slots, which change their roles at each failover."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from tests.clusters import StoreCluster
from tests.stores import StoreServer
from tests.storms.cluster.network import Network
from tests.waiting import eventually

N_SHARDS = 3
# As in `deploy/cluster.yml`. A master without a replica for this time rejects writes; the promoted one has none at first.
MAX_LAG_S = 10
# A failover takes about the node timeout and one second; a busy machine may need a multiple of it.
FAILOVER_S = 180.0


class Shard:
    """Two nodes: one holds slots, the other replicates them. Who injects a fault holds `lock`."""

    def __init__(self, number: int, nodes: tuple[StoreServer, StoreServer]) -> None:
        self.number, self.nodes = number, nodes
        self.lock = threading.Lock()

    @property
    def master(self) -> StoreServer:
        """The node that holds the slots; of a shard without a fault."""
        return next(node for node in self.nodes if replication_of(node).get("role") == "master")

    def other(self, node: StoreServer) -> StoreServer:
        """Return the other node."""
        return self.nodes[1 - self.nodes.index(node)]

    def is_complete(self) -> bool:
        """Whether one node is master and the other its replica, with the link up."""
        found = {node: replication_of(node) for node in self.nodes}
        roles = {each.get("role"): node for node, each in found.items()}
        if set(roles) != {"master", "slave"}:
            return False
        master, replica = found[roles["master"]], found[roles["slave"]]
        follows = replica["master_link_status"] == "up"
        follows &= replica["master_port"] == roles["master"].port
        # The master counts its replicas once a second; before, it may reject writes.
        is_counted = master.get("min_slaves_good_slaves", 1) >= 1
        return follows and is_counted and all(_is_well(node) for node in self.nodes)

    def wait_complete(self) -> None:
        """Wait for `master_link_status:up`."""
        _wait(self.is_complete, f"shard {self.number} is not complete")

    def wait_promoted(self, node: StoreServer) -> None:
        """Wait until a former replica is master and serves."""
        _wait(
            lambda: replication_of(node).get("role") == "master" and _is_well(node),
            f"the replica of shard {self.number} was not promoted",
        )


class ShardedCluster(StoreCluster):
    """Three masters, each with one replica; with a network, each node has its own namespace.

    Attributes
    ----------
    shards : in the order of their slots at the start
    election : who holds this lock may take a master away; without a majority of masters, no replica is promoted
    """

    def __init__(
        self, binary: str, directory: Path, network: Network | None, **options: str
    ) -> None:
        common = {
            "cluster_allow_reads_when_down": "no",
            "cluster_allow_replica_migration": "no",
            "min_replicas_max_lag": str(MAX_LAG_S),
        }
        super().__init__(binary, directory, N_SHARDS, 1, **common | options)
        self.network = network
        pairs = zip(self.nodes[:N_SHARDS], self.nodes[N_SHARDS:], strict=True)
        self.shards = [Shard(number, pair) for number, pair in enumerate(pairs)]
        self.election = threading.Lock()
        if network is not None:
            for at, node in enumerate(self.nodes):
                node.host, node.prefix = network.hosts[at], network.prefix(at)
                node.options["protected-mode"] = "no"

    def start(self) -> None:
        """Start the nodes as a cluster whose replicas are connected."""
        if self.network is not None:
            self.network.create()
        super().start()
        for shard in self.shards:
            shard.wait_complete()

    def close(self) -> None:
        """Kill the nodes and remove their network."""
        super().close()
        if self.network is not None:
            self.network.remove()

    def shard_of(self, key: str) -> Shard:
        """Return the shard that holds a key."""
        node = self.master_of(key)
        return next(shard for shard in self.shards if node in shard.nodes)

    def slots_of(self, shard: Shard) -> list[int]:
        """Return the slots of a shard, as the first node that responds says."""
        ports = {node.port for node in shard.nodes}
        for node in self.nodes:
            try:
                found = slots_by_port(node)
            except (redis.RedisError, OSError):
                continue
            return [slot for slot, port in found.items() if port in ports]
        raise AssertionError("no node responds")

    def wait_agreed(self, slots: list[int], holder: StoreServer) -> None:
        """Wait until every node that responds knows who holds these slots."""

        def is_known_to(node: StoreServer) -> bool:
            try:
                found = slots_by_port(node)
            except (redis.RedisError, OSError):
                return True
            return all(found.get(slot) == holder.port for slot in slots)

        _wait(lambda: all(map(is_known_to, self.nodes)), "nodes do not agree on slots")

    def at(self, node: StoreServer) -> int:
        """Return the number of a node in the network."""
        return self.nodes.index(node)

    def others(self, node: StoreServer) -> list[int]:
        """Return the numbers of all other nodes."""
        return [at for at, each in enumerate(self.nodes) if each is not node]


def slot_of(key: str) -> int:
    """Return the slot of a key."""
    slot: int = key_slot(key.encode())
    return slot


def impatient(node: StoreServer) -> redis.Redis:
    """Return a client that gives up: the node may be stopped."""
    return redis.Redis(
        unix_socket_path=node.socket, protocol=2, socket_timeout=1.0, socket_connect_timeout=1.0
    )


def replication_of(node: StoreServer) -> dict[str, Any]:
    """Return what a node says about its role; empty if it does not respond."""
    try:
        with impatient(node) as client:
            found: dict[str, Any] = client.info("replication")
            return found
    except (redis.RedisError, OSError):
        return {}


def slots_by_port(node: StoreServer) -> dict[int, int]:
    """Return the port of the master of each slot, as a node says."""
    with impatient(node) as client:
        reply = client.execute_command("CLUSTER", "SLOTS")
    return {
        slot: int(master[1])
        for low, high, master, *_ in reply
        for slot in range(int(low), int(high) + 1)
    }


def wait_replicated(node: StoreServer) -> None:
    """Wait until the replica of a master has what the master has now."""
    wanted = replication_of(node)["master_repl_offset"]

    def has_it() -> bool:
        replica = replication_of(node).get("slave0")
        return replica is not None and replica["offset"] >= wanted

    _wait(has_it, "the replica does not follow its master")


def _is_well(node: StoreServer) -> bool:
    try:
        with impatient(node) as client:
            return b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO")
    except (redis.RedisError, OSError):
        return False


def _wait(condition: Callable[[], bool], problem: str) -> None:
    try:
        eventually(condition, FAILOVER_S, pause_s=0.05)
    except AssertionError as error:
        raise AssertionError(problem) from error
