"""Typical cohorts of a model: their number of labelled units and scores, to estimate delays.

Scores come from the panes of a window. The number of units comes from sealed cohorts if there are any: they account for
units that share rows across panes, and for labels that arrived in time.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from calibrant.accumulators.units import UNIT_BINS
from calibrant.core.documents import FittedMap
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS
from calibrant.drift.histogram_tables import posted_table
from calibrant.drift.mapped_scores import OWN_SCORE, scalar, table_at
from calibrant.drift.tolerance import Tolerance
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable, merged, unit_table
from calibrant_server.workers.alarm.alarm_snapshot import AlarmSnapshot
from calibrant_server.workers.alarm.cohorts import detector_name
from calibrant_server.workers.alarm.settings import AGAINST_REFERENCE, AlarmSettings
from calibrant_server.workers.alarm.tables import cells_of


def typical_table(
    panes: Iterable[Pane], scope: str, raters: str, task: str, fitted: FittedMap | None
) -> UnitTable:
    """Return the labelled units of panes by 60 bins of the scope.

    For a class, units are distributed like predictions. A map of complete rows does not change the scores: sums by
    bin do not hold rows.
    """
    tables = []
    for pane in panes:
        tables.append(
            unit_table(pane, raters, UNIT_BINS)
            if scope == OWN_SCORE
            else _of_class(pane, scope, raters)
        )
        posted = posted_table(pane, scope, raters, bins=UNIT_BINS)
        tables += [] if posted is None else [posted[0]]
    combined = merged(tables, UNIT_BINS)
    mapped = None if fitted is None else scalar(fitted, scope, task, combined.mean_confidence)
    return combined if mapped is None else table_at(combined, mapped)


def _of_class(pane: Pane, scope: str, raters: str) -> UnitTable:
    cells = cells_of(pane, scope, raters)
    if cells is None or not len(cells):
        return UnitTable.empty(UNIT_BINS)
    weight = cells.weight * (pane.counts["n_units"] / cells.weight.sum())
    return UnitTable.at_scores(cells.mean, weight, 0.0 * weight, UNIT_BINS)


def scaled(table: UnitTable, factor: float) -> UnitTable:
    """Return the table with its units multiplied by a factor."""
    return UnitTable(*(factor * table.columns))


def sealed_rate(alarm: AlarmSnapshot, settings: AlarmSettings) -> float | None:
    """Return labelled units per second in the sealed cohorts of the window; None if there are none."""
    in_window = [
        cohort_result
        for cohort_result in alarm.cohort_results
        if cohort_result.cohort in alarm.window
    ]
    n_units = sum(cohort_result.table.n_units for cohort_result in in_window)
    if not n_units:
        return None
    starts = [cohort_result.cohort for cohort_result in in_window]
    # Their own length: other settings may have been active then.
    length_s = min(np.diff(starts), default=settings.bucket_s)
    return float(n_units / (starts[-1] - starts[0] + length_s))


def band_of(
    alarm: AlarmSnapshot, settings: AlarmSettings, scope: str, a_cohort: UnitTable
) -> Tolerance:
    """Return the tolerance of a detector, or its expected tolerance once the reference is collected.

    Parameters
    ----------
    a_cohort : UnitTable of 60 bins, the units of one cohort
    """
    if settings.against != AGAINST_REFERENCE:
        return Tolerance.within(settings.tolerance)
    detector = alarm.detectors.get(detector_name(scope, ALL_ROWS))
    if detector is not None and detector.state is not None and detector.made_of == settings.made_of:
        return detector.state.tolerance
    combined = scaled(a_cohort, settings.reference_s / settings.bucket_s)
    weight, confidence = (
        each.reshape(DRIFT_BINS, -1).sum(axis=1) for each in (combined.weight, combined.confidence)
    )
    return Tolerance.of_reference(
        UnitTable(weight, confidence, confidence, weight, weight), settings.tolerance
    )
