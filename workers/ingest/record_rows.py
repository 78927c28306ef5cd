"""Rows of retained records as a tail stores them: what time slices lose and gain when records change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Ratings
from calibrant.core.hashing import hash_names
from calibrant_server.workers.ingest.tail_rows import SOURCES, TailRows
from calibrant_server.workers.join.predictions import Names
from calibrant_server.workers.join.ragged import Ints
from calibrant_server.workers.join.records import Records


def rows_of_records(
    ids: Sequence[str], records: Records, chosen: Ints, task: str, sign: int
) -> TailRows:
    """Return the rows of retained predictions that count, all of one sign and batch 0.

    Parameters
    ----------
    ids : of all records
    chosen : places of the records
    """
    n, names = len(chosen), [ids[i] for i in chosen.tolist()]
    predictions = records.predictions.take(records.prediction[chosen])
    scores, narrow = predictions.narrowed
    called = predictions.names
    hashes = hash_names(names)
    delays = records.delay[chosen]
    weights = predictions.weights
    counts = records.ratings_by_class(chosen)
    return TailRows(
        task,
        scores,
        Ratings(counts.row, counts.class_index, counts.n),
        predictions.is_logits,
        np.full(n, sign),
        np.zeros(n, np.int64),
        np.where(np.isnan(weights), 1.0, weights),
        np.fromiter(map(_source, called), np.int64, n),
        np.ones(n, np.bool_),
        np.where(delays < 0, UNKNOWN, delays),
        predictions.edge_rules,
        hashes,
        _unit_hashes(called, hashes),
        np.array([*(each.case for each in called), None], dtype=object)[:-1],
        _slices(called),
    ).knowing(narrow)


def _source(names: Names) -> int:
    if names.unit is not None:
        return SOURCES.index("unit")
    return SOURCES.index("id" if names.case is None else "case")


def _unit_hashes(called: Sequence[Names], ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hash of each row's unit, or else case, or else id."""
    units = [each.unit if each.unit is not None else each.case for each in called]
    found, grouped = ids.copy(), [row for row, unit in enumerate(units) if unit is not None]
    if grouped:
        found[grouped] = hash_names([str(units[row]) for row in grouped])
    return found


def _slices(called: Iterable[Names]) -> dict[str, NDArray[Any]]:
    """Return the value of each row by key of a slice, None where a row has none."""
    values = [each.slices for each in called]
    found: dict[str, NDArray[Any]] = {}
    for row, pairs in enumerate(values):
        for key, value in pairs:
            if key not in found:
                found[key] = np.full(len(values), None, dtype=object)
            found[key][row] = value
    return found
