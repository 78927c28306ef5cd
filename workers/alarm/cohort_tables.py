"""The tables of a cohort from its sealed panes, if panes contain them.

A pane stores sums by unit of the model's own score, as sent. For a class, or under a map, there are cells without units.
They form a unit-weighted table only if each prediction is its own unit and has weight one. Otherwise the sums by unit are
mapped at the mean score of each of 60 bins. A pane does not contain classes whose predictions share units, a map that
needs complete rows, or the labels of one rater. Plain histograms count in addition to predictions if they give each unit
weight one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from calibrant.accumulators.units import UNIT_BINS
from calibrant.core.cells import Cells
from calibrant.core.documents import FittedMap
from calibrant.core.errors import CalibrationInputError
from calibrant.core.label_policies import POLICIES
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.drift.histogram_tables import has_histograms, posted_table
from calibrant.drift.mapped_scores import OWN_SCORE, scalar, table_at
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable, unit_table
from calibrant.raters.label_coverage import label_counts
from calibrant_server.workers.alarm.active_map import NO_MAP, ActiveMap
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.cohorts import DetectorCohort, detector_name


def tables_of(
    settings: AlarmSettings, panes: Mapping[str, Pane], active_map: ActiveMap = NO_MAP
) -> dict[str, DetectorCohort]:
    """Return the cohort of each detector from the panes of its slice; omit what a pane does not contain."""
    found: dict[str, DetectorCohort] = {}
    if settings.rater is not None or (settings.is_mapped and active_map.is_lost):
        return found
    fitted = active_map.fitted if settings.is_mapped else None
    for slice_ in sorted(panes):
        for scope in settings.scopes:
            cohort = _cohort_of(panes[slice_], scope, settings.raters, fitted)
            if cohort is not None:
                found[detector_name(scope, slice_)] = cohort
    return found


def _cohort_of(
    pane: Pane, scope: str, raters: str, fitted: FittedMap | None
) -> DetectorCohort | None:
    """Return the table of a pane's predictions and plain histograms; None if it cannot be computed."""
    parts, n = [], pane.counts["n_predictions"]
    posted = posted_table(pane, scope, raters, fitted)
    if n or not has_histograms(pane):
        reported = _table_of(pane, scope, raters, fitted)
        if reported is None:
            return None
        parts.append(DetectorCohort(reported, label_counts(pane)))
    if posted is not None:
        parts.append(DetectorCohort(*posted))
    return reduce(DetectorCohort.joined, parts) if parts else None


def _table_of(pane: Pane, scope: str, raters: str, fitted: FittedMap | None) -> UnitTable | None:
    """Return a table; of sums of several units under a map, with each bin's units at its mapped mean score."""
    if scope == OWN_SCORE and fitted is None:
        return unit_table(pane, raters)
    table = cell_table(pane, scope, raters, fitted)
    if table is not None or scope != OWN_SCORE or fitted is None:
        return table
    fine = unit_table(pane, raters, UNIT_BINS)
    mapped = scalar(fitted, OWN_SCORE, pane.spec.task, fine.mean_confidence)
    return None if mapped is None else table_at(fine, mapped, DRIFT_BINS)


def cell_table(
    pane: Pane, scope: str, raters: str, fitted: FittedMap | None = None
) -> UnitTable | None:
    """Return units by bin of a probability, mapped cell by cell; None if the pane does not contain them.

    Parameters
    ----------
    pane : Pane
    scope : "score" or "class:INDEX"
    raters : label policy
    fitted : calibration map; a cell is mapped at its mean score; its width is at most 1/3600 (of a class 1/1200)
    """
    counts = pane.counts
    n = counts["n_labelled"]
    if counts["n_units"] != n or (raters == POLICIES[0] and counts["n_ratings"] != n):
        return None
    cells = cells_of(pane, scope, raters)
    if cells is None or (cells.weight != cells.count).any():
        return None
    score = cells.mean
    if fitted is not None:
        mapped = scalar(fitted, scope, pane.spec.task, score)
        if mapped is None:
            return None
        score = mapped
    return UnitTable.at_scores(score, cells.weight, cells.correct)


def cells_of(pane: Pane, scope: str, raters: str) -> Cells | None:
    """Return the labelled cells of the scope; None if the pane does not store them."""
    named = pane.spec.default_scope if scope == OWN_SCORE else scope
    try:
        cells = View(pane, PaneQuery(bins=DRIFT_BINS, raters=raters, scope=named)).cells_of(named)
    except (NoResultError, CalibrationInputError):
        return None
    return cells.select(cells.weight > 0)
