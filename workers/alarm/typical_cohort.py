"""Typical cohorts of a model before any is sealed: its number of labelled units and scores, from the panes of a window."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from calibrant.core.documents import FittedMap
from calibrant.core.pane import Pane
from calibrant.drift.histogram_tables import posted_table
from calibrant.drift.mapped_scores import OWN_SCORE, scalar, table_at
from calibrant.drift.unit_tables import UnitTable, merged, unit_table
from calibrant_server.workers.alarm.cohort_tables import cells_of


def typical_table(
    panes: Iterable[Pane], scope: str, raters: str, task: str, fitted: FittedMap | None
) -> UnitTable:
    """Return the labelled units of panes by bin of the scope.

    For a class, units are distributed like predictions. A map of complete rows does not change the scores: sums by
    bin do not hold rows.
    """
    tables = []
    for pane in panes:
        tables.append(
            unit_table(pane, raters) if scope == OWN_SCORE else _of_class(pane, scope, raters)
        )
        posted = posted_table(pane, scope, raters)
        tables += [] if posted is None else [posted[0]]
    combined = merged(tables)
    mapped = None if fitted is None else scalar(fitted, scope, task, combined.mean_confidence)
    return combined if mapped is None else table_at(combined, mapped)


def _of_class(pane: Pane, scope: str, raters: str) -> UnitTable:
    cells = cells_of(pane, scope, raters)
    if cells is None or not len(cells):
        return UnitTable.empty()
    weight = cells.weight * (pane.counts["n_units"] / cells.weight.sum())
    return UnitTable.at_scores(cells.mean, weight, np.zeros_like(weight))
