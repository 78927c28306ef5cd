"""Rows of retained records: what time slices lose and gain when records change."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.hashing import U64, hash_names
from calibrant_server.workers.join.predictions import Names
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.segments.ragged import Ints
from calibrant_server.workers.segments.row_columns import (
    SOURCES,
    Codes,
    NameTable,
    fixed_of,
    ratings_table,
)
from calibrant_server.workers.segments.rows import Rows

_SOURCE = {name: SOURCES.index(name) for name in SOURCES}


def rows_of_records(
    ids: Sequence[str], records: Records, chosen: Ints, task: str, sign: int
) -> Rows:
    """Return the rows of retained predictions that count, all of one sign and batch 0.

    Parameters
    ----------
    ids : of all records
    chosen : places of the records
    """
    predictions = records.predictions.take(records.prediction[chosen])
    counts, fixed = records.ratings_by_class(chosen), fixed_of(len(chosen))
    delays, weights = records.delay[chosen], predictions.weights
    fixed["hash"] = fixed["unit_hash"] = hash_names([ids[i] for i in chosen.tolist()])
    fixed["weight"] = np.where(np.isnan(weights), 1.0, weights)
    fixed["count"], fixed["source"], fixed["is_logits"] = sign, _SOURCE["id"], predictions.is_logits
    fixed["edge_rule"] = predictions.edge_rules
    fixed["delay"] = np.where(delays < 0, UNKNOWN, delays)
    fixed["n_ratings"] = np.bincount(counts.row, minlength=len(chosen))
    named = _Named(predictions.names)
    named.put_units(fixed)
    keys, slices = named.slices()
    ratings = ratings_table(counts.class_index, counts.n)
    return Rows(task, fixed, predictions.scores, ratings, keys, slices, named.table.names)


class _Named:
    """Units, cases and slices of rows; rows that have the same ones share the work."""

    def __init__(self, names: Sequence[Names]) -> None:
        place: dict[Names, int] = {}
        self._row = np.array([place.setdefault(each, len(place)) for each in names], np.int64)
        self._names = list(place)
        self.table = NameTable()

    def put_units(self, fixed: np.ndarray) -> None:
        """Write hash and source of the unit, and the case, of each row that has one."""
        groups = [each.unit if each.unit is not None else each.case for each in self._names]
        hashes = self._hashes(groups)
        has_unit = np.array([each.unit is not None for each in self._names], np.bool_)[self._row]
        has_group = np.array([group is not None for group in groups], np.bool_)[self._row]
        fixed["unit_hash"] = np.where(has_group, hashes[self._row], fixed["unit_hash"])
        fixed["source"] = np.where(
            has_unit, _SOURCE["unit"], np.where(has_group, _SOURCE["case"], fixed["source"])
        )
        cases = self.table.codes(each.case for each in self._names)
        fixed["case"] = np.array(cases, np.int32)[self._row]

    @staticmethod
    def _hashes(groups: Sequence[str | None]) -> U64:
        return hash_names([group or "" for group in groups])

    def slices(self) -> tuple[tuple[str, ...], Codes]:
        """Return the keys of slices and the places of their values, int32 (n, n_keys)."""
        given = [dict(each.slices) for each in self._names]
        keys = tuple(sorted({key for each in given for key in each}))
        codes = np.empty((len(given), len(keys)), np.int32)
        for k, key in enumerate(keys):
            codes[:, k] = self.table.codes(each.get(key) for each in given)
        return keys, codes[self._row]
