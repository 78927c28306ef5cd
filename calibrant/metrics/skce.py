"""Squared kernel calibration error (SKCE): an unbiased estimate with mean 0 for a calibrated model.

Residuals (labels' shares minus probabilities) of two predictions agree more than by chance if the model errs in one direction near
both. Only pairs of different units are used. The `p_value` is the share of label draws from the predictions with at least as large a
value. `t_cal` has the p-value of a second test of the same rows, by bins. The metric needs complete predictions: posted rows, or the
stored sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from calibrant.core.arrays import Floats
from calibrant.core.available_rows import (
    DRAWN_SHARES,
    SHARES,
    AvailableRows,
    drawn_shares,
    paired_rows,
)
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.inference.closed_null import Gamma
from calibrant.inference.null_reference import NullReference, quantiles_of
from calibrant.inference.t_cal import MIN_ROWS, t_cal
from calibrant.metrics.formula_metric import FormulaMetric, Interval, MetricValue
from calibrant.metrics.l2_ece_squared import reject_others
from calibrant.metrics.metric import Estimate

MIN_UNITS = 20
N_DRAWS = 100
_PAIRS = "pairs of skce"
_METHOD = "inverted: noise of a calibrated model, and that of an error in proportion to it"
KERNEL_WIDTH = Option(
    "kernel_width",
    0.0,
    "Distance between probability vectors over which the kernel falls to 1 / e; 0 uses the median distance of two.",
    low=0.0,
    high=2.0,
)


class Pairs(NamedTuple):
    """Pairs of rows of different units.

    Attributes
    ----------
    weight : (n,), sum of the weights of each row's pairs
    kernel : (n, n), weight of each pair times the kernel; 0 within a unit
    width : of the kernel
    """

    weight: Floats
    kernel: Floats
    width: float


def distances(probabilities: Floats) -> Floats:
    """Return Euclidean distances of all pairs of rows; (n, n)."""
    squares = (probabilities**2).sum(axis=1)
    square = probabilities @ probabilities.T
    square *= -2.0
    square += squares[:, None] + squares
    return np.sqrt(np.maximum(square, 0.0, out=square), out=square)


def pairs_of(rows: AvailableRows, width: float) -> Pairs:
    """Return the pairs of rows of different units. One matrix of numbers is in memory at a time, and for a median a copy.

    Parameters
    ----------
    width : of the exponential kernel, 0 for the median distance of two rows of different units
    """
    of_other_units = rows.unit[:, None] != rows.unit
    kernel = distances(rows.probabilities)
    if not width and of_other_units.any():
        width = float(np.median(kernel[of_other_units], overwrite_input=True))
    kernel /= -(width or 1.0)
    np.exp(kernel, out=kernel)
    kernel *= rows.weight[:, None]
    kernel *= rows.weight
    kernel *= of_other_units
    return Pairs(rows.weight * (of_other_units @ rows.weight), kernel, width or 1.0)


def row_agreement(kernel: Floats, residual: Floats) -> Floats:
    """Return the sum over all other rows of kernel times the product of residuals; (n,)."""
    return np.asarray(((kernel @ residual) * residual).sum(axis=1))


def _pairs(view: View, rows: AvailableRows) -> Pairs:
    width = float(KERNEL_WIDTH.of(view.pane_query))
    return view.once(_PAIRS, lambda: pairs_of(rows, width))


def read(view: View) -> MetricValue | None:
    rows = paired_rows(view)
    if rows is None:
        return None
    pairs = _pairs(view, rows)
    total = float(pairs.weight.sum())
    if not total:
        raise NoResultError("too_few_units", "no two predictions of different units are available")
    value = float(row_agreement(pairs.kernel, rows.share - rows.probabilities).sum()) / total
    about = {"kernel": "exponential", "kernel_width": pairs.width, **rows.about}
    return MetricValue(value, about | {"null_assumption": DRAWN_SHARES})


def drawn_errors(view: View, seed: int) -> Floats:
    """Return estimates of a calibrated model with the same predictions."""
    rows = paired_rows(view)
    assert rows is not None
    pairs = _pairs(view, rows)
    return view.once(
        ("skce_drawn", seed),
        lambda: _drawn(view, rows, pairs.kernel.astype(np.float32), seed) / pairs.weight.sum(),
    )


def _drawn(view: View, rows: AvailableRows, kernel: NDArray[np.float32], seed: int) -> Floats:
    expected = rows.probabilities.astype(np.float32)
    several = view.pane_query.raters in SHARES
    found = np.empty(N_DRAWS)
    for i, share in enumerate(drawn_shares(rows, N_DRAWS, seed, several)):
        residual = share.astype(np.float32) - expected
        found[i] = float(((kernel @ residual) * residual).sum(dtype=np.float64))
    return found


def interval(view: View, reading: MetricValue, seed: int) -> Interval:
    """Compute the interval: the true errors that the estimate does not contradict, at least 0.

    At a true error s, the estimate varies as that of a calibrated model does, and also by the sum of each unit's agreement with the true
    error. The variance of this sum is proportional to s.
    """
    rows = paired_rows(view)
    assert rows is not None
    pairs = _pairs(view, rows)
    n_units = int(rows.unit.max()) + 1
    if n_units < MIN_UNITS:
        raise NoResultError(
            "too_few_units", f"{n_units} units are available; intervals need at least {MIN_UNITS}"
        )
    tail = (1.0 - view.pane_query.ci) / 2.0
    slope = scipy.special.ndtri(tail) ** 2 * _variance_per_error(rows, pairs)
    below, above = _tails(drawn_errors(view, seed), tail)
    value = reading.value
    # At the lower end the variance is that at the estimate: in proportion to a smaller error, it would be too small.
    low = value - float(np.sqrt(slope * max(value, 0.0) + above**2))
    spread = slope * value + slope**2 / 4.0 + below**2
    high = value + slope / 2.0 + float(np.sqrt(max(spread, 0.0)))
    return Interval(
        (max(low, 0.0), max(high, 0.0)), {"interval_method": _METHOD, "n_units": n_units}
    )


def _tails(drawn: Floats, tail: float) -> tuple[float, float]:
    """Return how far estimates of a calibrated model are below and above 0 with this probability each."""
    mean, deviation = float(drawn.mean()), float(drawn.std(ddof=1))
    if not deviation:
        return 0.0, 0.0
    skewness = float((((drawn - mean) / deviation) ** 3).mean())
    low, high = Gamma(0.0, deviation, max(skewness, 0.0)).quantiles(np.array([tail, 1.0 - tail]))
    # Draws are as many as their quantile needs, so that no interval excludes 0 where the reference explains the value.
    return -float(low), max(float(high), float(np.quantile(drawn, 0.95)))


def _variance_per_error(rows: AvailableRows, pairs: Pairs) -> float:
    """Return the variance of the sum of units' agreements, divided by the squared error, both with each unit's pairs with itself."""
    residual = rows.share - rows.probabilities
    own = (rows.weight[:, None] * residual) ** 2
    agreement = row_agreement(pairs.kernel, residual) + own.sum(axis=1)
    by_unit = np.bincount(rows.unit, agreement)
    total = float(pairs.weight.sum())
    error = float(by_unit.sum()) / total
    variance = 4.0 * len(by_unit) * float(by_unit.var()) / total**2
    return variance / error if error > 0 else 0.0


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    return quantiles_of(drawn_errors(view, seed))


def t_cal_of(view: View, seed: int) -> dict[str, Any]:
    """Return T-Cal of the available rows, of class 1 of two classes, else of the top label; otherwise the reason why there is none."""
    rows = paired_rows(view)
    assert rows is not None
    try:
        reject_others(view)
    except NoResultError as rejection:
        return {"p_value": None, "reason": rejection.reason}
    if len(rows) < MIN_ROWS:
        return {"p_value": None, "reason": "too_few_units"}
    binary = rows.probabilities.shape[1] == 2
    top = np.ones(len(rows), np.int64) if binary else rows.probabilities.argmax(axis=1)
    at = np.arange(len(rows)), top
    found = t_cal(rows.probabilities[at], rows.share[at], seed)
    return {"scope": "class:1" if binary else "top_label", **found}


@dataclass(frozen=True)
class KernelTest(FormulaMetric):
    """The metric with the p-value of its test, from the draws of the null reference, and with T-Cal."""

    def estimate(self, view: View, seed: int) -> Estimate:
        found = super().estimate(view, seed)
        if found.value is None:
            return found
        as_much = int((drawn_errors(view, seed) >= found.value).sum())
        view.forget(_PAIRS)
        tests = {"p_value": (1.0 + as_much) / (1.0 + N_DRAWS), "t_cal": t_cal_of(view, seed)}
        return replace(found, extra={**found.extra, **tests})


METRIC = KernelTest(
    slug="skce",
    title="Squared kernel calibration error",
    unit="squared probability",
    range=(-2.0, 2.0),
    # T-Cal is only for rows of equal weight, which the cells of the score show.
    needs=("sample", "scope"),
    formula="mean over pairs of k(p_i, p_j) (y_i - p_i)·(y_j - p_j)",
    exact=False,
    search_words={"SKCE": "", "KCE": "", "kernel calibration error": "", "MMCE": "", "T-Cal": ""},
    source="Widmann, Lindsten, Zachariah (NeurIPS 2019), unbiased quadratic estimator",
    own_options=(KERNEL_WIDTH,),
    lowest_truth=0.0,
    read=read,
    interval=interval,
    null=null,
)
