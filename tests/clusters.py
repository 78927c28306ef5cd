"""A real cluster on this machine: masters, and a replica of each if a test wants them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import redis
from redis.crc import key_slot

from tests.ports import reserved_port
from tests.stores import StoreServer
from tests.waiting import eventually

N_SLOTS = 16384
# A node is replaced after this time without an answer; a busy machine may delay answers by a second.
NODE_TIMEOUT_MS = 5000


class StoreCluster:
    """Masters that share the slots evenly, reached over loopback ports.

    `options` are directives of each node, as of `StoreServer`.
    """

    def __init__(
        self,
        binary: str,
        directory: Path,
        n_masters: int = 3,
        n_replicas: int = 0,
        **options: str,
    ) -> None:
        common = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": str(NODE_TIMEOUT_MS),
            "cluster_require_full_coverage": "no",
            "repl_diskless_sync_delay": "0",
        }
        self.nodes = [
            StoreServer(
                binary,
                directory / f"node-{at}",
                **common | options,
                cluster_port=str(reserved_port()),
            )
            for at in range(n_masters * (1 + n_replicas))
        ]
        self.n_masters = n_masters

    @property
    def url(self) -> str:
        hosts = ",".join(f"{node.host}:{node.port}" for node in self.nodes)
        return f"redis+cluster://{hosts}"

    def start(self) -> None:
        """Start the nodes, share the slots and wait until every node knows it."""
        for node in self.nodes:
            node.listens = True
            node.start()
        self._meet()
        bounds = [N_SLOTS * at // self.n_masters for at in range(self.n_masters + 1)]
        for node, low, high in zip(self.nodes, bounds, bounds[1:], strict=False):
            with node.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", low, high - 1)
        names = [name_of(node) for node in self.nodes[: self.n_masters]]
        for at, replica in enumerate(self.nodes[self.n_masters :]):
            eventually(lambda replica=replica, at=at: self._knows(replica, names[at % len(names)]))
            with replica.client() as client:
                client.execute_command("CLUSTER", "REPLICATE", names[at % len(names)])
        eventually(lambda: all(self._is_ready(node) for node in self.nodes))

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def master_of(self, key: str) -> StoreServer:
        """Return the node that holds a key, as the nodes that respond see it."""
        for asked in self.nodes:
            try:
                with asked.client() as client:
                    slots = client.execute_command("CLUSTER", "SLOTS")
            except redis.RedisError:
                continue
            for low, high, master, *_ in slots:
                if low <= key_slot(key.encode()) <= high:
                    return next(node for node in self.nodes if node.port == int(master[1]))
        raise AssertionError(f"no node holds {key}")

    def _meet(self) -> None:
        first = self.nodes[0]
        with first.client() as client:
            for node in self.nodes[1:]:
                client.execute_command(
                    "CLUSTER", "MEET", node.host, node.port, node.options["cluster-port"]
                )

    def _knows(self, node: StoreServer, name: str) -> bool:
        with node.client() as client:
            return name in client.execute_command("CLUSTER", "NODES").decode()

    def _is_ready(self, node: StoreServer) -> bool:
        with node.client() as client:
            state = _fields(client)
            replication = client.info("replication")
            slots: Sequence[object] = client.execute_command("CLUSTER", "SLOTS")
        linked = replication["role"] == "master" or replication["master_link_status"] == "up"
        known = state["cluster_known_nodes"] == str(len(self.nodes))
        return state["cluster_state"] == "ok" and known and linked and len(slots) >= self.n_masters


def name_of(node: StoreServer) -> str:
    """Return the name that a node has in its cluster."""
    with node.client() as client:
        name: bytes = client.execute_command("CLUSTER", "MYID")
    return name.decode()


def move_slot(slot: int, source: StoreServer, target: StoreServer) -> None:
    """Move a slot with all its keys to another master, key by key, as tools of clusters do it."""
    with source.client() as at_source, target.client() as at_target:
        at_target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", name_of(source))
        at_source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", name_of(target))
        while found := at_source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            eventually(lambda found=found: _migrated(at_source, target, found))
        for client in (at_target, at_source):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", name_of(target))


def _migrated(at_source: redis.Redis, target: StoreServer, keys: Sequence[bytes]) -> bool:
    """Move keys; return False if a node waits for its replica."""
    try:
        at_source.execute_command("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *keys)
    except redis.ResponseError as error:
        if "NOREPLICAS" not in str(error):
            raise
        return False
    return True


def _fields(client: redis.Redis) -> dict[str, str]:
    lines = client.execute_command("CLUSTER", "INFO").decode().split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)
