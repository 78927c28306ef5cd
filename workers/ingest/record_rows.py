"""Rows of retained records: what time slices lose and gain when records change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.hashing import hash_names
from calibrant_server.workers.join.predictions import Predictions
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.join.row_names import RowNames
from calibrant_server.workers.segments.ragged import Ints
from calibrant_server.workers.segments.row_columns import (
    RATING,
    SOURCES,
    Codes,
    NameTable,
    fixed_of,
    ratings_table,
)
from calibrant_server.workers.segments.rows import Rows

_ID, _CASE, _UNIT = (SOURCES.index(name) for name in ("id", "case", "unit"))


def rows_of_predictions(ids: Sequence[str], predictions: Predictions, task: str) -> Rows:
    """Return retained predictions as rows without labels, of batch 0."""
    fixed, names, weights = fixed_of(len(ids)), predictions.names, predictions.weights
    fixed["hash"] = fixed["unit_hash"] = hash_names(ids)
    fixed["weight"] = np.where(np.isnan(weights), 1.0, weights)
    fixed["source"], fixed["is_logits"] = _ID, predictions.is_logits
    fixed["edge_rule"] = predictions.edge_rules
    _put_units(fixed, names)
    table = NameTable()
    fixed["case"] = _codes_of(names, table)
    keys, slices = _slices(names, table)
    ratings = np.zeros(0, RATING)
    return Rows(task, fixed, predictions.scores, ratings, keys, slices, table.names)


def labelled_rows(rows: Rows, records: Records, chosen: Ints, sign: int) -> Rows:
    """Return rows of predictions with the labels of their records, all of one sign.

    Parameters
    ----------
    chosen : place of the record of each row
    """
    counts, delays = records.ratings_by_class(chosen), records.delay[chosen]
    labelled = rows.with_columns(
        count=sign,
        delay=np.where(delays < 0, UNKNOWN, delays),
        n_ratings=np.bincount(counts.row, minlength=len(rows)),
    )
    return replace(labelled, ratings=ratings_table(counts.class_index, counts.n))


def _put_units(fixed: NDArray[np.void], names: RowNames) -> None:
    """Write hash and source of the unit of each row that shares one."""
    if names.texts:
        own = np.flatnonzero(names.group >= 0)
        fixed["unit_hash"][own] = hash_names(names.texts)[names.group[own]]
        fixed["source"][own] = np.where(names.unit[own] >= 0, _UNIT, _CASE)


def _codes_of(names: RowNames, table: NameTable) -> Codes:
    """Return the place of each row's case in a table of names."""
    lookup = np.full(len(names.texts) + 1, -1, np.int32)
    some = np.unique(names.case[names.case >= 0])
    lookup[some] = table.codes([names.texts[place] for place in some.tolist()])
    return lookup[names.case]


def _slices(names: RowNames, table: NameTable) -> tuple[tuple[str, ...], Codes]:
    """Return the keys of slices and the places of their values, int32 (n, n_keys)."""
    given = [dict(pairs) for pairs in names.slice_sets]
    keys = tuple(sorted({key for each in given for key in each}))
    codes = np.full((len(given), len(keys)), -1, np.int32)
    for k, key in enumerate(keys):
        codes[:, k] = table.codes(each.get(key) for each in given)
    return keys, codes[names.slices]
