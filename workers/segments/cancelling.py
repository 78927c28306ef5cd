"""Rows that cancel: a row and its removal, with equal content and equal rows of the same unit and batch.

A row's share depends on the other rows of its unit, so that two rows cancel only if their units' rows are equal as well.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant.core.hashing import U64, fmix, hash_rows, mix
from calibrant_server.workers.segments.ragged import owners
from calibrant_server.workers.segments.row_columns import NAMED_UNIT, SOURCES, RowColumns

R = TypeVar("R", bound=RowColumns)
_LANE = np.full(1, 0x5851F42D4C957F2D, np.uint64)
_CONTENT = ("weight", "delay", "start_s", "case", "source", "is_logits", "edge_rule")


def uncancelled(rows: R) -> R:
    """Return the rows that remain, in order; of several equal rows the first ones cancel."""
    adds = rows.fixed["count"] > 0
    if adds.all() or not adds.any():
        return rows
    units, unit = np.unique(rows.fixed["unit_hash"], return_inverse=True)
    has_both = np.bincount(unit[adds], minlength=len(units)) > 0
    has_both &= np.bincount(unit[~adds], minlength=len(units)) > 0
    some = has_both[unit]
    if not some.any():
        return rows
    remain = ~some
    remain[some] = _remain(*_keys(rows.where(some)), adds[some])
    return rows.where(remain)


def _remain(high: U64, low: U64, adds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows remain, by their keys and signs."""
    order = np.lexsort((np.arange(len(high)), low, high))
    first = np.append(True, (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0))
    group = np.empty(len(high), np.int64)
    group[order] = np.cumsum(first) - 1
    n_groups = int(first.sum())
    n_pairs = np.minimum(*(np.bincount(group[own], minlength=n_groups) for own in (adds, ~adds)))
    remain = np.ones(len(high), np.bool_)
    for own in (adds, ~adds):
        index = order[own[order]]
        groups = group[index]
        start = np.searchsorted(groups, groups)  # groups increase along `order`
        remain[index[np.arange(len(index)) - start < n_pairs[groups]]] = False
    return remain


def _keys(rows: RowColumns) -> tuple[U64, U64]:
    """Return 128 bits for each row that equal rows of equal units share, whatever their sign and batch."""
    content = content_of(rows)
    high, low = (lane(content ^ lane(_LANE)) for lane in (mix, fmix))
    if (rows.fixed["source"] >= NAMED_UNIT).any():
        high, low = _of_units(rows, high), _of_units(rows, low)
    return mix(high), fmix(low)


def _of_units(rows: RowColumns, own: U64) -> U64:
    """Add to the keys of rows of named units those of all rows of their unit, batch and sign."""
    fixed = rows.fixed
    batch = fixed["part"] * 2 + (fixed["count"] > 0)
    key = mix(fixed["unit_hash"] ^ mix(batch.astype(np.uint64) * len(SOURCES) + fixed["source"]))
    unit = np.unique(key, return_inverse=True)[1]
    total = np.zeros(len(rows), np.uint64)
    np.add.at(total, unit, own)
    return np.where(fixed["source"] >= NAMED_UNIT, own + mix(total[unit]), own)


def content_of(rows: RowColumns) -> U64:
    """Hash everything of a row but how often it occurs and its batch; equal only among rows with one table of names."""
    fixed, ratings = rows.fixed, rows.ratings
    numbers = np.column_stack(
        [rows.scores.values, *(fixed[name] for name in _CONTENT), rows.slices]
    )
    each = mix(
        ratings["class_index"].astype(np.uint64) * np.uint64(0x1F123BB5)
        + ratings["n"].astype(np.uint64)
    )
    total = np.zeros(len(rows), np.uint64)
    np.add.at(total, owners(fixed["n_ratings"]), each)
    hashed = hash_rows(numbers.astype(np.float64))
    return mix(mix(mix(hashed ^ fixed["hash"]) ^ fixed["unit_hash"]) ^ total)
