"""Kernel calibration error (kdeECE); with `raters=pooled` the multi-rater form, from counts.

More distinct scores than `MAX_POINTS` are first grouped: evenly in the score and, near 0 and 1, evenly in its logarithm, on which the
kernel depends there. The cost therefore does not grow with the number of predictions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant.core.arrays import Floats, Ints, share
from calibrant.core.cells import Cells
from calibrant.core.query import Option
from calibrant.core.view import NoResultError, View
from calibrant.estimators.kernel import (
    CLIP,
    LEAVES,
    KernelPoints,
    kernel_distances,
    kernel_error,
    kernel_rows,
    likeliest_bandwidth,
    points_of,
    resampled_errors,
)
from calibrant.estimators.kernel_bound import kernel_error_bound
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.null_reference import (
    DRAWN,
    NullReference,
    drawn_correct,
    independent,
    quantiles_of,
)
from calibrant.metrics.formula_metric import (
    FormulaMetric,
    MetricValue,
    OfBins,
    bin_scores,
    bounded,
    scored_cells,
)

MAX_POINTS = 1500
MAX_NULL_POINTS = 300
N_DRAWS = 200
FINENESS, NULL_FINENESS = 1200, 200
_ESTIMATE = "what cells of twice the width change, where errors are four times as large"
BANDWIDTH = Option("bandwidth", 0.02, "Bandwidth of the beta kernel.", low=1e-4, high=1.0)
LEAVE = Option(
    "leave",
    "label",
    "What a sample leaves out of its own estimate: its own rating, or its prediction with all ratings.",
    allowed=LEAVES,
)
SELECTION = Option(
    "selection",
    "fixed",
    "`fixed` uses `bandwidth`; `likelihood` uses the one of a few with the largest leave-one-out likelihood, which is "
    "fragile where scores concentrate at 1.",
    allowed=("fixed", "likelihood"),
)


def places(score: Floats, fineness: int) -> Ints:
    """Return groups of scores for the kernel: `fineness` over [0, 1], and a 200th of it in each halving towards 0 or 1."""
    clipped = np.clip(score, CLIP, 1.0 - CLIP)
    return np.floor(fineness * (clipped + np.log2(clipped / (1.0 - clipped)) / 200.0)).astype(
        np.int64
    )


def points(view: View, most: int, fineness: int) -> tuple[Cells, KernelPoints]:
    """Return the cells of the requested scope, grouped if they are more than `most`, and their points."""
    leave = LEAVE.of(view.pane_query)
    cells = scored_cells(view)
    if view.batch_sums is not None and view.batch_sums.n <= most:
        # Rows of one score may differ in weight or in ratings, and each leaves out its own.
        rows = view.row_cells(view.scope)
        rows = rows.select(rows.weight > 0)
        cells = rows if len(rows) <= most else cells
    if len(cells) > most:
        cells = cells.at_places(places(cells.mean, fineness))
    return cells, points_of(cells, leave, view.pane_query.raters == "mean")


def read(view: View) -> MetricValue | None:
    cells, found = points(view, MAX_POINTS, FINENESS)
    if not len(cells):
        return None
    bandwidth = float(BANDWIDTH.of(view.pane_query))
    extra: dict[str, object] = {"leave": LEAVE.of(view.pane_query), "clip": CLIP}
    if SELECTION.of(view.pane_query) == "likelihood":
        bandwidth, extra["bandwidth_at_bound"] = likeliest_bandwidth(found)
    distances, estimated = kernel_distances(found, found.correct_ratings[None], bandwidth)
    if not estimated.any():
        raise NoResultError(
            "too_few_samples", "no sample has another one near enough to estimate its accuracy"
        )
    isolated = float(found.weight[~estimated].sum())
    value = float(distances.sum() / found.weight[estimated].sum())
    extra |= {
        "bandwidth": bandwidth,
        "selection": SELECTION.of(view.pane_query),
        "n_points": len(cells),
    }
    extra["null_assumption"] = DRAWN
    if isolated > 1e-9 * cells.weight.sum():
        extra["isolated_weight"] = isolated
    if not view.is_raw or len(scored_cells(view)) > MAX_POINTS:
        extra |= bounded(_error_bound(view, cells, found, bandwidth), "left_out_not_known")
        extra["error_estimate"] = _grid_error(view, cells, distances[0], bandwidth)
        extra["error_estimate_method"] = _ESTIMATE
    return MetricValue(value, extra)


def _error_bound(view: View, cells: Cells, found: KernelPoints, bandwidth: float) -> float | None:
    """Bound the change for scores and outcomes anywhere inside their cells; None where cells do not determine what each leaves out.

    That is so for weighted predictions, and for those with several ratings that are left out together.
    """
    single = np.isnan(found.own_correct)
    pooled = view.pane_query.raters == "pooled"
    known = bool(single.all()) or (not pooled and bool((cells.predictions == cells.count).all()))
    if view.weighted or not known:
        return None
    return kernel_error_bound(cells, found, bandwidth, own_unknown=not single.all())


def _grid_error(view: View, cells: Cells, distances: Floats, bandwidth: float) -> float:
    """Return the change when pairs of neighbouring cells replace single ones, pair by pair without cancelling.

    The error of cells is of second order in their width, so this is about three times as large.
    """
    pair = np.arange(len(cells)) // 2
    coarse = points_of(
        cells.grouped(pair, int(pair[-1]) + 1),
        LEAVE.of(view.pane_query),
        view.pane_query.raters == "mean",
    )
    change = kernel_distances(coarse, coarse.correct_ratings[None], bandwidth)[0][0] - np.bincount(
        pair, distances
    )
    return float(np.abs(change).sum() / cells.weight.sum())


def of_bins(view: View, reading: MetricValue) -> OfBins:
    """Return kernel means of the bins' gaps at the bandwidth of the value.

    They contain the kernel's own bias, which a calibrated model has too. It is therefore not part of the interval, which can include 0.
    """
    bandwidth = float(str(reading.extra["bandwidth"]))

    def statistic(bins: int) -> GapStatistic:
        score = np.clip(bin_scores(view, bins), CLIP, 1.0 - CLIP)
        kernel = np.concatenate([rows for _, rows in kernel_rows(score, bandwidth)]).T.astype(
            np.float32
        )

        def of_gaps(weight: Floats, gap: Floats) -> Floats:
            smoothed = ((weight * gap) @ kernel) / np.maximum(weight @ kernel, 1e-30)
            return np.asarray((share(weight) * np.abs(smoothed)).sum(axis=(-1, -2)))

        return of_gaps

    return OfBins(statistic)


def of_resamples(view: View, times: Floats) -> Floats:
    """Return values of resamples, at the requested bandwidth or the likeliest one for all rows together."""
    rows = view.rows(view.scope)
    kept = rows.weight > 0
    found = points_of(
        rows.select(kept), LEAVE.of(view.pane_query), view.pane_query.raters == "mean"
    )
    bandwidth = float(BANDWIDTH.of(view.pane_query))
    if SELECTION.of(view.pane_query) == "likelihood":
        bandwidth = likeliest_bandwidth(found)[0]
    return resampled_errors(found, np.tile(times, len(rows) // times.shape[1])[:, kept], bandwidth)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the null reference, from labels drawn cell by cell, in fewer cells."""
    cells = independent(points(view, MAX_NULL_POINTS, NULL_FINENESS)[0])
    found = points_of(cells, LEAVE.of(view.pane_query), view.pane_query.raters == "mean")
    drawn = drawn_correct(cells, N_DRAWS, seed)
    if not np.isnan(found.own_correct).any():
        found = replace(found, own_correct=found.own_weight * np.clip(cells.mean, CLIP, 1.0 - CLIP))
    values = kernel_error(found, drawn, float(str(reading.extra["bandwidth"])))[0]
    return quantiles_of(values)


METRIC = FormulaMetric(
    slug="kde_ece",
    title="Kernel calibration error",
    formula="mean_i |E^[correct | s_i] - s_i|, beta kernel, leave-one-out",
    search_words={
        "kdeECE": "",
        "ECE KDE": "",
        "MR-kdeECE": "raters=pooled and leave=instance in brackets",
    },
    source="Popordanoska, Sayer, Blaschko (NeurIPS 2022); Riera-Marin et al. for several raters",
    options=("scope",),
    own_options=(BANDWIDTH, LEAVE, SELECTION),
    read=read,
    of_bins=of_bins,
    of_resamples=of_resamples,
    null=null,
)
