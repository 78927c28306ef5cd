"""The tables of a cohort from its retained records: ratings, raters, units and complete rows of all its panes.

Read when the cohort is complete, in the commit that advances the detectors. If each prediction has an id, they replace
the panes' tables. Otherwise only the tables of single raters come from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibrant.core.batch import Batch, Ratings
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.row_tables import row_table
from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.alarm.active_map import ActiveMap
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.cohorts import (
    RATER,
    CohortContents,
    DetectorCohort,
    detector_name,
)
from calibrant_server.workers.ingest.pane_ids import ids_in
from calibrant_server.workers.ingest.record_store import RecordStore
from calibrant_server.workers.join.identified_rows import IdentifiedRows
from calibrant_server.workers.store.keys import PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig

# Larger cohorts are read from their panes. This many rows take 10 s and half a gigabyte.
MAX_ROWS = 200_000
_A_READ = 20_000


@dataclass(frozen=True)
class CohortRows:
    """The rows of a cohort that have an id and count.

    Attributes
    ----------
    rows : read from their records
    are_all : whether they are all rows of the cohort
    may_gain : whether labels of some row may still arrive: rows without ids never get one
    """

    rows: IdentifiedRows
    are_all: bool
    may_gain: bool = True


def read_rows(
    node: Any, keys: PartitionKeys, config: ModelConfig, contents: CohortContents
) -> CohortRows:
    """Return the rows of a cohort's panes that have an id."""
    names = ids_in(node, keys, config, contents.starts) if contents.n <= MAX_ROWS else []
    store, found = RecordStore(node, keys), dict[str, bytes]()
    for first in range(0, len(names), _A_READ):
        found |= store.packed(config, names[first : first + _A_READ])
    are_all = bool(names) and len(names) >= contents.n
    may_gain = bool(names) or contents.n > MAX_ROWS
    return CohortRows(IdentifiedRows.read(found), are_all, may_gain)


def batch_of(rows: CohortRows, task: str) -> Batch | None:
    """Return all rows as one batch with uniformly named units; None without rows.

    Each row counts once and has no case.
    """
    batch = rows.rows.batch(task)
    return None if batch is None else replace(batch, weights=None, cases=None)


def row_cohorts(
    rows: CohortRows, batch: Batch, settings: AlarmSettings, active_map: ActiveMap, start_s: int
) -> dict[str, DetectorCohort]:
    """Return the cohort of each detector except the raters' own."""
    if settings.is_mapped and active_map.is_lost:
        return {}
    fitted, raters = active_map.fitted if settings.is_mapped else None, settings.raters
    if settings.rater is not None:
        batch, raters = rated_by(rows, batch, settings.rater), "mean"
    found: dict[str, DetectorCohort] = {}
    for slice_, index in _slices(rows).items():
        part = batch if slice_ == ALL_ROWS else batch.take(index)
        for scope in settings.scopes:
            table, coverage = row_table(part, scope, raters, fitted)
            found[detector_name(scope, slice_)] = DetectorCohort(start_s, table, coverage)
    return found


def rater_cohorts(
    rows: CohortRows,
    batch: Batch,
    names: Iterable[str],
    settings: AlarmSettings,
    active_map: ActiveMap,
    start_s: int,
) -> dict[str, DetectorCohort]:
    """Return the cohort of each named rater's own detector: all rows, labelled by that rater alone."""
    if settings.is_mapped and active_map.is_lost:
        return {}
    fitted = active_map.fitted if settings.is_mapped else None
    found: dict[str, DetectorCohort] = {}
    for rater in names:
        table, coverage = row_table(
            rated_by(rows, batch, rater), settings.scopes[0], "mean", fitted
        )
        found[detector_name(f"{RATER}{rater}", ALL_ROWS)] = DetectorCohort(start_s, table, coverage)
    return found


def rated_by(rows: CohortRows, batch: Batch, rater: str) -> Batch:
    """Return the batch of the rows with one rater's labels only."""
    classes = rows.rows.classes_of(rater)
    own = np.flatnonzero(classes != WITHDRAWN)
    return replace(batch, ratings=Ratings(own, classes[own], np.ones(len(own), np.int64)))


def _slices(rows: CohortRows) -> Mapping[str, np.ndarray]:
    places: dict[str, list[int]] = {}
    for place, pairs in enumerate(rows.rows.names.slices_of_rows()):
        for key, value in pairs:
            places.setdefault(f"{key}:{value}", []).append(place)
    every_row = {ALL_ROWS: np.arange(len(rows.rows))}
    return every_row | {name: np.array(found, np.int64) for name, found in sorted(places.items())}
