"""Clients of a Redis or Valkey Cluster: each command goes to the node of its key.

The clients are those of one server, one per node, with retries off. The cluster clients of redis-py repeat writes
silently and reject transactions over a few of our keys, so they are not used.

A map from slots to nodes says where a key is. It is read again after an error that a change of the cluster explains. The
command itself is not repeated here: callers repeat what is safe to repeat. A key that moves to another node (ASK) is
rejected until its slot has moved.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import redis
import redis.asyncio
from redis.crc import key_slot
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import RedisError, ResponseError

from calibrant_server.workers.store.transient_errors import code_of, is_of_the_connection

N_SLOTS = 16384
Node = tuple[str, int]
# Commands that fail together read the map once.
_MIN_READ_INTERVAL_S = 0.1
_CHANGED = frozenset({"ASK", "CLUSTERDOWN", "MOVED", "TRYAGAIN"})
_WITHOUT_KEY = frozenset({"CONFIG GET", "INFO", "PING", "TIME"})
# Two words: under one name the client library would parse the reply into another form.
_CLUSTER_SLOTS = ("CLUSTER", "SLOTS")


class SlotMap:
    """The node of each slot, as a node of the cluster said."""

    def __init__(self, hosts: Sequence[Node]):
        self._hosts = tuple(hosts)
        self._nodes: list[Node | None] = []
        self._reported_by: Node | None = None
        self._read_at = 0.0
        self._failed_at = 0.0

    @property
    def masters(self) -> list[Node]:
        """The nodes that hold slots."""
        return sorted({node for node in self._nodes if node is not None})

    @property
    def candidates(self) -> list[Node]:
        """Nodes from which to request the map. The one that responded last comes first: another may hang."""
        first = [] if self._reported_by is None else [self._reported_by]
        return list(dict.fromkeys([*first, *self.masters, *self._hosts]))

    @property
    def is_due(self) -> bool:
        """Whether to read the map before the next command."""
        if self._nodes and self._failed_at < self._read_at:
            return False
        return time.monotonic() - self._read_at > _MIN_READ_INTERVAL_S

    def note(self, error: object) -> None:
        """Have the map read again if a change of the cluster explains an error."""
        if isinstance(error, RedisError | OSError) and (
            code_of(error) in _CHANGED or is_of_the_connection(error)
        ):
            self._failed_at = time.monotonic()

    def learn(self, reply: Iterable[Sequence[Any]], requested: Node) -> None:
        """Read the reply to CLUSTER SLOTS. A node that does not know its own address leaves it empty."""
        nodes: list[Node | None] = [None] * N_SLOTS
        for low, high, master, *_ in reply:
            name = master[0].decode() if isinstance(master[0], bytes) else master[0]
            node = (name or requested[0], int(master[1]))
            nodes[int(low) : int(high) + 1] = [node] * (int(high) + 1 - int(low))
        self._nodes, self._reported_by, self._read_at = nodes, requested, time.monotonic()

    def node_of(self, command: Sequence[Any]) -> Node:
        """Return the node that a command belongs to; any node for a command without a key."""
        key = key_of(command)
        if key is None:
            return self.masters[0]
        slot: int = key_slot(key if isinstance(key, bytes) else str(key).encode())
        node = self._nodes[slot]
        if node is None:
            self._failed_at = time.monotonic()
            raise StoreConnectionError("no node of the cluster holds the slot of this key")
        return node


def key_of(command: Sequence[Any]) -> Any:
    """Return the first key of a command, or None if it has none.

    >>> key_of(["EVALSHA", "abc", 1, "{t}:q", 5])
    '{t}:q'
    >>> key_of(["SCAN", 0, b"MATCH", "{t}:b:*"])
    '{t}:b:*'
    """
    name = str(command[0]).upper()
    if name in _WITHOUT_KEY:
        return None
    if name in ("EVAL", "EVALSHA"):
        return command[3]
    if name in ("XREAD", "XREADGROUP"):
        return command[_words(command).index("STREAMS") + 1]
    if name == "SCAN":
        # Our scans look for keys of one hash tag, which is in the pattern.
        words = _words(command)
        return command[words.index("MATCH") + 1] if "MATCH" in words else None
    return command[1]


def _words(command: Sequence[Any]) -> list[str]:
    """Return the words of a command in capitals. The client library writes some of them as bytes."""
    return [(word.decode() if isinstance(word, bytes) else str(word)).upper() for word in command]


def by_node(slots: SlotMap, commands: Sequence[Any], together: bool) -> dict[Node, list[int]]:
    """Return the positions of a pipeline's commands by node.

    Raises
    ------
    ValueError
        A transaction has keys on several nodes.
    """
    found: dict[Node, list[int]] = {}
    node = None
    for at, (command, _) in enumerate(commands):
        # It concerns the write before it.
        if node is None or command[0] != "WAIT":
            node = slots.node_of(command)
        found.setdefault(node, []).append(at)
    if together and len(found) > 1:
        raise ValueError("a transaction has keys on several nodes: give them one hash tag")
    return found


def _no_map(problem: Exception | None) -> Exception:
    """Return what to raise after no node returned the map: a rejection as it is, for a server that is no cluster."""
    if isinstance(problem, ResponseError) and not is_of_the_connection(problem):
        rejection: Exception = problem
        return rejection
    away: Exception = StoreConnectionError(f"no node of the cluster responds: {problem}")
    return away


class ClusterClient(redis.Redis):  # type: ignore[misc]
    """Blocking client. Threads can share it.

    Parameters
    ----------
    hosts : nodes of the cluster; one has to respond
    make : makes the client of one node
    """

    def __init__(self, hosts: Sequence[Node], make: Callable[[Node], Any]):
        super().__init__()
        self.slots = SlotMap(hosts)
        self._make = make
        self._clients: dict[Node, Any] = {}
        self._lock = threading.Lock()

    def node(self, node: Node) -> Any:
        """Return the client of one node."""
        with self._lock:
            if node not in self._clients:
                self._clients[node] = self._make(node)
            return self._clients[node]

    def masters(self) -> list[Any]:
        """Return a client of each node that holds slots."""
        self.refresh()
        return [self.node(node) for node in self.slots.masters]

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command to the node of its key."""
        self.refresh()
        try:
            return self.node(self.slots.node_of(command)).execute_command(*command, **options)
        except (RedisError, OSError) as error:
            self.slots.note(error)
            raise

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        """Return a pipeline. Without a transaction its commands may belong to several nodes."""
        return _Pipeline(self, transaction)

    def refresh(self) -> None:
        """Read the map of the slots if it is due."""
        if not self.slots.is_due:
            return
        problem: Exception | None = None
        for node in self.slots.candidates:
            try:
                self.slots.learn(self.node(node).execute_command(*_CLUSTER_SLOTS), node)
                return
            except (RedisError, OSError) as error:
                problem = error
        raise _no_map(problem)

    def close(self) -> None:
        """Close the connections of all nodes."""
        for client in self._clients.values():
            client.close()
        super().close()


