"""Uncertainty calibration error: normalised entropy against the share of errors, in bins of the entropy.

A calibrated model does not have a UCE of 0: its errors follow its confidence, which differs from entropy. `null_mean` is the UCE of a
calibrated model. For two classes the diagram has the ideal curve.
"""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.accumulators.block import Block
from calibrant.accumulators.entropy_cells import (
    SUMS,
    fill_uncertainty,
    normalised_entropy,
    uncertainty_grid,
)
from calibrant.core.arrays import Floats
from calibrant.core.grid import equal_width_bin, on_edge
from calibrant.core.label_policies import POLICIES
from calibrant.core.view import NoResultError, View
from calibrant.inference.null_reference import N_DRAWS, NullReference, quantiles_of
from calibrant.metrics.formula_metric import FormulaMetric, MetricValue


def inverse_binary_entropy(uncertainty: Floats) -> Floats:
    """Return the error in [0, 1/2] whose entropy, divided by log 2, is this: the ideal curve of two classes; (n,) to (n,).

    Examples
    --------
    >>> inverse_binary_entropy(np.array([0.0, 1.0])).round(6).tolist()
    [0.0, 0.5]
    """
    wanted = np.clip(uncertainty, 0.0, 1.0) * np.log(2.0)
    low, high = np.zeros(len(wanted)), np.full(len(wanted), 0.5)
    for _ in range(60):
        middle = (low + high) / 2.0
        above = scipy.special.entr(middle) + scipy.special.entr(1.0 - middle) > wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray((low + high) / 2.0)


def uncertainty_error(weight: Floats, uncertainty: Floats, error: Floats) -> Floats:
    """Return the mean absolute gap of error and uncertainty by weight; all (..., n_bins), to (...).

    Source
    ------
    Laves, Ihler, Kortmann, Ortmaier (2019).
    """
    return np.asarray((weight * np.abs(error - uncertainty)).sum(axis=-1) / weight.sum(axis=-1))


def table_of(view: View) -> dict[str, Floats]:
    """Return sums by bin of the uncertainty under the requested policy: weight, uncertainty, confidence, correct, null_variance.

    Raises
    ------
    NoResultError
        Plain histograms of other kinds alone, or bins that its grid cannot
        give exactly. Histograms of uncertainty count; they have no confidence, so that `confidence` is nan in their bins.
    """
    posted = view.posted_table("uncertainty")
    sums = _raw_sums(view) if view.is_raw else _stored_sums(view)
    suffix = "_pooled" if view.policy == 0 else ""
    at = dict(zip(SUMS, sums, strict=True))
    found = {
        name: at[name + suffix] for name in ("weight", "uncertainty", "confidence", "null_variance")
    }
    found["correct"] = at["correct_" + POLICIES[view.policy]]
    if posted is None:
        return found
    count, uncertainty, correct = posted.reshape(3, view.pane_query.bins, -1).sum(axis=2)
    return found | {
        "weight": found["weight"] + count,
        "uncertainty": found["uncertainty"] + uncertainty,
        "correct": found["correct"] + correct,
        "confidence": np.where(count > 0.0, np.nan, found["confidence"]),
    }


def _stored_sums(view: View) -> Floats:
    block = view.pane["uncertainty"].blocks["cells"]
    places, _, sums = block.filled()
    grid, bins = uncertainty_grid(), view.pane_query.bins
    if bins not in grid.exact_bins:
        exact = ", ".join(map(str, grid.exact_bins))
        raise NoResultError(
            "bins_not_exact", f"the grid of uncertainties gives {exact} bins, not {bins}"
        )
    place = grid.bins(bins, view.pane_query.edges)[places]
    return np.stack([np.bincount(place, column, bins) for column in sums]).astype(np.float64)


def _raw_sums(view: View) -> Floats:
    batch_sums, bins = view.batch_sums, view.pane_query.bins
    assert batch_sums is not None
    block = Block(1, len(SUMS), bins)
    if batch_sums.n:
        uncertainty = normalised_entropy(batch_sums.batch.probabilities)
        fill_uncertainty(
            block,
            batch_sums,
            equal_width_bin(on_edge(uncertainty, bins), bins, view.pane_query.edges),
            uncertainty,
        )
    return block.sums


def read(view: View) -> MetricValue | None:
    table = table_of(view)
    weight = table["weight"]
    if not weight.sum():
        return None
    filled = weight > 0
    filled_weight = weight[filled]
    uncertainty, error = (
        table["uncertainty"][filled] / filled_weight,
        1.0 - table["correct"][filled] / filled_weight,
    )
    extra: dict[str, object] = {
        "bins": view.pane_query.bins,
        "binning": "equal_width",
        "scope": "uncertainty",
        "table": {
            "bin": np.flatnonzero(filled).tolist(),
            "weight": filled_weight.tolist(),
            "uncertainty": uncertainty.tolist(),
            "error": error.tolist(),
        },
    }
    if view.spec.n_classes == 2:
        ideal = inverse_binary_entropy(uncertainty)
        extra["ideal_error"] = ideal.tolist()
        extra["distance_to_ideal"] = float(uncertainty_error(filled_weight, ideal, error))
    extra |= view.histogram_counts("uncertainty")
    return MetricValue(float(uncertainty_error(filled_weight, uncertainty, error)), extra)


def null(view: View, reading: MetricValue, seed: int) -> NullReference:
    """Return the null reference: errors of each bin drawn around one minus its confidence."""
    table = table_of(view)
    weight = table["weight"]
    filled = weight > 0
    filled_weight = weight[filled]
    if np.isnan(table["confidence"]).any():
        raise NoResultError(
            "not_in_histogram",
            "histograms of uncertainty have no confidence, which labels are drawn from",
        )
    draws = np.random.default_rng(seed).standard_normal((N_DRAWS, len(filled_weight)))
    error = (
        1.0
        - table["confidence"][filled] / filled_weight
        + draws * np.sqrt(np.maximum(table["null_variance"][filled], 0.0)) / filled_weight
    )
    return quantiles_of(
        uncertainty_error(filled_weight, table["uncertainty"][filled] / filled_weight, error)
    )


METRIC = FormulaMetric(
    slug="uce",
    title="Uncertainty calibration error",
    unit="share",
    needs=("uncertainty",),
    formula="Σ_m (W_m/W) |err(m) - uncert(m)|, bins of normalised entropy",
    exact=True,
    search_words={"uncertainty calibration error": "", "UCE": ""},
    source="Laves, Ihler, Kortmann, Ortmaier (2019); Kock, Thielke et al.",
    options=("bins", "edges"),
    read=read,
    no_interval="uncertainty_not_replicated",
    null=null,
)
