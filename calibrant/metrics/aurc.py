"""Area under the risk-coverage curve: the mean error rate if a model answers only its most confident predictions, over all shares answered.

Predictions are sorted by confidence, highest first. After each one, the risk is the error rate of those so far; the area is the mean of
these risks. Predictions of one cell, or of equal confidence, are in random order; the area is its mean over the orders. An area without
the part that any order has, `excess`, compares the order with that of a perfect ranking of the same errors (Geifman et al., ICLR 2019).
It does not measure calibration.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.core.arrays import Floats, ratio
from calibrant.core.cells import Cells
from calibrant.core.view import View
from calibrant.inference.intervals import JACKKNIFE, jackknife_interval
from calibrant.inference.null_reference import (
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
    scored_cells,
)

SCOPE = "top_label"
_DRAWS = 500


def area(weight: Floats, errors: Floats, n: Floats) -> Floats:
    """Return the mean risk over the predictions, highest confidence first.

    Parameters
    ----------
    weight, errors : float64 (..., n_cells), weights and weighted errors by increasing confidence
    n : float64 (n_cells,), predictions of each cell

    Returns
    -------
    float64 (...). Of cells with one prediction each it is the mean over i of (errors of the first i) / i.

    Source
    ------
    Geifman, El-Yaniv (NeurIPS 2017); Geifman, Uziel, El-Yaniv (ICLR 2019), eq. 2.

    Examples
    --------
    >>> ones = np.ones(4)
    >>> round(float(area(ones, np.array([0.0, 1.0, 0.0, 0.0]), ones)), 6)
    0.145833
    """
    weight, errors, n = weight[..., ::-1], errors[..., ::-1], n[::-1]
    before, errors_before = np.cumsum(weight, axis=-1) - weight, np.cumsum(errors, axis=-1) - errors
    filled = weight > 0.0
    each = np.divide(weight, n, out=np.ones(np.shape(weight)), where=filled)
    rate = np.divide(errors, weight, out=np.zeros(np.shape(weight)), where=filled)
    place = before / each
    steps = scipy.special.digamma(place + n + 1.0) - scipy.special.digamma(place + 1.0)
    risks = errors + (errors_before - rate * before) * steps
    total = weight.sum(axis=-1)
    return np.asarray(np.where(filled, risks, 0.0).sum(axis=-1) / total)


def _area_of(cells: Cells, correct: Floats) -> Floats:
    weight = np.broadcast_to(cells.weight, correct.shape)
    return area(weight, weight - correct, cells.predictions.astype(np.float64))


def read(view: View) -> MetricValue | None:
    cells = scored_cells(view, SCOPE)
    if not len(cells):
        return None
    value, risk = (
        float(_area_of(cells, cells.correct)),
        1.0 - float(cells.correct.sum() / cells.weight.sum()),
    )
    extra: dict[str, object] = {"risk": risk, "excess": value - best(risk)}
    if not view.is_raw:
        extra["error_bound"] = _error_bound(cells)
        extra["error_estimate"] = _error_estimate(cells)
    return MetricValue(value, extra)


def best(risk: float) -> float:
    """Return the area where all errors have the lowest confidence, of many predictions."""
    return risk + float(scipy.special.xlogy(1.0 - risk, 1.0 - risk))


def _error_bound(cells: Cells) -> float:
    """Return the largest change of the area by the order in the cells: all errors of a cell first, or last."""
    cells, each, place = _from_the_top(cells)
    wrong, right = (cells.weight - cells.correct) / each, cells.correct / each
    largest = np.maximum(_shift(place, wrong, right), _shift(place, right, wrong))
    return float((each * largest)[cells.divisible].sum() / cells.weight.sum())


def _error_estimate(cells: Cells) -> float:
    """Return the standard deviation of the area if each cell is in random order: sums of its errors are then Brownian bridges."""
    cells, each, place = _from_the_top(cells)
    n = cells.weight / each
    bridge = cells.rate * (1.0 - cells.rate) * n**3 / 12.0 / (place + n / 2.0) ** 2
    part = np.where(cells.divisible, bridge * each**2, 0.0)
    return float(np.sqrt(np.maximum(part, 0.0).sum()) / cells.weight.sum())


def _from_the_top(cells: Cells) -> tuple[Cells, Floats, Floats]:
    """Return cells by falling confidence, the weight of a prediction in each, and the number of such predictions before it."""
    cells = cells.select(slice(None, None, -1))
    each = cells.weight / np.maximum(cells.predictions, 1)
    return cells, each, (np.cumsum(cells.weight) - cells.weight) / each


def _shift(place: Floats, first: Floats, last: Floats) -> Floats:
    """Return how much the sum of risks changes if, after `place` predictions, one outcome comes completely before the other."""
    digamma, n = scipy.special.digamma, first + last
    start, middle, end = (
        digamma(place + 1.0),
        digamma(place + first + 1.0),
        digamma(place + n + 1.0),
    )
    rising = last * (first - place * (middle - start))
    return np.asarray((rising + first * ((n + place) * (end - middle) - last)) / n)


def interval(view: View, reading: MetricValue, seed: int) -> Interval:
    """Return the interval by the jackknife of the area from the replicates' bins."""
    weight, errors, n = _replicates(view)
    total, wrong = weight.sum(axis=0), errors.sum(axis=0)
    reject_few_outcomes(view, errors, weight, SCOPE)
    left, left_wrong = total - weight, np.maximum(wrong - errors, 0.0)
    share = ratio(left, total)
    values = np.array([area(*each) for each in zip(left, left_wrong, share * n, strict=True)])
    low, high = jackknife_interval(reading.value, values, view.pane_query.ci)
    return Interval((max(low, 0.0), min(high, 1.0)), {"interval_method": JACKKNIFE})