class _Pipeline(redis.client.Pipeline):  # type: ignore[misc]
    command_stack: list[Any]

    def __init__(self, cluster: ClusterClient, transaction: bool):
        super().__init__(
            cluster.connection_pool, cluster.response_callbacks, transaction, shard_hint=None
        )
        self._cluster = cluster

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands, self.command_stack = self.command_stack, []
        replies: list[Any] = [None] * len(commands)
        self._cluster.refresh()
        slots = self._cluster.slots
        try:
            for node, places in by_node(slots, commands, self.transaction).items():
                with self._cluster.node(node).pipeline(transaction=self.transaction) as pipe:
                    pipe.command_stack = [commands[at] for at in places]
                    for at, reply in zip(places, pipe.execute(raise_on_error), strict=True):
                        slots.note(reply)
                        replies[at] = reply
        except (RedisError, OSError) as error:
            slots.note(error)
            raise
        return replies


class AsyncClusterClient(redis.asyncio.Redis):  # type: ignore[misc]
    """Client for the event loop; parameters as of `ClusterClient`."""

    def __init__(self, hosts: Sequence[Node], make: Callable[[Node], Any]):
        super().__init__()
        self.slots = SlotMap(hosts)
        self._make = make
        self._clients: dict[Node, Any] = {}
        self._reading: asyncio.Task[None] | None = None

    def node(self, node: Node) -> Any:
        """Return the client of one node."""
        if node not in self._clients:
            self._clients[node] = self._make(node)
        return self._clients[node]

    async def masters(self) -> list[Any]:
        """Return a client of each node that holds slots."""
        await self.refresh()
        return [self.node(node) for node in self.slots.masters]

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command to the node of its key."""
        await self.refresh()
        try:
            node = self.slots.node_of(command)
            return await self.node(node).execute_command(*command, **options)
        except (RedisError, OSError) as error:
            self.slots.note(error)
            raise

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        """Return a pipeline. Without a transaction its commands may belong to several nodes."""
        return _AsyncPipeline(self, transaction)

    async def refresh(self) -> None:
        """Read the map of the slots if it is due, once for all tasks that wait for it."""
        if not self.slots.is_due:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        problem: Exception | None = None
        for node in self.slots.candidates:
            try:
                reply = await self.node(node).execute_command(*_CLUSTER_SLOTS)
                self.slots.learn(reply, node)
                return
            except (RedisError, OSError) as error:
                problem = error
        raise _no_map(problem)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the connections of all nodes."""
        for client in self._clients.values():
            await client.aclose()
        await super().aclose(close_connection_pool)


class _AsyncPipeline(redis.asyncio.client.Pipeline):  # type: ignore[misc]
    command_stack: list[Any]

    def __init__(self, cluster: AsyncClusterClient, transaction: bool):
        super().__init__(
            cluster.connection_pool, cluster.response_callbacks, transaction, shard_hint=None
        )
        self._cluster = cluster

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands, self.command_stack = self.command_stack, []
        await self._cluster.refresh()
        slots = self._cluster.slots
        try:
            groups = by_node(slots, commands, self.is_transaction)
            parts = await asyncio.gather(
                *(
                    self._execute_on(node, [commands[at] for at in places], raise_on_error)
                    for node, places in groups.items()
                )
            )
        except (RedisError, OSError) as error:
            slots.note(error)
            raise
        replies: list[Any] = [None] * len(commands)
        for places, part in zip(groups.values(), parts, strict=True):
            for at, reply in zip(places, part, strict=True):
                slots.note(reply)
                replies[at] = reply
        return replies

    async def _execute_on(self, node: Node, commands: list[Any], raise_on_error: bool) -> list[Any]:
        async with self._cluster.node(node).pipeline(transaction=self.is_transaction) as pipe:
            pipe.command_stack = commands
            replies: list[Any] = await pipe.execute(raise_on_error)
            return replies
