"""`python -m workers.health`: do the workers of this machine live, and how far behind is everybody?

Prints one line of JSON. Ends with 0 when a worker of this machine (this container) has reached the store lately and no
entry is parked and no damaged pane keeps a cohort from being sealed, else with 1: the health check of a container, and
a look for an operator.
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
    """What the store tells of the workers; sums are over all partitions."""

    workers: int  # that live, anywhere
    workers_here: int
    backlog_entries: int
    backlog_bytes: int
    dead_letters: int
    parked_entries: int
    unsealed_models: int

    @property
    def is_red(self) -> bool:
        """Whether no worker lives here, or data waits for an operator."""
        return not self.workers_here or self.parked_entries > 0 or self.unsealed_models > 0


def read_health(store: Store, host: str) -> Health:
    """Ask the store.

    Parameters
    ----------
    store : of the deployment
    host : the machine's name, with which its workers sign their heartbeat
    """
    now = store.client.time()[0]
    since = now - 2 * store.settings.lease_s
    names = store.client.zrangebyscore(store.keys.workers, since, "+inf")
    here = [name for name in names if name.decode().startswith(f"{host}:")]
    sums = [_partition(store, number) for number in range(store.settings.partitions)]
    return Health(len(names), len(here), *(sum(column) for column in zip(*sums, strict=True)))


def _partition(store: Store, number: int) -> tuple[int, int, int, int, int]:
    """Entries and bytes that wait, dead letters, parked entries, models with a cohort that cannot be sealed."""
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
    """Print the health, end with 0 or 1."""
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
