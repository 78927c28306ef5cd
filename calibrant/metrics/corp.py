"""CORP: miscalibration, discrimination and uncertainty of a proper score by isotonic recalibration, without bins.

From stored state, scores are cells' means. `error_bound` holds for any position of the scores inside their cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.calibrators.recalibration import recalibrate
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells, equal_mass_groups
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.estimators.isotonic import (
    SCORES,
    Decomposition,
    brier_gains,
    decompose,
    each_recalibrated,
    mean_score,
    recalibration_bound,
    score_bound,
)
from calibrant.inference.intervals import GapStatistic, jackknife_interval
from calibrant.inference.isotonic_null import NORMAL, isotonic_null
from calibrant.inference.null_reference import (
    DRAWN,
    NullReference,
    drawn_correct,
    independent,
    quantiles_of,
)
from calibrant.inference.reliability_table import wilson
from calibrant.inference.replication import tables_for
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    Interval,
    MetricValue,
    OfBins,
    bin_scores,
    bounded,
    each_division,
    reject_few_outcomes,
    reject_narrow,
    scored_cells,
)

SCORE = Option("score", "brier", "The proper score to decompose; `log` in nats.", allowed=SCORES)
_CORRECTED = (
    "jackknife of 64 unit replicates, of the value less what recalibration gains from chance"
)
_WILSON = (
    "Wilson's interval of the base rate, with the effective number of samples of 64 unit replicates"
)
_POPULATION = "the population's value; the fit follows the noise of the labels, so the value is biased upward at this n"
_N_DRAWS, _FEW = 200, 150
# Rates of replicates differ by as much from rounding.
_EQUAL = 1e-12
_INTERVAL_BINS = 30
_MIN_FINE_DRAWS, _FINE_POINTS = 4, 30_000


def parts_of(view: View) -> Decomposition | None:
    """Return the decomposition of the requested scope, computed once per view; None without data."""
    cells = scored_cells(view)
    if not len(cells):
        return None
    score = np.clip(cells.mean, 0.0, 1.0)
    return view.once(
        "corp", lambda: decompose(cells.weight, score, _rate(cells), SCORE.of(view.pane_query))
    )


def _rate(cells: Cells) -> Floats:
    return np.clip(cells.rate, 0.0, 1.0)


def _reader(part: str) -> Callable[[View], MetricValue | None]:
    def read(view: View) -> MetricValue | None:
        parts = parts_of(view)
        if parts is None:
            return None
        value = getattr(parts, part)
        if not np.isfinite(value):
            raise NoResultError(
                "zero_probability",
                "an outcome with probability 0 occurred: its log loss is infinite",
            )
        kind = SCORE.of(view.pane_query)
        extra: dict[str, object] = {"score": kind}
        if not view.is_raw and part != "uncertainty":
            cells = scored_cells(view)
            bound = recalibration_bound(cells, kind)
            if part == "miscalibration":
                bound += score_bound(cells, kind)
            extra |= bounded(bound, "loss_has_no_bound")
        return MetricValue(value, extra)

    return read


def _of_cells(part: str) -> Callable[[View, Cells, Floats], Floats]:
    if part == "miscalibration":
        return lambda view, cells, correct: _miscalibrations(
            cells, correct, SCORE.of(view.pane_query)
        )

    def of_cells(view: View, cells: Cells) -> float:
        score = np.clip(cells.mean, 0.0, 1.0)
        parts = decompose(cells.weight, score, _rate(cells), SCORE.of(view.pane_query))
        return float(getattr(parts, part))

    return each_division(of_cells)


def _discrimination_interval(view: View, reading: MetricValue, seed: int) -> Interval:
    """Compute the interval of the value less the gain that recalibration has from chance alone, from the replicates' bins.

    The fit follows the noise of the labels that it is judged by. What scores gain by it whose intercept and slope were fitted is that much,
    at any n.

    Raises
    ------
    NoResultError
        Too few units or errors, scores in few bins, or no intercept and slope fit best.
    """
    tables = tables_for(view, view.scope, SCORE_BINS)
    kind, score = SCORE.of(view.pane_query), bin_scores(view, tables.bins)
    weight, difference = tables.weight[:, 0], tables.difference[:, 0]
    correct = difference + weight * score
    reject_few_outcomes(view, correct, weight)
    reject_narrow(weight)
    values = [
        _discrimination(weight.sum(axis=0) - w, correct.sum(axis=0) - c, score, kind)
        for w, c in zip(weight, correct, strict=True)
    ]
    chance = _null_of(_recalibrated(scored_cells(view)), kind, view.pane_query.ci, seed).mean
    corrected = max(reading.value - chance, 0.0)
    lower, upper = jackknife_interval(corrected, np.array(values), view.pane_query.ci)
    about = {
        "interval_method": _CORRECTED,
        "interval_of": _POPULATION,
        "interval_bins": tables.bins,
    }
    return Interval((max(lower, 0.0), upper), about | {"corrected": corrected})


def _recalibrated(cells: Cells) -> Cells:
    """Return the cells with the rates of a logistic recalibration as their scores, and the variance of outcomes at these rates."""
    score = np.clip(cells.mean, 0.0, 1.0)
    rate = recalibrate(cells, 2).rates(score)
    chance = score * (1.0 - score)
    ratio = np.divide(rate * (1.0 - rate), chance, out=np.ones(len(rate)), where=chance > _EQUAL)
    return replace(cells, confidence=rate * cells.weight, null_variance=cells.null_variance * ratio)


def _discrimination(weight: Floats, correct: Floats, score: Floats, kind: str) -> float:
    kept = weight > 1e-9 * weight.sum()
    if not kept.any():
        raise NoResultError("too_few_units", "one replicate holds all the weight")
    rate = np.clip(correct[kept] / weight[kept], 0.0, 1.0)
    return decompose(weight[kept], score[kept], rate, kind).discrimination


def _uncertainty_interval(view: View, reading: MetricValue, seed: int) -> Interval:
    """Compute the interval from Wilson's of the base rate, with the effective number of samples that replicates show.

    The score of the base rate is flat at 1/2, so that its own error is not normal there.
    """
    tables = tables_for(view, view.scope, SCORE_BINS)
    weight, score = tables.weight[:, 0].sum(axis=1), bin_scores(view, tables.bins)
    correct = (tables.difference[:, 0] + tables.weight[:, 0] * score).sum(axis=1)
    rate, n = float(np.clip(correct.sum() / weight.sum(), 0.0, 1.0)), len(weight)
    squares = float(((correct - rate * weight) ** 2).sum()) * n / (n - 1.0)
    size = np.asarray(_samples(view, rate, squares, float(weight.sum())))
    ends = [float(end) for end in wilson(np.asarray(rate), size, view.pane_query.ci, n - 1.0)]
    losses = [_of_rate(end, SCORE.of(view.pane_query)) for end in ends]
    most = _of_rate(0.5, SCORE.of(view.pane_query)) if ends[0] < 0.5 < ends[1] else max(losses)
    return Interval((min(losses), most), {"interval_method": _WILSON, "interval_bins": tables.bins})


def _samples(view: View, rate: float, squares: float, weight: float) -> float:
    """Return the number of samples whose rate varies as the replicates' does; that of the units where all outcomes are equal."""
    chance = rate * (1.0 - rate)
    if min(chance, squares / weight**2) <= _EQUAL:
        squared = float(scored_cells(view).weight_squared.sum())
        return min(weight**2 / squared, float(view.counts["n_units"]))
    return chance * weight**2 / squares