def _replicates(view: View) -> tuple[Floats, Floats, Floats]:
    """Return weight and errors of each replicate by bin of the confidence, and predictions by bin.

    The replicates of two classes have bins of class 1: those below one half are turned round.
    """
    scope = view.spec.default_scope
    tables = tables_for(view, scope, SCORE_BINS)
    weight = tables.weight[:, 0]
    correct = tables.difference[:, 0] + weight * bin_scores(view, tables.bins, scope)
    cells = scored_cells(view, SCOPE)
    place = np.minimum((cells.mean * tables.bins).astype(np.int64), tables.bins - 1)
    n = np.maximum(np.bincount(place, cells.predictions, tables.bins), 1.0)
    errors = weight - correct
    if scope == "positive":
        errors, weight = _turned(correct, errors), _turned(weight, weight)
    return weight, errors, n


def _turned(below: Floats, above: Floats) -> Floats:
    """Return values of class 1 by bin of the larger probability: `below` one half turned round and added to those above."""
    middle = above.shape[1] // 2
    upper = above[:, middle:] + below[:, :middle][:, ::-1]
    return np.concatenate([np.zeros_like(below[:, :middle]), upper], axis=1)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the area of a calibrated model with these confidences."""
    cells = few(independent(scored_cells(view, SCOPE)))
    return quantiles_of(
        piecewise(lambda some: _area_of(cells, some), drawn_correct(cells, _DRAWS, seed))
    )


METRIC = FormulaMetric(
    slug="aurc",
    title="Area under the risk-coverage curve",
    unit="share",
    needs=("top_label", "positive"),
    formula="(1/n) Σ_i (errors of the i most confident) / i",
    search_words={"AURC": "", "risk-coverage": "", "selective prediction": "", "deferral": ""},
    source="Geifman, El-Yaniv (NeurIPS 2017); Geifman, Uziel, El-Yaniv (ICLR 2019)",
    read=read,
    interval=interval,
    null=null,
)
