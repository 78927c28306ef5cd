"""Merging a delta in the own partition of its model: its panes and samples, under the names of slices that count here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from calibrant.core.routing import ALL_ROWS, Place
from calibrant_server.workers.ingest.deltas import Delta, PackedSample
from calibrant_server.workers.ingest.posted_sums import LiftedSample
from calibrant_server.workers.segments.row_columns import NameTable
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.store.model_config import ModelConfig

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.reduce import Numerics, Reduction


def merge_sums(delta: Delta, config: ModelConfig, numerics: Numerics, into: Reduction) -> None:
    """Add the panes and samples of a delta to a reduction.

    A value of an open slice key may count as `other` here although the side partition had room for it: the model has the
    maximum of values since.
    """
    for pane in delta.panes:
        place = Place(_counted(pane.slice, config, into), pane.start_s)
        key = config.pane_key(place)
        into.delta(key, config, numerics).merge(numerics.pane.unpack(pane.packed))
        into.touched.add(key)
    for sample in delta.samples:
        key = config.pane_key(Place(ALL_ROWS, sample.start_s))
        into.lifted.append(LiftedSample(key, _rows(sample, config, into), sample.halvings))


def _counted(slice_: str, config: ModelConfig, into: Reduction) -> str:
    if slice_ == ALL_ROWS:
        return slice_
    key, _, value = slice_.partition(":")
    return f"{key}:{into.reads.names.name(config, key, value)}"


def _rows(sample: PackedSample, config: ModelConfig, into: Reduction) -> Rows:
    rows, table = Rows.unpack(sample.packed), NameTable()
    slices = np.empty_like(rows.slices)
    for k, key in enumerate(rows.keys):
        names = [into.reads.names.name(config, key, value) for value in rows.names]
        slices[:, k] = np.array([*table.codes(names), -1])[rows.slices[:, k]]
    return replace(rows, slices=slices, names=table.names)
