"""Entries that need a commit of their own: commands of an alarm, deletions of models, baselines and imports.

Each depends on everything merged before it, so that it is not filled together with others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from calibrant.core.packing import PackingError
from calibrant_server.workers.alarm.alarm_commit import write_order
from calibrant_server.workers.ingest.commit_group import Item, release_reserved
from calibrant_server.workers.ingest.entries import (
    ALARM,
    BASELINE,
    CONTROL,
    EntryError,
    IngestEntry,
)
from calibrant_server.workers.ingest.orders import read_control
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.baselines import BaselineMaker, write_outcome
from calibrant_server.workers.lifecycle.housekeeping import Housekeeping
from calibrant_server.workers.lifecycle.transfer_import import ModelImport
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.transient_errors import NO_VERDICT

log = logging.getLogger(__name__)


class SoleEntries:
    """Applies and commits such entries of a partition.

    Parameters
    ----------
    look_up : reads the record and the model of entries
    forget : drops the cached panes, which such an entry may change in the store
    busy : reports progress
    """

    def __init__(
        self,
        store: Store,
        keys: PartitionKeys,
        fencing: FencingToken,
        numerics: Numerics,
        housekeeping: Housekeeping,
        *,
        look_up: Callable[[list[Item]], None],
        forget: Callable[[], None],
        busy: Callable[[], None],
    ) -> None:
        self._settings = store.settings
        self._node: Any = store.node(keys.partition)
        self.keys = keys
        self._fencing = fencing
        self._housekeeping = housekeeping
        self._look_up, self._forget, self._busy = look_up, forget, busy
        self._baselines = BaselineMaker(self._node, keys, fencing, numerics)
        self._import = ModelImport(self._node, keys, fencing, numerics, self._settings.sample_bytes)

    def commit(self, item: Item) -> None:
        """Apply an entry and commit it."""
        assert item.entry is not None
        token, commit = self._fencing.new_token(), Commit(self.keys)
        if item.entry.kind == ALARM:
            commit = self._ordered(item, item.entry, token)
            self._fencing.send(commit, token, item.id, 0, item.n_bytes)
            return
        self._forget()
        if item.entry.kind == CONTROL:
            self._control(item, item.entry, commit)
        else:
            self._apply_alone(item, commit, token)
            write_outcome(item, commit, self.keys, self._settings.idempotency_ttl_s)
        release_reserved(item, commit)
        self._fencing.send(commit, token, item.id, int(item.is_merged), item.n_bytes)

    def _control(self, item: Item, order: IngestEntry, commit: Commit) -> None:
        """Delete a model; any other operation becomes a dead letter and changes nothing."""
        try:
            read_control(order.payload)
        except EntryError as error:
            log.error("entry_dead_lettered entry_id=%s error=%s", item.id, error)
            item.dead_letter(str(error))
            commit.dead_letter(item.id, item.why)
            return
        self._housekeeping.remove_model(order, self._busy)

    def _apply_alone(self, item: Item, commit: Commit, token: bytes) -> None:
        self._look_up([item])
        entry = item.entry
        assert entry is not None
        if item.record is not None and item.record.is_final:
            item.status = None
        elif item.config is None or item.config.generation != entry.generation:
            item.reject("model_deleted", "the model was deleted after the batch was accepted")
        else:
            try:
                part = self._baselines if entry.kind == BASELINE else self._import
                part.apply(item, commit, token)
            except NO_VERDICT:
                raise
            except Exception as error:
                item.judge(error)

    def _ordered(self, item: Item, order: IngestEntry, token: bytes) -> Commit:
        """Return the commit of an order about an alarm; dead-letter an invalid order."""
        commit = Commit(self.keys)
        try:
            write_order(self._node, self.keys, order, commit, token)
        except (EntryError, PackingError) as error:
            log.error("entry_dead_lettered entry_id=%s error=%s", item.id, error)
            commit = Commit(self.keys)
            commit.dead_letter(item.id, str(error)[:500])
        return commit
