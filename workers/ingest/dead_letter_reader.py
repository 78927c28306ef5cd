"""Dead letters and parked entries of one model, for the HTTP service.

Requests are rare and belong to operators. So they use a blocking client in a thread, and the same code as the command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from calibrant_server.workers.ingest import dead_letters
from calibrant_server.workers.ingest.dead_letters import DeadLetter
from calibrant_server.workers.settings import EngineSettings
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.model_config import ModelConfig

Action = Callable[[Store, int, str], bool]


class DeadLetterReader:
    """Entries of models that were not merged; `store_retries` repeats a call after transient errors."""

    def __init__(self, settings: EngineSettings, store_retries: Callable[..., Awaitable[Any]]):
        self._settings = settings
        self._retried = store_retries
        self._opened: Store | None = None

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()

    async def of_model(self, config: ModelConfig) -> list[DeadLetter]:
        """Return the entries of a model, oldest first."""

        def read() -> list[DeadLetter]:
            partition = self._store.keys.partition_of(config.key)
            found = dead_letters.dead_letters(self._store, partition)
            mine = [each for each in found if _is_of(each, config)]
            return sorted(mine, key=lambda each: (each.at_ms, each.id))

        return list(await self._retried(lambda: asyncio.to_thread(read)))

    async def replay(self, config: ModelConfig, name: str) -> bool:
        """Move an entry of a model back to its stream; return False if the model has no such entry."""
        return await self._act(dead_letters.replay, config, name)

    async def discard(self, config: ModelConfig, name: str) -> bool:
        """Discard an entry of a model permanently; return False if the model has no such entry."""
        return await self._act(dead_letters.discard, config, name)

    async def _act(self, action: Action, config: ModelConfig, name: str) -> bool:
        def act() -> bool:
            partition = self._store.keys.partition_of(config.key)
            letter = dead_letters.find(self._store, partition, name)
            is_mine = letter is not None and _is_of(letter, config)
            return is_mine and action(self._store, partition, name)

        # A repeat after a lost reply finds the entry gone: the caller learns that it is not there any more.
        return bool(await self._retried(lambda: asyncio.to_thread(act), writes=True))

    @property
    def _store(self) -> Store:
        if self._opened is None:
            self._opened = Store(self._settings)
        return self._opened


def _is_of(letter: DeadLetter, config: ModelConfig) -> bool:
    return (letter.model, letter.generation) == (config.key, config.generation)
