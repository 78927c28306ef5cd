"""Mean and weak calibration: observed-to-expected ratio, calibration intercept and calibration slope.

The ratio and the intercept (slope fixed at 1) compare the mean of the outcomes with the mean of the scores. The slope, fitted together
with an intercept, is below 1 where scores are too extreme. Intervals are of the sandwich over the 64 unit replicates, whose 60 bins of the
score stand for its values; that of the ratio is symmetric in its logarithm. `p_value` is two-sided and tests a calibrated model, with the
ratings and predictions of a unit fully dependent. From stored cells the score is the mean of its cell.

Source: Cox (Biometrika 1958); Van Calster et al. (BMC Medicine 2019), as TRIPOD+AI (Collins et al., BMJ 2024) asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy

from calibrant.accumulators.replicates import SCORE_BINS
from calibrant.calibrators.cell_fits import log_odds
from calibrant.calibrators.recalibration import Recalibration, recalibrate, terms
from calibrant.core.arrays import Floats
from calibrant.core.cells import Cells
from calibrant.core.view import NoResultError, View
from calibrant.inference.replication import tables_for
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    Interval,
    MetricValue,
    bin_scores,
    bounded,
    each_division,
    outcomes_of,
    reject_narrow,
    scored_cells,
)

SANDWICH = "sandwich over 64 unit replicates"
# With fewer expected outcomes of either kind, only lucky samples would have an interval, and it would contain the truth less often.
MIN_EXPECTED, MIN_OUTCOMES, ENOUGH_OUTCOMES = 10.0, 5.0, 60.0


def _p_value(difference: float, deviation: float) -> float | None:
    """Return the two-sided p-value of a difference from a calibrated model."""
    if deviation <= 0.0:
        return None
    return float(2.0 * scipy.special.ndtr(-abs(difference) / deviation))


def _fit(view: View, n_terms: int) -> Recalibration:
    """Return the fit of the view, which value and interval share."""
    key = ("recalibrated", view.scope, n_terms)
    return view.once(key, lambda: recalibrate(scored_cells(view), n_terms))


def _calibrated_deviation(cells: Cells, n_terms: int) -> float:
    """Return the standard deviation of the last coefficient of a calibrated model with these scores."""
    score = np.clip(cells.mean, 0.0, 1.0)
    design = terms(log_odds(score), n_terms)
    information = (design * (cells.weight * score * (1.0 - score))) @ design.T
    if np.linalg.cond(information) > 1e14:
        return 0.0
    inverse = np.linalg.inv(information)
    spread = (design * cells.null_variance) @ design.T
    return float(np.sqrt(max((inverse @ spread @ inverse)[-1, -1], 0.0)))


def _of_cells(n_terms: int) -> Callable[[View, Cells, Floats], Floats]:
    return each_division(lambda view, cells: float(recalibrate(cells, n_terms).coefficients[-1]))


def _error_bound(cells: Cells, intercept: float, n_terms: int) -> float | None:
    """Return the largest change of the intercept by scores inside their cells; None for a slope."""
    if n_terms == 2:
        return None
    ends = (
        recalibrate(replace(cells, confidence=each * cells.weight), 1)
        for each in (cells.lower, cells.upper)
    )
    return max(abs(float(end.coefficients[0]) - intercept) for end in ends)


def _reader(n_terms: int, target: float) -> Callable[[View], MetricValue | None]:
    def read(view: View) -> MetricValue | None:
        cells = scored_cells(view)
        if not len(cells):
            return None
        fit = _fit(view, n_terms)
        difference = float(fit.coefficients[-1])
        extra: dict[str, object] = {
            "p_value": _p_value(difference, _calibrated_deviation(cells, n_terms)),
            "sides": 2,
        }
        if n_terms == 2:
            extra["intercept"] = float(fit.coefficients[0])
        if not view.is_raw:
            extra |= bounded(_error_bound(cells, difference, n_terms), "slope_of_cells")
        return MetricValue(target + difference, extra)

    return read


def _observed(view: View) -> tuple[Floats, Floats, Floats, Floats]:
    """Return mean scores of the bins, and weight, outcomes and scores of each replicate by bin.

    Raises
    ------
    NoResultError
        Replicates do not store this scope, too few are filled, or too few independent outcomes of one kind.
    """
    tables = tables_for(view, view.scope, SCORE_BINS)
    score = bin_scores(view, tables.bins)
    weight = tables.weight[:, 0]
    expected = weight * score
    observed = expected + tables.difference[:, 0]
    if too_few_outcomes(_observed_outcomes(view, observed, weight), expected_outcomes(view)):
        raise NoResultError("few_errors", "fewer than ten independent outcomes of one kind")
    return score, weight, observed, expected


def too_few_outcomes(observed: float, expected: float) -> bool:
    """Return whether an interval would contain the truth too rarely, with so many independent outcomes observed and expected."""
    return observed < MIN_OUTCOMES or (observed < ENOUGH_OUTCOMES and expected < MIN_EXPECTED)


def _observed_outcomes(view: View, observed: Floats, weight: Floats) -> float:
    """Return the effective number of replicates with outcomes of the rarer kind."""
    both = np.stack([observed.sum(axis=1), (weight - observed).sum(axis=1)], axis=1)
    return float(outcomes_of(view, both).min())


def expected_outcomes(view: View) -> float:
    """Return the independent outcomes of the rarer kind that a calibrated model has, a unit's fully dependent."""
    cells = scored_cells(view)
    variance, expected = float(cells.null_variance.sum()), float(cells.confidence.sum())
    rarer = min(expected, float(cells.weight.sum()) - expected)
    return rarer**2 / variance if variance > 0.0 else 0.0


