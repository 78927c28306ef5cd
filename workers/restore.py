"""`python -m workers.restore FILE`: make the embedded store from a snapshot.

FILE is a `dump.rdb`, as `BGSAVE` writes it. The store is built in a directory of its own and put in place by one rename:
a restore that is interrupted leaves no store, and is run again. An existing store is never replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from redis.exceptions import RedisError

from calibrant_server.workers.settings import EngineSettings, SettingsError
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.properties import StoreMismatch
from calibrant_server.workers.store.server_files import APPEND_ONLY, SNAPSHOT, EmbeddedServerError
from calibrant_server.workers.store.store_of_settings import with_partitions_of_store

_POLL_S = 0.05


def restore(file: Path, settings: EngineSettings) -> int:
    """Make the store of the data directory from a snapshot; return its number of models.

    Raises
    ------
    EmbeddedServerError
        There is a store already, or the file cannot be loaded.
    StoreMismatch
        The snapshot was written with other fixed settings, or by another version.
    """
    _check(file, settings)
    target = settings.store_dir
    draft = target.with_name(f"{target.name}.restoring")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True, mode=0o700)
    try:
        shutil.copyfile(file, draft / SNAPSHOT)
        n_models = _loaded(draft, settings)
        target.mkdir(mode=0o700, exist_ok=True)
        os.rename(draft / APPEND_ONLY, target / APPEND_ONLY)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return n_models


def _check(file: Path, settings: EngineSettings) -> None:
    if settings.redis_url is not None:
        raise EmbeddedServerError(
            "CALIBRANT_REDIS_URL is set: this command restores the embedded store only; docs/operations.md "
            "describes the restore of another server"
        )
    if not file.is_file():
        raise EmbeddedServerError(f"there is no file {file}")
    if (settings.store_dir / APPEND_ONLY).exists():
        raise EmbeddedServerError(
            f"{settings.store_dir} has a store, which is not replaced: stop the service, and move the directory away "
            "or set CALIBRANT_DATA_DIR to another one"
        )


def _loaded(directory: Path, settings: EngineSettings) -> int:
    """Load the snapshot of a directory and write it as an append-only file; return the number of models."""
    server = EmbeddedServer(directory, "fsync", settings.server_binary, loads_snapshot=True)
    try:
        stored = with_partitions_of_store(settings.with_url(server.start()))
        with closing(Store(stored)) as store:
            store.check_properties()
            store.client.config_set("appendonly", "yes")
            while _is_rewriting(store):
                time.sleep(_POLL_S)
            if store.client.info("persistence")["aof_last_bgrewrite_status"] != "ok":
                raise EmbeddedServerError("the append-only file could not be written")
            return sum(
                store.node(number).hlen(store.keys.partition(number).models)
                for number in range(stored.partitions)
            )
    finally:
        server.stop()


def _is_rewriting(store: Store) -> bool:
    found = store.client.info("persistence")
    return bool(found["aof_rewrite_in_progress"] or found.get("aof_rewrite_scheduled"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Restore a snapshot; exit with 1 if that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.restore", description="Make the embedded store from a snapshot."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a dump.rdb")
    given = parser.parse_args(arguments)
    try:
        settings = EngineSettings()
        n_models = restore(given.file, settings)
    except (RedisError, SettingsError, StoreMismatch, EmbeddedServerError, OSError) as error:
        print(json.dumps({"error": str(error)}))
        return 1
    print(json.dumps({"restored": str(settings.store_dir), "models": n_models}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
