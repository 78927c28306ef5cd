"""`python -m workers.health`: state of this machine's workers and of the backlog.

Print one line of JSON. Exit with 0 if a worker of this machine (this container) reached the store lately, each backlog
advances, the store takes batches, no entry is parked, no damaged pane keeps a cohort from being sealed, and the files of old
days can be read; else with 1.
It is the health check of a container and a report for operators.

`python -m workers.health --here` exits with 0 if a worker of this machine reached the store lately, whatever else the report says: the
readiness of a worker during a rolling update.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace

from redis.exceptions import OutOfMemoryError, RedisError

from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.file_store import problem
from calibrant_server.workers.store.partition_state import PartitionState, Troubles, names_of
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.server_files import EmbeddedServerError
from calibrant_server.workers.store.store_of_settings import (
    running_store_of,
    with_partitions_of_store,
)


@dataclass(frozen=True)
class Health(Troubles):
    """State of the workers in the store; dead letters and partitions without a worker are reported, but no reason to fail.

    Attributes
    ----------
    workers_here : alive on this machine
    store_full : whether the store's memory is full, so that batches are rejected
    files : why the files of old days cannot be read or written; None if they can, or if there are none
    """

    workers_here: int = 0
    store_full: bool = False
    files: str | None = None

    @property
    def is_red(self) -> bool:
        """Whether no worker is alive here, work does not advance, or data wait for an operator."""
        waiting = self.parked_entries + self.unsealed_models + self.stalled_partitions
        return not self.workers_here or waiting > 0 or self.store_full or self.files is not None


def read_health(store: Store, host: str) -> Health:
    """Read the health from the store.

    Parameters
    ----------
    store : of the deployment
    host : the machine's name, as in the heartbeats of its workers
    """
    names = live_workers(store)
    states = [_state(store, number) for number in range(store.settings.partitions)]
    files = _files_problem(store)
    sums = Troubles.of(states, set(names), store.settings.lease_s)
    return Health(
        **vars(replace(sums, files_unavailable=files is not None)),
        workers_here=sum(name.startswith(f"{host}:") for name in names),
        store_full=_is_full(store),
        files=files,
    )


def _files_problem(store: Store) -> str | None:
    files = store.keys.files
    known = store.client.get(store.keys.files_owner)
    return problem(None if files is None else files.place, known)


def live_workers(store: Store) -> list[str]:
    """Return the workers with a heartbeat in the last two leases; one in the future says nothing."""
    now, lease_s = store.client.time()[0], store.settings.lease_s
    found = store.client.zrangebyscore(store.keys.workers, now - 2 * lease_s, now + lease_s)
    return [name.decode() for name in found]


def _state(store: Store, number: int) -> PartitionState:
    names = names_of(store.keys.partition(number))
    return PartitionState.of(store.run(number, "partition_state", names))


def _is_full(store: Store) -> bool:
    try:
        store.run(0, "probe", [store.keys.partition(0).stream])
    except OutOfMemoryError:
        return True
    return False


def main(arguments: Sequence[str] = ()) -> int:
    """Print the health; exit with 0 or 1."""
    parser = argparse.ArgumentParser(prog="workers.health", description="Print the health.")
    parser.add_argument("--here", action="store_true", help="fail only without a worker here")
    only_here = parser.parse_args(arguments).here
    try:
        settings = with_partitions_of_store(running_store_of(EngineSettings()))
        with closing(Store(settings)) as store:
            store.check_properties()
            health = read_health(store, socket.gethostname())
    except (RedisError, SettingsError, StoreMismatch, EmbeddedServerError) as error:
        print(json.dumps({"error": str(error)}))
        return 1
    print(json.dumps(asdict(health)))
    if only_here:
        return 0 if health.workers_here else 1
    return 1 if health.is_red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