def _interval_of(n_terms: int) -> Callable[[View, MetricValue, int], Interval]:
    def interval(view: View, reading: MetricValue, seed: int) -> Interval:
        score, weight, observed, _ = _observed(view)
        if n_terms == 2:
            reject_narrow(weight)
        fit = _fit(view, n_terms)
        residual = observed - weight * fit.rates(score)
        gradients = residual @ terms(log_odds(score), n_terms).T
        error = float(np.sqrt(fit.covariance(gradients)[-1, -1]))
        reach = _reach(view, len(gradients)) * error
        return Interval(
            (reading.value - reach, reading.value + reach), {"interval_method": SANDWICH}
        )

    return interval


def _reach(view: View, n_groups: int) -> float:
    """Return the quantile of Student's t of the interval."""
    return float(scipy.special.stdtrit(n_groups - 1, 0.5 + view.pane_query.ci / 2.0))


def read_ratio(view: View) -> MetricValue | None:
    """Return observed over expected outcomes."""
    cells = scored_cells(view)
    if not len(cells):
        return None
    observed, expected = float(cells.correct.sum()), float(cells.confidence.sum())
    if expected <= 0.0:
        raise NoResultError("no_expected_outcome", "every score is 0: nothing is expected")
    deviation = float(np.sqrt(max(cells.null_variance.sum(), 0.0)))
    extra = {
        "observed": observed,
        "expected": expected,
        "p_value": _p_value(observed - expected, deviation),
        "sides": 2,
    }
    return MetricValue(observed / expected, extra)


def interval_of_ratio(view: View, reading: MetricValue, seed: int) -> Interval:
    """Return the interval of the ratio, symmetric in its logarithm."""
    _, _, observed, expected = _observed(view)
    influence = observed.sum(axis=1) / observed.sum() - expected.sum(axis=1) / expected.sum()
    n = len(influence)
    error = float(np.sqrt(((influence - influence.mean()) ** 2).sum() * n / (n - 1.0)))
    reach = _reach(view, n) * error
    bounds = (float(reading.value * np.exp(-reach)), float(reading.value * np.exp(reach)))
    return Interval(bounds, {"interval_method": SANDWICH})


METRICS = (
    FormulaMetric(
        slug="oe_ratio",
        title="Observed-to-expected ratio",
        unit="ratio",
        range=(0.0, None),
        direction="one",
        formula="Σ_i w_i y_i / Σ_i w_i s_i",
        exact=True,
        search_words={"observed over expected": "", "expected-to-observed": ""},
        source="Van Calster et al. (BMC Medicine 2019)",
        options=("scope",),
        read=read_ratio,
        interval=interval_of_ratio,
        no_null="two_sided_p_value",
    ),
    FormulaMetric(
        slug="calibration_intercept",
        title="Calibration intercept",
        unit="log odds",
        range=(None, None),
        direction="zero",
        formula="a with Σ_i w_i (y_i - σ(a + logit s_i)) = 0",
        search_words={"calibration in the large": "", "CITL": "", "mean calibration": ""},
        source="Cox (1958); Van Calster et al. (BMC Medicine 2019), slope fixed at 1",
        options=("scope",),
        read=_reader(1, 0.0),
        of_cells=_of_cells(1),
        interval=_interval_of(1),
        no_null="two_sided_p_value",
    ),
    FormulaMetric(
        slug="calibration_slope",
        title="Calibration slope",
        unit="ratio",
        range=(None, None),
        direction="one",
        formula="b of the maximum likelihood of y_i under σ(a + b logit s_i)",
        search_words={"weak calibration": "", "Cox slope": ""},
        source="Cox (1958); Van Calster et al. (BMC Medicine 2019), with its intercept",
        options=("scope",),
        read=_reader(2, 1.0),
        of_cells=_of_cells(2),
        interval=_interval_of(2),
        no_null="two_sided_p_value",
    ),
)
