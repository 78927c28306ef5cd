"""Reliability table of the diagram: per bin confidence, accuracy and its interval."""

from __future__ import annotations

import numpy as np
import scipy

from calibrant.core.arrays import Floats, ratio
from calibrant.core.cells import Cells
from calibrant.core.documents import Result, Row
from calibrant.core.view import NoResultError, View
from calibrant.inference.gap_uncertainty import design_effect_of, has_named_units

INTERVAL_METHOD = "wilson, with the effective number of independent units of the bin"


def reliability(view: View) -> Result:
    """Return the table of the query's bins, as JSON-able numbers.

    Returns
    -------
    dict with scope, raters, binning, bins, edges, n, n_ratings, n_units, weight, mean_confidence, accuracy, the
    `table` of one object per bin (empty bins listed with null means), and `reason` if there is no data.
    """
    pane_query, counts = view.pane_query, view.counts
    result: Result = {
        "scope": view.scope,
        "raters": pane_query.raters,
        "binning": pane_query.binning,
        **pane_query.about_bins,
        "edges": pane_query.edges,
        "min_count": pane_query.min_count,
        "ci": pane_query.ci,
        "n": counts["n_labelled"],
        "n_predictions": counts["n_predictions"],
        "n_ratings": counts["n_ratings"],
        "n_units": counts["n_units"],
        "n_majority_ties": counts["n_majority_ties"],
        "interval_method": INTERVAL_METHOD,
    }
    try:
        table = view.table()
    except NoResultError as rejection:
        return result | {
            "table": [],
            "weight": None,
            "mean_confidence": None,
            "accuracy": None,
            "reason": rejection.reason,
            "detail": rejection.detail,
            "n_excluded": rejection.n_excluded,
        }
    cells = table.cells
    weight = float(cells.weight.sum())
    result |= {
        "weight": weight,
        "mean_confidence": float(cells.confidence.sum()) / weight if weight else None,
        "accuracy": float(cells.correct.sum()) / weight if weight else None,
        "discarded_weight": table.discarded_weight,
        "table": _rows(cells, table.edges, pane_query.ci, _units_of(view, cells)),
    }
    return result if weight else result | {"reason": "no_data"}


def _units_of(view: View, cells: Cells) -> Floats:
    """Return the effective number of independent units of each bin.

    The replicates show how much the rows of a unit depend on each other: their design effect divides Kish's number of samples of
    a bin. Without named units, or with too few of them, nothing is known of that, and rows of a unit count as fully dependent.
    """
    least = fully_dependent_units(cells)
    if not has_named_units(view):
        return least
    try:
        effect = design_effect_of(view)
    except NoResultError:
        return least
    squared = cells.weight_squared
    kish = ratio(cells.weight**2, squared)
    most = np.maximum(least, cells.predictions)
    return np.clip(kish / max(effect, 1.0), least, most)


def fully_dependent_units(cells: Cells) -> Floats:
    """Return the effective number of independent units of each bin: its predictions, or fewer if units or weights are dependent.

    A bin's stored variance is that of its correct ratings if every unit's contributions, to all bins, were fully dependent.
    p (1 - p) at the mean over that variance per squared weight is the number of independent samples with the same variance.
    """
    mean = np.nan_to_num(cells.mean)
    spread = cells.weight**2 * mean * (1.0 - mean)
    known = cells.null_variance > 0
    units = np.divide(spread, cells.null_variance, out=np.full(len(cells), np.inf), where=known)
    most = np.where(cells.predictions > 0, cells.predictions, cells.count)
    return np.asarray(np.minimum(units, most), np.float64)


def wilson(
    rate: Floats, n: Floats, ci: float, degrees: float | None = None
) -> tuple[Floats, Floats]:
    """Return Wilson's score interval of a share, with n possibly fractional; [0, 1] if n is 0.

    Parameters
    ----------
    rate, n : float64, of any equal shape
    ci : nominal coverage
    degrees : degrees of freedom of Student's quantile, where `n` is estimated from so few values; None for the normal one

    Source
    ------
    Wilson (JASA 1927).

    Examples
    --------
    >>> [float(end.round(4)) for end in wilson(np.array(0.2), np.array(50.0), 0.95)]
    [0.1124, 0.3304]
    """
    level = 0.5 + ci / 2.0
    quantile = (
        scipy.special.ndtri(level) if degrees is None else scipy.special.stdtrit(degrees, level)
    )
    z2 = quantile**2
    scale = 1.0 + ratio(z2, n, np.inf)
    share = ratio(z2, n)
    centre = (rate + share / 2.0) / scale
    reach = np.sqrt(np.maximum(share * rate * (1.0 - rate) + share**2 / 4.0, 0.0)) / scale
    lower, upper = np.clip(centre - reach, 0.0, 1.0), np.clip(centre + reach, 0.0, 1.0)
    return np.where(n > 0, lower, 0.0), np.where(n > 0, upper, 1.0)


def _rows(cells: Cells, edges: Floats, ci: float, units: Floats) -> list[Row]:
    rate = np.nan_to_num(cells.rate)
    lower, upper = wilson(np.clip(rate, 0.0, 1.0), units, ci)
    rows = []
    for i in range(len(cells)):
        filled = bool(cells.weight[i] > 0)
        rows.append(
            {
                "bin": i,
                "lower": float(edges[i]),
                "upper": float(edges[i + 1]),
                "count": int(cells.count[i]),
                "n_predictions": int(cells.predictions[i]),
                "n_effective": float(units[i]) if filled else 0.0,
                "weight": float(cells.weight[i]),
                "sum_confidence": float(cells.confidence[i]),
                "sum_correct": float(cells.correct[i]),
                "mean_confidence": float(cells.mean[i]) if filled else None,
                "accuracy": float(cells.rate[i]) if filled else None,
                "gap": float(cells.gap[i]) if filled else None,
                "interval": [float(lower[i]), float(upper[i])] if filled else None,
            }
        )
    return rows