def _of_rate(rate: float, kind: str) -> float:
    """Return the expected score of a base rate as forecast."""
    return float(mean_score(np.ones(1), np.array([rate]), np.array([rate]), kind))


def of_bins(view: View, reading: MetricValue) -> OfBins:
    """Return the miscalibration of bins, each recalibrated as one.

    Raises
    ------
    NoResultError
        The log score: in its long tails, resampled gaps cover the truth too rarely.
    """
    kind = SCORE.of(view.pane_query)
    if kind == "log":
        raise NoResultError(
            "log_score_not_covered", "resampled gaps do not have the long tails of the log score"
        )

    def statistic(bins: int) -> GapStatistic:
        score = bin_scores(view, bins)

        def of_gaps(weight: Floats, gap: Floats) -> Floats:
            shape = np.broadcast_shapes(weight.shape, gap.shape)
            rate = np.clip(np.broadcast_to(gap, shape) + score, 0.0, 1.0)
            every = np.maximum(weight, 1e-12).astype(np.float64)
            # The weights are the same for every length of the true gaps.
            return _lost(every.reshape(-1, bins), rate.reshape(-1, bins), score, kind).reshape(
                shape[:-2]
            )

        return of_gaps

    return OfBins(statistic, _INTERVAL_BINS)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the miscalibration of a calibrated model: in closed form where there is one, else from drawn outcomes.

    Recalibration fits noise down to the finest cells. Many draws in few groups give the variation; a few draws in all cells show how
    much lower the mean of the groups is.
    """
    return _null_of(scored_cells(view), SCORE.of(view.pane_query), view.pane_query.ci, seed)


def _null_of(cells: Cells, kind: str, ci: float, seed: int) -> NullReference:
    """Return the same of cells."""
    cells = independent(cells)
    closed = isotonic_null(cells, ci) if kind == "brier" else None
    if closed is not None:
        return closed
    if len(cells) <= _FEW:
        drawn = drawn_correct(cells, _N_DRAWS, seed)
        return quantiles_of(_miscalibrations(cells, drawn, kind), ci)
    group = equal_mass_groups(cells.weight, _FEW)
    grouped = cells.at_places(group)
    found = _miscalibrations(grouped, drawn_correct(grouped, _N_DRAWS, seed), kind)
    fine = drawn_correct(
        cells, max(_MIN_FINE_DRAWS, min(_N_DRAWS, _FINE_POINTS // len(cells))), seed
    )
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    coarse = np.add.reduceat(fine, starts, axis=1)
    lost = _miscalibrations(cells, fine, kind) - _miscalibrations(grouped, coarse, kind)
    return quantiles_of(found + lost.mean(), ci)


def _assumption(null: NullReference) -> str:
    return DRAWN if null.q95_error else NORMAL


def _miscalibrations(cells: Cells, correct_ratings: Floats, kind: str) -> Floats:
    """Return the miscalibration under each of several outcomes, float64 (n_outcomes,)."""
    rate = np.clip(correct_ratings / cells.weight, 0.0, 1.0)
    return _lost(cells.weight, rate, np.clip(cells.mean, 0.0, 1.0), kind)


def _lost(weight: Floats, rate: Floats, score: Floats, kind: str) -> Floats:
    """Return what recalibration would gain on each row of rates, float64 (n_rows,). Fewer rows of weights repeat."""
    if kind == "brier":
        return brier_gains(weight, rate, score)
    return _lost_by_fit(weight, rate, score, kind)


def _lost_by_fit(weight: Floats, rate: Floats, score: Floats, kind: str) -> Floats:
    """Return the same by a fit to each row, for a score that the kernel does not know."""
    if weight.ndim == 2 and len(weight) < len(rate):
        parts = rate.reshape(-1, *weight.shape)
        return np.concatenate([_lost_by_fit(weight, each, score, kind) for each in parts])
    own = mean_score(weight, rate, score, kind)
    return np.maximum(own - mean_score(weight, rate, each_recalibrated(weight, rate), kind), 0.0)


def _part(
    name: str, formula: str, words: tuple[str, ...], direction: str, **more: Any
) -> FormulaMetric:
    """Return one of the three parts of the mean score."""
    return FormulaMetric(
        slug=f"corp_{name}",
        title=f"{name.capitalize()} (CORP)",
        unit="score",
        range=(0.0, None),
        direction=direction,
        formula=formula,
        search_words=dict.fromkeys(words, ""),
        source="Dimitriadis, Gneiting, Jordan (PNAS 2021)",
        options=("scope",),
        own_options=(SCORE,),
        read=_reader(name),
        of_cells=_of_cells(name),
        **more,
    )


METRICS = (
    _part(
        "miscalibration",
        "mean S(p) - mean S(isotonic recalibration)",
        ("MCB", "CORP miscalibration"),
        "lower",
        of_bins=of_bins,
        null=null,
        null_assumption=_assumption,
    ),
    _part(
        "discrimination",
        "mean S(base rate) - mean S(isotonic recalibration)",
        ("DSC", "resolution", "CORP discrimination"),
        "higher",
        interval=_discrimination_interval,
        no_null="not_a_gap_metric",
    ),
    _part(
        "uncertainty",
        "mean S(base rate)",
        ("UNC", "CORP uncertainty"),
        "lower",
        interval=_uncertainty_interval,
        no_null="not_a_gap_metric",
    ),
)
