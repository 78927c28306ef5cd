"""Entries that need a commit of their own: commands of an alarm, deletions of models, baselines and imports.

Each depends on everything merged before it, so that it is not filled together with others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from calibrant.core.packing import PackingError
from calibrant_server.workers.alarm.alarm_commit import write_order
from calibrant_server.workers.ingest.commit_group import Item
from calibrant_server.workers.ingest.entries import (
    ALARM,
    BASELINE,
    CONTROL,
    ORDERS,
    RESTORE,
    EntryError,
    IngestEntry,
)
from calibrant_server.workers.ingest.orders import read_control
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.lifecycle.baselines import BaselineMaker
from calibrant_server.workers.lifecycle.housekeeping import Housekeeping
from calibrant_server.workers.lifecycle.transfer_import import ModelImport
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.connection import Store
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.transient_errors import NO_VERDICT


class SoleEntries:
    """Applies such entries of a partition.

    Parameters
    ----------
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
        forget: Callable[[], None],
        busy: Callable[[], None],
    ) -> None:
        self._node: Any = store.node(keys.partition)
        self.keys = keys
        self._housekeeping = housekeeping
        self._forget, self._busy = forget, busy
        baselines = BaselineMaker(self._node, keys, fencing, numerics)
        imports = ModelImport(self._node, keys, fencing, numerics, store.settings.sample_bytes)
        self._apply: dict[str, Callable[[Item, IngestEntry, Commit, bytes], None]] = {
            ALARM: self._alarm,
            CONTROL: self._control,
            BASELINE: lambda item, _, commit, token: baselines.apply(item, commit, token),
            RESTORE: lambda item, _, commit, token: imports.apply(item, commit, token),
        }

    def apply(self, item: Item, token: bytes) -> Commit:
        """Return the commit of an entry: an empty one unless it counts."""
        commit = Commit(self.keys)
        if item.entry is None or not item.is_merged:
            return commit
        if item.entry.kind != ALARM:
            self._forget()
        try:
            self._apply[item.entry.kind](item, item.entry, commit, token)
        except NO_VERDICT:
            raise
        except Exception as error:
            if item.entry.kind in ORDERS and not isinstance(error, EntryError | PackingError):
                raise
            item.judge(error)
            return Commit(self.keys)
        return commit

    def _control(self, item: Item, order: IngestEntry, commit: Commit, token: bytes) -> None:
        """Delete a model; any other operation becomes a dead letter and changes nothing."""
        read_control(order.payload)
        self._housekeeping.remove_model(order, self._busy)

    def _alarm(self, item: Item, order: IngestEntry, commit: Commit, token: bytes) -> None:
        write_order(self._node, self.keys, order, commit, token)
        item.status = None  # it is no batch that was merged
