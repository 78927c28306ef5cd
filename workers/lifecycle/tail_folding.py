"""Rows of old time slices made into sums, before their panes are merged into days or moved to files.

One commit removes the rows of a time slice, writes every pane that they feed and adds them to the sample of their day. A kill
before or after it leaves nothing half done. Panes keep their versions, because their content is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.ingest.cached_pane import UnreadablePane
from calibrant_server.workers.ingest.pane_cache import PaneCache
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.state_cache import StateCache
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig

log = logging.getLogger(__name__)


class TailFolding:
    """Maker of sums of the rows of one partition's models."""

    def __init__(
        self, store: Store, keys: PartitionKeys, fencing: FencingToken, numerics: Numerics
    ):
        self._keys = keys
        self._fencing = fencing
        self._cache = PaneCache(store, keys, numerics, StateCache(0))

    def fold(
        self, config: ModelConfig, starts: list[int], progress: Callable[[], None]
    ) -> tuple[int, int | None]:
        """Make sums of the rows of time slices; return the number of time slices that had rows.

        Returns
        -------
        number of time slices whose rows became sums; start of the first one that is damaged, which ends the work, or None
        """
        n_folded = 0
        self._cache.forget()
        for start in starts:
            progress()
            try:
                n_folded += self._fold(config, start)
            except UnreadablePane:
                log.exception("rows_not_folded model=%s start_s=%d", config.key, start)
                return n_folded, start
        return n_folded, None

    def _fold(self, config: ModelConfig, start_s: int) -> bool:
        key = PaneKey(config.key, config.generation, ALL_ROWS, start_s)
        self._cache.fetch((), [key], {(config.key, config.generation): config})
        if not self._cache.fold(key, config):
            return False
        token, commit = self._fencing.new_token(), Commit(self._keys)
        self._cache.write(commit, token)
        self._fencing.send(commit, token)
        self._cache.trim()
        return True
