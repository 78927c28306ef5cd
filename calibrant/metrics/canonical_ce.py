"""Canonical calibration error: the complete vector of probabilities against the labels of predictions near it.

The label distribution at each prediction is a mean over the others under a Dirichlet kernel. Nothing is binned, and no class is
considered alone. The metric needs complete predictions: posted rows, or the stored sample. With many classes, few predictions are
near each other. `null_mean` is the error of a calibrated model with as many.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.core.arrays import Floats, ratio
from calibrant.core.available_rows import (
    DRAWN_SHARES,
    SHARES,
    AvailableRows,
    drawn_shares,
    paired_rows,
)
from calibrant.core.query import NORM
from calibrant.core.view import NoResultError, View
from calibrant.inference.null_reference import NullReference, quantiles_of
from calibrant.metrics.formula_metric import FormulaMetric, MetricValue
from calibrant.metrics.kde_ece import BANDWIDTH

CLIP = 1e-6
_N_DRAWS = 60
_KERNEL = "kernel of canonical_ce"
_LEAST, _LARGEST = 1e-290, 600.0


def dirichlet_kernel(probabilities: Floats, bandwidth: float, *, diagonal: bool = False) -> Floats:
    """Return the density at row i of a Dirichlet distribution about row j, over the largest other j of each row.

    Parameters
    ----------
    probabilities : float64 (n, n_classes), rows that sum to 1; logarithms are taken of at least `CLIP`
    bandwidth : positive
    diagonal : whether the diagonal has rows' densities about themselves, or 0

    Returns
    -------
    float64 (n, n)

    Source
    ------
    Popordanoska, Sayer, Blaschko (NeurIPS 2022), eq. 9.
    """
    alpha = probabilities / bandwidth + 1.0
    constant = scipy.special.gammaln(alpha.sum(axis=1)) - scipy.special.gammaln(alpha).sum(axis=1)
    matrix = np.log(np.maximum(probabilities, CLIP)) @ (alpha - 1.0).T + constant
    itself = np.diag(matrix).copy()
    np.fill_diagonal(matrix, -np.inf)
    top = matrix.max(axis=1, keepdims=True, initial=-1e300)
    matrix -= top
    if diagonal:
        np.fill_diagonal(matrix, np.minimum(itself - top[:, 0], _LARGEST))
    return np.asarray(np.exp(matrix))


def canonical_error(
    kernel: Floats, rows: AvailableRows, share: Floats, norm: int
) -> tuple[float, float]:
    """Return the error, and the weight of excluded rows: those with no other row of positive weight near them.

    Parameters
    ----------
    kernel : of `dirichlet_kernel`
    share : float64 (n, n_classes), the labels' shares, the rows' own or drawn ones
    norm : 1 for the mean over rows of the sum of gaps over classes, 2 for the root of the mean of summed squares
    """
    near = kernel @ rows.weight
    used = near > _LEAST
    if not used.any():
        return float("nan"), float(rows.weight.sum())
    expected = (kernel @ (rows.weight[:, None] * share))[used] / near[used, None]
    gaps = (np.abs(expected - rows.probabilities[used]) ** norm).sum(axis=1)
    weight = rows.weight[used]
    return float((weight @ gaps / weight.sum()) ** (1.0 / norm)), float(rows.weight[~used].sum())


def of_resamples(view: View, times: Floats) -> Floats:
    """Return values of resamples. A row that is taken twice has another one at distance zero.

    Raises
    ------
    NoResultError
        More rows than can be compared with each other.
    """
    rows = paired_rows(view)
    if rows is None or len(rows) != times.shape[1]:
        raise NoResultError(
            "too_many_rows", "there are too many rows to compare all of them with each other"
        )
    norm = int(NORM.of(view.pane_query))
    kernel = dirichlet_kernel(
        rows.probabilities, float(BANDWIDTH.of(view.pane_query)), diagonal=True
    )
    again, weight = (
        np.diag(kernel) * rows.weight * np.maximum(times - 1.0, 0.0),
        times * rows.weight,
    )
    np.fill_diagonal(kernel, 0.0)
    near = weight @ kernel.T + again
    used = (near > _LEAST) & (times > 0)
    gaps = np.zeros(times.shape)
    for share, probability in zip(rows.share.T, rows.probabilities.T, strict=True):
        expected = np.divide(
            (weight * share) @ kernel.T + again * share, near, out=np.zeros(times.shape), where=used
        )
        gaps += np.where(used, np.abs(expected - probability) ** norm, 0.0)
    total = (weight * used).sum(axis=1)
    mean = ratio((weight * gaps).sum(axis=1), total, np.nan)
    return np.asarray(mean ** (1.0 / norm))


def read(view: View) -> MetricValue | None:
    rows = paired_rows(view)
    if rows is None:
        return None
    if len(rows) < 2:
        raise NoResultError("too_few_samples", "no other prediction is available for comparison")
    bandwidth, norm = float(BANDWIDTH.of(view.pane_query)), int(NORM.of(view.pane_query))
    kernel = view.once(_KERNEL, lambda: dirichlet_kernel(rows.probabilities, bandwidth))
    value, isolated = canonical_error(kernel, rows, rows.share, norm)
    if not np.isfinite(value):
        raise NoResultError(
            "too_few_samples", "no prediction has another one near enough for comparison"
        )
    extra: dict[str, object] = {
        "bandwidth": bandwidth,
        "norm": norm,
        "clip": CLIP,
        "leave": "instance",
        **rows.about,
    }
    extra["null_assumption"] = DRAWN_SHARES
    if isolated > 0.0:
        extra["isolated_weight"] = isolated
    return MetricValue(value, extra)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    rows = paired_rows(view)
    assert rows is not None
    bandwidth, norm = float(BANDWIDTH.of(view.pane_query)), int(NORM.of(view.pane_query))
    kernel = view.once(_KERNEL, lambda: dirichlet_kernel(rows.probabilities, bandwidth))
    view.forget(_KERNEL)
    drawn = drawn_shares(rows, _N_DRAWS, seed, view.pane_query.raters in SHARES)
    return quantiles_of(
        np.array([canonical_error(kernel, rows, share, norm)[0] for share in drawn])
    )


METRIC = FormulaMetric(
    slug="canonical_ce",
    title="Canonical calibration error",
    unit="probability, summed over classes",
    range=(0.0, 2.0),
    needs=("sample",),
    formula="mean_i ‖E^[y | p_i] - p_i‖, Dirichlet kernel",
    search_words={"canonical calibration error": "", "CCE": ""},
    source="Popordanoska, Sayer, Blaschko (NeurIPS 2022), Dirichlet kernel",
    own_options=(BANDWIDTH, NORM),
    read=read,
    of_resamples=of_resamples,
    null=null,
)
