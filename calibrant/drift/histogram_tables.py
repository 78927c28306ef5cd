"""Unit table of a cohort from plain histograms, if every unit has weight one.

A client that reduces at the edge to a count and two sums per bin sends no units. If its counts add up to no more than its
stated number of units (`n_units`), each unit has weight one: each prediction is its own unit, or the client has divided
each unit's weight by its contributions. Otherwise pixels or ratings would count as units, and an alarm would be
meaningless.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.documents import FittedMap
from calibrant.core.grid import equal_width_bin
from calibrant.core.histogram_fields import SUM_TOLERANCE
from calibrant.core.label_policies import POLICIES
from calibrant.core.pane import Pane
from calibrant.drift.mapped_scores import class_of, scalar
from calibrant.drift.unit_tables import DRIFT_BINS, UnitTable

Ints = NDArray[np.int64]
EDGES = ("right", "left")


def has_histograms(pane: Pane) -> bool:
    """Whether a pane holds plain histograms of any kind."""
    return any(not block.is_empty for block in pane.histograms.blocks.values())


def posted_table(
    pane: Pane, scope: str, raters: str, fitted: FittedMap | None = None, bins: int = DRIFT_BINS
) -> tuple[UnitTable, Ints] | None:
    """Return the unit-weighted table of a pane's plain histograms, and predictions and labelled predictions by bin.

    Parameters
    ----------
    pane : Pane
    scope : "score" or "class:INDEX"
    raters : label policy; if no histogram has it, histograms of pooled ratings are used
    fitted : calibration map; a cell of the grid is mapped at its mean score
    bins : of the score; a cell is in the bin of its mean score

    Returns
    -------
    UnitTable and int64 (2, bins); None if there are no histograms of the scope, their counts exceed their stated units,
    or the map takes complete rows.

    Examples
    --------
    >>> from calibrant.core.histogram import Histogram
    >>> from calibrant.core.spec import PaneSpec
    >>> pane = Pane(PaneSpec("binary", 2, 2))
    >>> one = {"kind": "positive", "bins": 2, "count": [3, 1], "sum_confidence": [0.6, 0.9], "sum_correct": [1, 1]}
    >>> pane.fill_histogram(Histogram.from_fields(one | {"n_units": 4}, pane.spec))
    >>> table, counts = posted_table(pane, "score", "mean", bins=5)
    >>> table.weight.tolist(), table.correct.tolist(), counts.tolist()
    ([3.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0, 1.0], [[3, 0, 0, 0, 1], [3, 0, 0, 0, 1]])
    >>> pane.fill_histogram(Histogram.from_fields(one | {"n_units": 1}, pane.spec))
    >>> posted_table(pane, "score", "mean") is None
    True
    """
    keys = _keys(pane, scope, raters)
    if not keys:
        return None
    histograms = pane.histograms
    weight, confidence, correct = np.sum([histograms.table(key) for key in keys], axis=0)
    _, numbers, unstated, units = np.sum([histograms.blocks[key].counts for key in keys], axis=0)
    if weight.sum() > units.sum() * (1.0 + SUM_TOLERANCE):
        return None
    score = np.clip(
        np.divide(confidence, weight, out=np.zeros_like(weight), where=weight > 0), 0.0, 1.0
    )
    mapped = score if fitted is None else scalar(fitted, scope, pane.spec.task, score)
    if mapped is None:
        return None
    place = equal_width_bin(mapped, bins)
    table = UnitTable.at_scores(mapped, weight, correct, bins)
    rated = np.bincount(place, np.where(unstated == 0, numbers, np.rint(weight)), bins).astype(
        np.int64
    )
    return table, np.stack([rated, rated])


def _keys(pane: Pane, scope: str, raters: str) -> list[str]:
    """Return the keys of a scope's histograms under the policy, or of pooled ratings if there are none."""
    class_index = class_of(scope, pane.spec.task)
    kind = (
        "top_label|"
        if class_index is None
        else "positive|"
        if scope == "score"
        else f"class|{class_index}"
    )
    blocks = pane.histograms.blocks
    for policy in (raters, POLICIES[0]):
        found = [
            key
            for edges in EDGES
            if (key := f"{kind}|{policy}|{edges}") in blocks and not blocks[key].is_empty
        ]
        if found:
            return found
    return []
