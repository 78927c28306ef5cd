"""MacroCE: calibration errors of correct and of incorrect ratings, averaged with equal weight whatever their number.

The error of a hit is one minus its score, that of a miss the score itself.
"""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.core.cells import Cells
from calibrant.core.view import NoResultError, View
from calibrant.inference.intervals import JACKKNIFE, jackknife_interval
from calibrant.inference.replication import tables_for
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    Interval,
    MetricValue,
    bin_scores,
    each_division,
    reject_few_outcomes,
    scored_cells,
)


def macro_error(
    correct_ratings: float, incorrect_ratings: float, correct_score: float, incorrect_score: float
) -> float:
    """Return half of the mean error of correct ratings plus half of that of incorrect ones.

    Parameters
    ----------
    correct_ratings, incorrect_ratings : weight of both, positive
    correct_score, incorrect_score : their weighted sums of scores

    Source
    ------
    Si, Zhao, Min, Boyd-Graber (Findings of EMNLP 2022).

    Examples
    --------
    >>> macro_error(2.0, 1.0, 1.5, 0.75)
    0.5
    """
    return float(
        (1.0 - correct_score / correct_ratings + incorrect_score / incorrect_ratings) / 2.0
    )


def error_bound(cells: Cells, correct_ratings: float, incorrect_ratings: float) -> float:
    """Bound the change when correct ratings are anywhere inside their cells."""
    return float(
        cells.largest_covariance.sum() * (1.0 / correct_ratings + 1.0 / incorrect_ratings) / 2.0
    )


def of_cells(view: View, cells: Cells) -> float:
    """Return the value from cells with both outcomes."""
    correct_ratings, score = float(cells.correct.sum()), float(cells.correct @ cells.mean)
    return macro_error(
        correct_ratings,
        float(cells.weight.sum()) - correct_ratings,
        score,
        float(cells.confidence.sum()) - score,
    )


def read(view: View) -> MetricValue | None:
    cells = scored_cells(view)
    if not len(cells):
        return None
    correct_ratings, incorrect_ratings = (
        float(cells.correct.sum()),
        float((cells.weight - cells.correct).sum()),
    )
    if correct_ratings <= 0.0 or incorrect_ratings <= 0.0:
        raise NoResultError(
            "one_outcome",
            "all ratings are correct, or all incorrect: one of the two means has no data",
        )
    correct_score = float(cells.correct @ cells.mean)
    value = macro_error(
        correct_ratings,
        incorrect_ratings,
        correct_score,
        float(cells.confidence.sum()) - correct_score,
    )
    extra = {
        "hit_error": 1.0 - correct_score / correct_ratings,
        "miss_error": (float(cells.confidence.sum()) - correct_score) / incorrect_ratings,
    }
    if not view.is_raw:
        extra["error_bound"] = error_bound(cells, correct_ratings, incorrect_ratings)
    return MetricValue(value, extra)


def interval(view: View, reading: MetricValue, seed: int) -> Interval:
    """Compute the interval by the jackknife of the same number from the replicates' bins."""
    tables = tables_for(view, view.scope, SCORE_BINS)
    score = bin_scores(view, tables.bins)
    weight, difference = tables.weight[:, 0], tables.difference[:, 0]
    correct = difference + weight * score
    columns = np.stack(
        [correct.sum(1), (weight - correct).sum(1), correct @ score, (weight - correct) @ score]
    )
    reject_few_outcomes(view, correct, weight)
    left_out = columns.sum(axis=1, keepdims=True) - columns
    values = (1.0 - left_out[2] / left_out[0] + left_out[3] / left_out[1]) / 2.0
    return Interval(
        jackknife_interval(reading.value, values, view.pane_query.ci),
        {"interval_method": JACKKNIFE},
    )


METRIC = FormulaMetric(
    slug="macro_ce",
    title="Macro-averaged calibration error",
    formula="mean of the calibration errors of correct and of incorrect predictions",
    search_words={"MacroCE": "", "ICE": "", "instance-level calibration error": ""},
    source="Si, Zhao, Min, Boyd-Graber (Findings of EMNLP 2022)",
    options=("scope",),
    read=read,
    of_cells=each_division(of_cells),
    interval=interval,
    no_null="not_a_gap_metric",
)
