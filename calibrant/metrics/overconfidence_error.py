"""Overconfidence error: the bins whose confidence exceeds their accuracy, weighted by that confidence."""

from __future__ import annotations

import numpy as np

from calibrant.core.arrays import Floats, share
from calibrant.core.view import View
from calibrant.inference.intervals import GapStatistic
from calibrant.inference.null_reference import NullReference, gap_null
from calibrant.metrics.formula_metric import FormulaMetric, MetricValue, OfBins, bin_scores


def overconfidence(score: Floats) -> GapStatistic:
    """Return the statistic over bins of these mean scores; weight and gap (..., n_bins) to (...).

    Source
    ------
    Thulasidasan et al., On Mixup Training (NeurIPS 2019), eq. 3.

    Examples
    --------
    >>> float(overconfidence(np.array([0.5, 0.75]))(np.array([1.0, 1.0]), np.array([0.1, -0.25])))
    0.09375
    """
    return lambda weight, gap: np.asarray(
        (share(weight) * score * np.maximum(-gap, 0.0)).sum(axis=-1)
    )


def read(view: View) -> MetricValue | None:
    table = view.table()
    cells = table.cells
    if not cells.weight.sum():
        return None
    extra = dict(view.pane_query.about_bins)
    if table.discarded_weight:
        extra["discarded_weight"] = table.discarded_weight
    return MetricValue(
        float(overconfidence(np.nan_to_num(cells.mean))(cells.weight, cells.gap)), extra
    )


def of_bins(view: View, reading: MetricValue) -> OfBins:
    """Return the statistic of bins as in other binned metrics. The bins' mean scores are taken as known."""

    def statistic(bins: int) -> GapStatistic:
        of_gaps = overconfidence(bin_scores(view, bins))
        return lambda weight, gap: of_gaps(weight, gap)[..., 0]

    return OfBins(statistic, view.pane_query.bins)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    cells = view.table().cells
    return gap_null(
        overconfidence(np.nan_to_num(cells.mean)), cells.weight, cells.null_variance, seed
    )


METRIC = FormulaMetric(
    slug="overconfidence_error",
    title="Overconfidence error",
    unit="squared probability",
    formula="Σ_m (W_m/W) conf(m) max(conf(m) - acc(m), 0)",
    exact=True,
    search_words={"OE": "", "overconfidence": ""},
    source="Thulasidasan et al. (NeurIPS 2019), eq. 3",
    options=("bins", "binning", "edges", "min_count", "scope"),
    read=read,
    of_bins=of_bins,
    null=null,
)
