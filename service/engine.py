"""The engine in the HTTP service: its settings, its two objects, models by their id, and the processes that have it.

Without a Redis URL, the private store and the engine's threads run in this process. With one, this process
only appends batches and sends queries, and workers run as separate processes.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray, RawValue

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
from calibrant_server.workers.store.store_of_settings import running_store_of


class Board:
    """Flags of the processes that run, and the number of restarts; nothing is locked, and a process may be killed at any time.

    Make it before the processes are forked.

    Parameters
    ----------
    n : processes that serve
    n_engine : processes that have the engine, of the numbers from n on
    """

    def __init__(self, n: int, n_engine: int = 0) -> None:
        self.n = n
        self._runs = RawArray("b", n + n_engine)
        self._n_restarts = RawValue("l")

    def runs(self, number: int) -> bool:
        """Return whether the process of this number has started, and was not seen to end."""
        return bool(self._runs[number])

    def note(self, number: int, runs: bool = True) -> None:
        """Note that a process runs, which it reports itself, or has ended."""
        self._runs[number] = runs

    def count_restart(self) -> None:
        """Count a restart; the parent does."""
        self._n_restarts.value += 1

    @property
    def is_engine_alive(self) -> bool:
        """Whether the processes of the engine run, if this service has them."""
        return all(self._runs[self.n :])

    @property
    def n_alive(self) -> int:
        """Number of processes that serve."""
        return sum(self._runs[: self.n])

    @property
    def n_restarts(self) -> int:
        """Restarts since the start of the parent."""
        return int(self._n_restarts.value)


@dataclass(frozen=True)
class Connection:
    """The parts of the engine that routes need."""

    inbox: Inbox
    registry: Registry
    engine: Engine | None = None
    board: Board | None = None

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
        if self.board is not None and not self.board.is_engine_alive:
            raise StoreUnavailable("The engine of this service has stopped, and is restarted.")
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
async def connected(settings: Settings, board: Board | None = None) -> AsyncIterator[Connection]:
    """Connect to the store, or start it with the engine; disconnect at the end.

    Parameters
    ----------
    board : of the processes of this service; the engine then runs in another process than this one
    """
    of_engine = engine_settings(settings)
    if board is not None:
        of_engine = running_store_of(of_engine)
    async with Engine(of_engine, works_here=None if board is None else False) as engine:
        yield Connection(engine.inbox, engine.registry, engine, board)


async def model_of(connection: Connection, caller: Caller, model: str) -> ModelConfig:
    """Return the caller's model; one of another tenant, outside the key's models, or half imported is unknown."""
    if not caller.may_use(model):
        raise ModelUnknown(f"There is no model {model!r} among the models of your key.")
    try:
        config = await connection.registry.get(caller.tenant, model)
    except HalfImported as error:
        raise ModelUnknown(ImportUnfinished.message()) from error
    if config is None:
        raise ModelUnknown(f"There is no model {model!r} among the models of your key.")
    return config
