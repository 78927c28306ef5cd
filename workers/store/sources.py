"""Sources of a model: the number after the last message that was accepted of each.

`scripts/append_group.lua` moves a watermark in the step that appends the batch, and compares the offsets of later batches with it.
"""

from __future__ import annotations

from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.script import StorePart


class Sources(StorePart):
    """The sources of a store, for the event loop."""

    async def watermark(self, config: ModelConfig, name: str) -> int | None:
        """Return the number after the last accepted message of a source; None before its first batch.

        Raises
        ------
        StoreUnavailableError
        """
        marks = self._keys.of(config).marks(config.key, config.generation)
        found = await self._retried(lambda: self._client.hget(marks, f"source:{name}"))
        return None if found is None else int(found)
