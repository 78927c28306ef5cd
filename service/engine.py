"""The engine in the HTTP service: its settings, its two objects, and models by their id.

Without a Redis URL, the private store and the engine's threads run in this process. With one, this process
only appends batches and sends queries, and workers run as separate processes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from calibrant_server.service.http.problems import (
    ImportUnfinished,
    ModelUnknown,
    StoreUnavailable,
)
from calibrant_server.service.security.keys import Caller
from calibrant_server.service.settings import Settings
from calibrant_server.workers.engine import Engine
from calibrant_server.workers.ingest.inbox import Inbox
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.registry import HalfImported, Registry


@dataclass(frozen=True)
class Connection:
    """The parts of the engine that routes need."""

    inbox: Inbox
    registry: Registry
    engine: Engine | None = None

    async def check(self) -> bool:
        """Return whether the store's memory is full: it then takes no batch, and serves reads and deletions.

        Raises
        ------
        StoreUnavailable
            The store takes no writes, or this process should merge and does not.
        """
        is_full = not await self.inbox.check_writable()
        if self.engine is not None and not self.engine.is_alive:
            raise StoreUnavailable("The engine of this process has stopped.")
        return is_full


def engine_settings(settings: Settings) -> EngineSettings:
    """Return the engine's settings, equal to the HTTP service's if both have them."""
    return EngineSettings(
        redis_url=settings.redis_url,
        data_dir=settings.data_dir,
        create_models=settings.create_models,
        webhook_networks=settings.webhook_networks,
    )


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Connection]:
    """Connect to the store, or start it with the engine; disconnect at the end."""
    async with Engine(engine_settings(settings)) as engine:
        yield Connection(engine.inbox, engine.registry, engine)


async def model_of(connection: Connection, caller: Caller, model: str) -> ModelConfig:
    """Return the caller's model; one of another tenant, outside the key's models, or half imported is unknown."""
    if not caller.may_use(model):
        raise caller.unknown(model)
    try:
        config = await connection.registry.get(caller.tenant, model)
    except HalfImported as error:
        raise ModelUnknown(ImportUnfinished.message()) from error
    if config is None:
        mine = await connection.registry.list(caller.tenant)
        raise caller.unknown(model, [each.model for each in mine if caller.may_use(each.model)])
    return config
