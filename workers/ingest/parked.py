"""Command for entries that were not merged: `python -m workers.ingest.parked`.

`list` prints one line of JSON per dead letter and parked entry. `replay ID ...` moves entries back to the end of their
streams, `discard ID ...` removes them permanently. `--all` means every parked entry. `GET /v1/models/{model}/dead-letters`
and its neighbours do the same for the entries of one model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict

from redis.exceptions import RedisError

from calibrant_server.workers.ingest.dead_letters import (
    PARKED,
    Action,
    DeadLetter,
    dead_letters,
    discard,
    replay,
)
from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.server_files import EmbeddedServerError
from calibrant_server.workers.store.store_of_settings import store_of, with_partitions_of_store

ACTIONS: dict[str, tuple[Action, str]] = {
    "replay": (replay, "replayed"),
    "discard": (discard, "discarded"),
}


def all_letters(store: Store) -> Iterator[DeadLetter]:
    """Yield the entries that were not merged, by partition."""
    for number in range(store.settings.partitions):
        yield from dead_letters(store, number)


def main(arguments: Sequence[str] | None = None) -> int:
    """List, replay or discard entries; exit with 1 if a named entry is not there."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.ingest.parked",
        description="List, replay or discard entries that were not merged.",
    )
    parser.add_argument("what", nargs="?", choices=("list", *ACTIONS), default="list")
    parser.add_argument("ids", nargs="*", metavar="ID", help="as listed")
    parser.add_argument("--all", action="store_true", help="every parked entry")
    given = parser.parse_args(arguments)
    if given.what != "list" and bool(given.ids) == given.all:
        parser.error(f"{given.what} takes ids, or --all")
    try:
        with (
            store_of(EngineSettings()) as stored,
            closing(Store(with_partitions_of_store(stored))) as store,
        ):
            store.fix_properties()
            return _listed(store) if given.what == "list" else _done(store, given.what, given.ids)
    except (RedisError, SettingsError, StoreMismatch, EmbeddedServerError) as error:
        print(json.dumps({"error": str(error)}))
        return 1


def _listed(store: Store) -> int:
    for each in all_letters(store):
        print(json.dumps({"id": _name(each), **asdict(each)}))
    return 0


def _name(letter: DeadLetter) -> str:
    return f"{letter.partition}:{letter.id}"


def _done(store: Store, what: str, ids: Sequence[str]) -> int:
    action, verb = ACTIONS[what]
    names = ids or [_name(each) for each in all_letters(store) if each.state == PARKED]
    n_missing = 0
    for name in names:
        partition, _, letter = name.partition(":")
        known = partition.isdecimal() and int(partition) < store.settings.partitions
        done = known and action(store, int(partition), letter)
        n_missing += not done
        print(json.dumps({"id": name, verb: done}))
    return min(n_missing, 1)


if __name__ == "__main__":
    sys.exit(main())
