"""The store that settings name: an address, or the embedded server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.embedded import EmbeddedServer
from calibrant_server.workers.store.server_files import EmbeddedServerError

log = logging.getLogger(__name__)


@contextmanager
def store_of(settings: EngineSettings) -> Iterator[EngineSettings]:
    """Provide settings with a store: the operator's, or the embedded server of the data directory while in use."""
    if settings.redis_url is not None:
        yield settings
        return
    server = EmbeddedServer(
        settings.store_dir,
        settings.durability,
        settings.server_binary,
        settings.server_memory_bytes,
    )
    try:
        yield settings.with_url(server.start())
    finally:
        server.stop()


def running_store_of(settings: EngineSettings) -> EngineSettings:
    """Return settings with a store that runs: the operator's, or the embedded server if a process uses it now.

    Raises
    ------
    EmbeddedServerError
        No embedded server runs on the data directory; none is started.
    """
    if settings.redis_url is not None:
        return settings
    server = EmbeddedServer(settings.store_dir)
    if not server.is_running:
        raise EmbeddedServerError(
            f"no server responds in {settings.store_dir}: start the service, or set CALIBRANT_REDIS_URL"
        )
    return settings.with_url(server.url)


def with_partitions_of_store(settings: EngineSettings) -> EngineSettings:
    """Return settings with the number of partitions that the store was made with; a setting that differs is reported.

    Raises
    ------
    StoreMismatch
        The store is a cluster and the URL is not that of one, or the reverse.
    RedisError
        The store cannot be reached.
    """
    with closing(Store(settings)) as store:
        found = store.n_partitions()
    if found is None or found == settings.partitions:
        return settings
    log.warning("partitions_are_those_of_the_store n=%d setting=%d", found, settings.partitions)
    return settings.replace(partitions=found)
