"""The index of a model's retained records by pane, written when a label horizon is declared after the data.

With a horizon, each commit indexes what it joins (`record_store`). A model without one writes no index, so its first sealing reads all
records once. Without the index, its cohorts would have neither the units nor the raters that were sent with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from calibrant.core.routing import ALL_ROWS, MICROSECONDS
from calibrant_server.workers.ingest.record_store import note, scanned
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.lifecycle.expiry import filled_shards
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.key_names import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import INDEXED, RATED, Watermarks

_A_SCAN = 2000


def complete_index(
    node: Any,
    keys: PartitionKeys,
    fencing: FencingToken,
    config: ModelConfig,
    found: Mapping[bytes, bytes],
    progress: Callable[[], None],
) -> None:
    """Index all records of cohorts that are not sealed, unless the index is complete. Safe to repeat.

    found : all watermarks of the model

    Raises
    ------
    RecordError
        A damaged record.
    """
    marks = Watermarks.of(ALL_ROWS, found)
    if marks.indexed:
        return
    for name in filled_shards(node, keys, config):
        for page in filter(None, scanned(node, name, _A_SCAN)):
            progress()
            commit = Commit(keys)
            _index(commit, config, marks, page)
            fencing.send(commit, fencing.new_token())
    commit = Commit(keys)
    commit.set_fields(keys.marks(config.key, config.generation), {INDEXED: "1"})
    fencing.send(commit, fencing.new_token())


def _index(
    commit: Commit, config: ModelConfig, marks: Watermarks, page: Mapping[bytes, bytes]
) -> None:
    """Add some records to the index, and that named raters rated."""
    records, names = Records.read(list(page.values())), [name.decode() for name in page]
    own = np.flatnonzero(records.has_prediction)
    event_us = records.predictions.event_us[records.prediction[own]]
    starts = event_us // (config.pane_s * MICROSECONDS) * config.pane_s
    ids: dict[int, list[str]] = {}
    for place, start in zip(own.tolist(), starts.tolist(), strict=True):
        if start >= max(marks.sealed_to, marks.kept_from):
            ids.setdefault(start, []).append(names[place])
    note(commit, commit.keys, config, ids)
    if len(records.ratings.row):
        commit.set_fields(commit.keys.marks(config.key, config.generation), {RATED: "1"})
