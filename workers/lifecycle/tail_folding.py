"""Rows of old time slices made into sums, before their panes are merged into days.

One commit removes the rows of a time slice, writes every pane that they feed and adds them to the sample of their day. A kill
before or after it leaves nothing half done. Panes keep their versions, because their content is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from calibrant.accumulators.sample import MAX_PANE_BYTES
from calibrant.core.packing import PackingError
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import SampleCache, SampleKey
from calibrant_server.workers.ingest.stored_panes import divided, read_rows
from calibrant_server.workers.segments.sampled import sampled
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.keys import PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import day_of

log = logging.getLogger(__name__)


class TailFolding:
    """Maker of sums of the rows of one partition's models."""

    def __init__(
        self,
        node: Any,
        keys: PartitionKeys,
        fencing: FencingToken,
        numerics: Numerics,
        sample_bytes: int = MAX_PANE_BYTES,
    ):
        self._node = node
        self._keys = keys
        self._fencing = fencing
        self._numerics = numerics
        self._sample_bytes = sample_bytes

    def fold(
        self, config: ModelConfig, starts: list[int], progress: Callable[[], None]
    ) -> tuple[int, int | None]:
        """Make sums of the rows of time slices; return the number of time slices that had rows.

        Returns
        -------
        number of time slices whose rows became sums; start of the first one that is damaged, which ends the work, or None
        """
        n_folded = 0
        for start in starts:
            progress()
            try:
                n_folded += self._fold(config, start)
            except PackingError:
                log.exception("rows_not_folded model=%s start_s=%d", config.key, start)
                return n_folded, start
        return n_folded, None

    def _fold(self, config: ModelConfig, start_s: int) -> bool:
        model = (config.key, config.generation)
        tail = self._keys.tail(PaneKey(*model, "", start_s))
        rows = read_rows(self._numerics, self._node.hgetall(tail))
        if rows is None:
            return False
        spec = self._numerics.spec(config)
        token, commit = self._fencing.new_token(), Commit(self._keys)
        commit.unlink(tail)
        for slice_ in sorted(rows.n_by_slice):
            versions = self._keys.versions(*model, slice_)
            if not self._node.hexists(versions, str(start_s)):
                continue  # removed past its retention, before the pane of all rows: no list would name it any more
            name = self._keys.pane(PaneKey(*model, slice_, start_s))
            stored = divided(self._node.hgetall(name))[0]
            pane = self._numerics.of_parts(spec, stored)
            rows.fill_into(pane, slice_, lambda: self._numerics.empty(spec))
            parts = pane.parts()
            changed = {part: data for part, data in parts.items() if stored.get(part) != data}
            gone = [part for part in stored if part not in parts]
            if changed:
                commit.set_fields(name, changed)
            if gone:
                commit.drop_fields(name, gone)
        if self._numerics.keeps_samples and self._sample_bytes:
            samples = SampleCache(self._node, self._keys, self._sample_bytes)
            sample = samples[SampleKey(*model, day_of(start_s))]
            sample.add(sampled(rows.net, start_s, sample.halvings))
            samples.commit_with(commit, token)
        self._fencing.send(commit, token)
        return True
