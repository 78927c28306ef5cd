"""Rows of a tail that cancel: a row and its removal, with equal content and equal rows of the same unit and batch.

A row's share depends on the other rows of its unit, so that two rows cancel only if their units' rows are equal as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.hashing import U64, fmix, hash_names, hash_rows, mix
from calibrant_server.workers.ingest.tail_format import has_names

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.tail_rows import TailRows


def uncancelled(rows: TailRows) -> NDArray[np.int64]:
    """Return the rows that remain, in order; of several equal rows the first ones cancel."""
    high, low = _keys(rows)
    shared = _shared(high[rows.sign > 0], high[rows.sign < 0])
    if not len(shared):
        return np.arange(len(rows))
    some = np.flatnonzero(np.isin(high, shared))
    keep = np.ones(len(rows), np.bool_)
    keep[some] = _remain(high[some], low[some], rows.sign[some])
    return np.flatnonzero(keep)


def _shared(keys: U64, others: U64) -> U64:
    """Return the keys among some that others have, too; `numpy.intersect1d` takes four times as long."""
    if not len(keys):
        return keys
    ordered = np.sort(keys)
    place = np.minimum(np.searchsorted(ordered, others), len(ordered) - 1)
    return np.asarray(others[ordered[place] == others])


def _remain(high: U64, low: U64, sign: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows remain, by their keys and signs."""
    order = np.lexsort((np.arange(len(high)), low, high))
    first = np.append(True, (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0))
    group = np.empty(len(high), np.int64)
    group[order] = np.cumsum(first) - 1
    n_pairs = np.minimum(
        np.bincount(group[sign > 0], minlength=first.sum()),
        np.bincount(group[sign < 0], minlength=first.sum()),
    )
    keep = np.ones(len(high), np.bool_)
    for own in (1, -1):
        index = order[sign[order] == own]
        groups = group[index]
        start = np.searchsorted(groups, groups)  # groups increase along `order`
        keep[index[np.arange(len(index)) - start < n_pairs[groups]]] = False
    return keep


def _keys(rows: TailRows) -> tuple[U64, U64]:
    """Return 128 bits for each row that equal rows of equal units share, whatever their sign and batch."""
    content = _content(rows)
    named = (rows.source >= 2).any()
    keys = []
    for lane in (mix, fmix):
        own = lane(content ^ lane(np.full(1, 0x5851F42D4C957F2D, np.uint64)))
        shared = _of_units(rows, own) if named else np.zeros(len(rows), np.uint64)
        keys.append(lane(own + lane(shared)))
    return keys[0], keys[1]


def _of_units(rows: TailRows, own: U64) -> U64:
    """Add up the keys of the rows of each named unit of a batch and sign; 0 for rows without."""
    pairs = np.stack(
        [rows.unit_hashes, (rows.part * 2 + (rows.sign > 0)).astype(np.uint64), rows.source.astype(np.uint64)]
    )  # fmt: skip
    unit = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    of_unit = np.zeros(int(unit.max(initial=-1)) + 1, np.uint64)
    np.add.at(of_unit, unit, own)
    return np.where(rows.source >= 2, of_unit[unit], np.uint64(0))


def _content(rows: TailRows) -> U64:
    """Hash everything of a row but its sign and batch."""
    numbers = np.column_stack(
        [
            rows.scores,
            rows.weights,
            rows.logits,
            rows.source,
            rows.named,
            rows.delays,
            rows.edge_rules,
        ]
    ).astype(np.float64)
    state = mix(mix(hash_rows(numbers) ^ rows.hashes) ^ rows.unit_hashes)
    ratings = rows.ratings
    each = mix(
        ratings.class_index.astype(np.uint64) * np.uint64(0x1F123BB5)
        + ratings.count.astype(np.uint64)
    )
    total = np.zeros(len(rows), np.uint64)
    np.add.at(total, ratings.row, each)
    state = mix(state ^ total)
    state = mix(state ^ _names(rows.cases))
    for key, values in sorted(rows.slices.items()):
        hashed = _names(values)
        label = hash_names([key])
        state = np.where(hashed > 0, mix(state ^ mix(hashed ^ label)), state)
    return state


def _names(values: NDArray[Any]) -> U64:
    """Hash names; 0 where there is none."""
    found = np.zeros(len(values), np.uint64)
    if not has_names(values):
        return found
    named = np.flatnonzero([value is not None for value in values])
    found[named] = hash_names([values[row] for row in named])
    return found
