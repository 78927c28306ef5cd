"""`python -m workers.health`: state of this machine's workers and of the backlog.

Print one line of JSON. Exit with 0 if a worker of this machine (this container) reached the store lately, no entry is
parked, and no damaged pane keeps a cohort from being sealed; else with 1. It is the health check of a container and a
report for operators.
"""

from __future__ import annotations

import json
import socket
import sys
from contextlib import closing
from dataclasses import asdict, dataclass

from redis.exceptions import RedisError

from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.connection import Store, StoreMismatch


@dataclass(frozen=True)
class Health:
    """State of the workers in the store; sums are over all partitions."""

    workers: int  # alive, on any machine
    workers_here: int
    backlog_entries: int
    backlog_bytes: int
    dead_letters: int
    parked_entries: int
    unsealed_models: int

    @property
    def is_red(self) -> bool:
        """Whether no worker is alive here, or data wait for an operator."""
        return not self.workers_here or self.parked_entries > 0 or self.unsealed_models > 0


def read_health(store: Store, host: str) -> Health:
    """Read the health from the store.

    Parameters
    ----------
    store : of the deployment
    host : the machine's name, as in the heartbeats of its workers
    """
    now = store.client.time()[0]
    since = now - 2 * store.settings.lease_s
    names = store.client.zrangebyscore(store.keys.workers, since, "+inf")
    here = [name for name in names if name.decode().startswith(f"{host}:")]
    sums = [_partition(store, number) for number in range(store.settings.partitions)]
    return Health(len(names), len(here), *(sum(column) for column in zip(*sums, strict=True)))


def _partition(store: Store, number: int) -> tuple[int, int, int, int, int]:
    """Return waiting entries and bytes, dead letters, parked entries, models with a cohort that cannot be sealed."""
    keys = store.keys.partition(number)
    with store.node(number).pipeline(transaction=False) as pipe:
        pipe.xlen(keys.stream)
        pipe.get(keys.bytes_in)
        pipe.hget(keys.cursor, "out")
        pipe.xlen(keys.dead_letters)
        pipe.xlen(keys.parked)
        pipe.hlen(keys.unsealable)
        entries, taken_in, merged, dead, parked, unsealed = pipe.execute()
    return entries, max(0, int(taken_in or 0) - int(merged or 0)), dead, parked, unsealed


def main() -> int:
    """Print the health; exit with 0 or 1."""
    try:
        with closing(Store(EngineSettings())) as store:
            health = read_health(store, socket.gethostname())
    except (RedisError, SettingsError, StoreMismatch) as error:
        print(json.dumps({"error": str(error)}))
        return 1
    print(json.dumps(asdict(health)))
    return 1 if health.is_red else 0


if __name__ == "__main__":
    sys.exit(main())
