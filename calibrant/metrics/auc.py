"""Area under the receiver operating characteristic: how well the score ranks correct above incorrect ratings.

It does not measure calibration, and no increasing calibration map can change it. For `top_label` it compares the confidence of
correct and incorrect predictions. The classes' own areas, one against the rest, are returned too.

It ranks probabilities: scores that are equal as probabilities are ties and count half, whatever the logits were. Probabilities of
float32 are exactly 1 from logits of 17 on. Logits are ranked up to 36, where float64 ends. For two classes, logits divided by a
constant have the same area without such ties.
"""

from __future__ import annotations

import numpy as np

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.core.view import NoResultError, View
from calibrant.estimators.roc_curve import (
    area,
    correct_and_incorrect,
    roc_cells,
    unordered_deviation,
    unordered_share,
)
from calibrant.inference.intervals import JACKKNIFE, jackknife_interval
from calibrant.inference.null_reference import (
    DRAWN,
    N_DRAWS,
    NullReference,
    drawn_correct,
    few,
    independent,
    piecewise,
    quantiles_of,
)
from calibrant.inference.replication import tables_for
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    Interval,
    MetricValue,
    bin_scores,
    reject_few_outcomes,
)


def read(view: View) -> MetricValue | None:
    cells, divisible = roc_cells(view, view.scope)
    if not len(cells):
        return None
    right, wrong = correct_and_incorrect(cells)
    extra: dict[str, object] = {
        "positives": float(right.sum()),
        "negatives": float(wrong.sum()),
        "null_assumption": DRAWN,
    }
    if not view.is_raw:
        extra["error_bound"] = unordered_share(right, wrong, divisible)
        extra["error_estimate"] = unordered_deviation(cells, divisible)
    if view.scope == "top_label" and view.spec.keeps_all_classes:
        extra |= _classes(view)
    return MetricValue(float(area(right, wrong)), extra | view.histogram_counts(view.scope))


def interval(view: View, reading: MetricValue, seed: int) -> Interval:
    """Compute the interval by the jackknife of the same number from the replicates' bins."""
    tables = tables_for(view, view.scope, SCORE_BINS)
    weight = tables.weight[:, 0]
    right = tables.difference[:, 0] + weight * bin_scores(view, tables.bins)
    reject_few_outcomes(view, right, weight)
    # A replicate's bin may miss its own mean score, and so be a little below 0 or above its weight.
    left_out = right.sum(axis=0) - right
    rest = weight.sum(axis=0) - weight - left_out
    values = area(np.maximum(left_out, 0.0), np.maximum(rest, 0.0))
    low, high = jackknife_interval(reading.value, values, view.pane_query.ci)
    return Interval((max(low, 0.0), min(high, 1.0)), {"interval_method": JACKKNIFE})


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the area of a calibrated model with these scores."""
    cells = few(independent(roc_cells(view, view.scope)[0]))
    correct_ratings = drawn_correct(cells, N_DRAWS, seed)
    found = piecewise(lambda some: area(some, cells.weight - some), correct_ratings)
    if not np.isfinite(found).all():
        raise NoResultError(
            "one_outcome", "labels drawn from the predictions can all be correct, or all incorrect"
        )
    return quantiles_of(found)


def _classes(view: View) -> dict[str, object]:
    """Return the area of each class against the rest, None where it has one outcome only, and their mean."""
    by_class: list[float | None] = []
    for class_index in range(view.spec.n_classes):
        try:
            cells, _ = roc_cells(view, f"class:{class_index}")
            by_class.append(float(area(*correct_and_incorrect(cells))))
        except NoResultError:
            by_class.append(None)
    known = [each for each in by_class if each is not None]
    return {"by_class": by_class, "mean_over_classes": float(np.mean(known)) if known else None}


METRIC = FormulaMetric(
    slug="auc",
    title="Area under the ROC curve",
    unit="share",
    direction="higher",
    needs=("scope", "classes"),
    formula="P(s+ > s-) + P(s+ = s-)/2",
    search_words={"AUROC": "", "ROC AUC": "", "c-statistic": ""},
    source="Bamber (J. Math. Psych. 1975); Kock, Thielke et al.",
    options=("edges", "scope"),
    read=read,
    interval=interval,
    null=null,
)
