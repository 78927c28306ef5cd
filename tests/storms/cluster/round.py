"""One storm on a cluster: two services, three workers, faults of nodes, processes and the network, slots that move."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from calibrant_server.workers.store.key_names import Keys
from tests.end_to_end.deployment import Deployment
from tests.stores import SERVERS, slow_disk
from tests.storms.cluster.ledger import LedgerSender, end_and_look_up
from tests.storms.cluster.mutants import NO_WAIT, target_with
from tests.storms.cluster.network import Network, free_number, reason_to_skip
from tests.storms.cluster.new_models import NewModels
from tests.storms.cluster.node_faults import DOUBLE_FAULTS, FAULTS, FAULTS_OF_THE_NETWORK
from tests.storms.cluster.nodes import ShardedCluster
from tests.storms.cluster.reshard import PARTITIONS, Resharder
from tests.storms.cluster.shard_faults import FaultyShard
from tests.storms.faults import FaultyProcess
from tests.storms.rounds import (
    SENDERS,
    SETTINGS,
    Outcome,
    Senders,
    acknowledged_by_kind,
    end_and_compare,
    end_faults,
    senders_of,
    shuffled_faults,
)

N_SERVICES, N_WORKERS = 2, 3
# Of services and workers, during the faults of nodes; a stop that outlasts a worker's lease (4 s).
PAUSE_OF_PROCESSES_S = (3.0, 10.0)
STOP_S = 6.0
SLOW_FSYNC_US = 1_500_000
LEDGER = {"batches": LedgerSender}


@dataclass(frozen=True)
class Plan:
    """What a round does.

    Parameters
    ----------
    durability : of the service; with `replicated`, masters have `min-replicas-to-write 1`
    n_faults : of the nodes of each shard
    kills : of each service and worker; it also has a stop
    is_double : kill a master and its replica together, instead of single faults
    has_slow_disk : fdatasync of the nodes takes 1.5 s
    mutants : guards that the processes lack
    only : the kinds of node faults; default: all that can run here
    reshards : whether slots move
    changes : whether models are created, if none of their batches may be lost
    """

    durability: str = "replicated"
    n_faults: int = 4
    kills: int = 2
    is_double: bool = False
    has_slow_disk: bool = False
    mutants: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    reshards: bool = True
    changes: bool = True

    @property
    def may_lose(self) -> bool:
        """Whether batches may be lost that were acknowledged: each is then looked up."""
        return self.durability != "replicated" or self.is_double or NO_WAIT in self.mutants


@dataclass
class ClusterOutcome(Outcome):
    """Numbers of one storm on a cluster.

    Attributes
    ----------
    failovers : promotions of replicas
    lost_batches : batches that were acknowledged and are unknown; only looked up if the plan may lose some
    moved_slots : slots that moved, with the partitions in them
    new_models : created during the faults
    minority_accepted_s : how long masters without the other nodes accepted writes at most
    minority_rejected_with : the codes with which they rejected them afterwards
    skipped : faults that cannot run here, and why
    """

    mutants: list[str] = field(default_factory=list)
    failovers: int = 0
    lost_batches: int = 0
    moves: int = 0
    moved_slots: int = 0
    new_models: int = 0
    minority_accepted_s: float = 0.0
    minority_rejected_with: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def cluster_storm(plan: Plan, seed: int, directory: Path) -> ClusterOutcome:
    """Send while nodes, services and workers have faults, then compare."""
    started = time.monotonic()
    name = "cluster, double faults" if plan.is_double else "cluster"
    name += ", slow disk" if plan.has_slow_disk else ""
    outcome = ClusterOutcome(name, plan.durability, seed, mutants=list(plan.mutants))
    with _deployment(plan, directory) as (deployment, cluster):
        senders = _senders(plan, deployment, cluster, seed)
        shards = _faulty_shards(plan, cluster, seed, outcome)
        processes = _faulty_processes(plan, deployment, seed)
        resharder = Resharder(cluster, random.Random(f"{seed} moves"))
        creator = _creator(deployment, seed)
        movers: list[Resharder | NewModels] = [resharder] if plan.reshards else []
        movers += [creator] if plan.changes and not plan.may_lose else []
        for thread in (*shards, *processes, *movers, *(sender for _, sender in senders)):
            thread.start()
        try:
            for shard in shards:
                shard.join()
            for each in movers:
                each.may_end.set()
            for each in movers:
                each.join()
            for process in processes:
                process.is_done.wait()
            _note_faults(shards, resharder, outcome)
            _note_changes(creator, outcome)
            senders = [*senders, *creator.senders.items()]
            if plan.may_lose:
                outcome.lost_batches = end_and_look_up(deployment, senders, outcome)
            else:
                end_and_compare(deployment, senders, outcome)
        finally:
            end_faults(processes, outcome)
    outcome.acknowledged = acknowledged_by_kind(senders)
    outcome.seconds = round(time.monotonic() - started, 1)
    return outcome


@contextmanager
def _deployment(plan: Plan, directory: Path) -> Iterator[tuple[Deployment, ShardedCluster]]:
    network = None if reason_to_skip() else Network(free_number(), 6)
    needed = "1" if plan.durability == "replicated" else "0"
    fsync = "always" if plan.durability == "fsync" else "everysec"
    options = {"min_replicas_to_write": needed, "appendfsync": fsync}
    binary = SERVERS["redis-server"] or SERVERS["embedded"] or ""
    cluster = ShardedCluster(binary, directory / "nodes", network, **options)
    if plan.has_slow_disk:
        directory.mkdir(exist_ok=True)
        for node in cluster.nodes:
            node.environment = slow_disk(directory, SLOW_FSYNC_US)
    deployment = Deployment(
        directory, N_WORKERS, cluster, N_SERVICES,
        CALIBRANT_DURABILITY=plan.durability, CALIBRANT_SOCKET_TIMEOUT="2.5",
        CALIBRANT_PARTITIONS=str(PARTITIONS),
    )  # fmt: skip
    deployment.target = target_with(plan.mutants)
    try:
        with deployment:
            yield deployment, cluster
    finally:
        with suppress(Exception):
            cluster.close()


def _senders(plan: Plan, deployment: Deployment, cluster: ShardedCluster, seed: int) -> Senders:
    """Return senders of each kind to a model on each shard."""
    kinds = LEDGER if plan.may_lose else SENDERS
    models = {
        name: kind for kind in kinds for name in _one_per_shard(kind, cluster) if kind in SETTINGS
    }
    return senders_of(deployment, models, seed, kinds, n_each=2 if plan.may_lose else 1)


def _creator(deployment: Deployment, seed: int) -> NewModels:
    """Return who creates models."""
    kinds = {kind: SENDERS[kind] for kind in ("batches", "repeats", "labels")}
    return NewModels(list(deployment.ports.values()), kinds, seed)


def _one_per_shard(kind: str, cluster: ShardedCluster) -> list[str]:
    keys, found = Keys("calibrant", PARTITIONS), dict[int, str]()
    for number in itertools.count():
        name = f"{kind}{number}"
        home = keys.of_model(f"default/{name}")
        shard = cluster.shard_of(home.stream)
        if shard.number not in found:
            found[shard.number] = name
        if len(found) == len(cluster.shards):
            return list(found.values())
    raise AssertionError


def _faulty_shards(
    plan: Plan, cluster: ShardedCluster, seed: int, outcome: ClusterOutcome
) -> list[FaultyShard]:
    reason = reason_to_skip()
    faults = dict(DOUBLE_FAULTS) if plan.is_double else FAULTS | FAULTS_OF_THE_NETWORK
    if plan.only:
        faults = {name: faults[name] for name in plan.only}
    if reason:
        outcome.skipped = {name: reason for name in faults if name in FAULTS_OF_THE_NETWORK}
        faults = {name: fault for name, fault in faults.items() if name not in outcome.skipped}
    return [
        FaultyShard(cluster, shard, faults, plan.n_faults, random.Random(f"{seed} {shard.number}"))
        for shard in cluster.shards
    ]


def _faulty_processes(plan: Plan, deployment: Deployment, seed: int) -> list[FaultyProcess]:
    return [
        FaultyProcess(
            deployment, name,
            *shuffled_faults(f"{seed} cluster {name}", plan.kills, [STOP_S] if plan.kills else []),
            PAUSE_OF_PROCESSES_S,
        )
        for name in deployment.processes
    ]  # fmt: skip


def _note_faults(shards: list[FaultyShard], resharder: Resharder, outcome: ClusterOutcome) -> None:
    inflicted = sum((shard.inflicted for shard in shards), Counter[str]())
    outcome.faults |= dict(sorted(inflicted.items()))
    outcome.failovers = sum(shard.n_failovers for shard in shards)
    outcome.moves, outcome.moved_slots = resharder.n_moves, resharder.n_slots
    outcome.minority_accepted_s = max(
        (each for shard in shards for each in shard.place.accepted_s), default=0.0
    )
    rejected = set[str]().union(*(shard.place.rejected_with for shard in shards))
    outcome.minority_rejected_with = sorted(rejected)
    for shard in shards:
        if shard.error:
            outcome.errors.append(f"shard {shard.shard.number}: {shard.error!r}")
    if resharder.error:
        outcome.errors.append(f"moves of slots: {resharder.error!r}")


def _note_changes(creator: NewModels, outcome: ClusterOutcome) -> None:
    outcome.new_models = len(creator.senders)
    if creator.error:
        outcome.errors.append(f"new models: {creator.error!r}")
