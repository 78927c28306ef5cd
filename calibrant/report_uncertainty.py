"""The table behind the uncertainty diagram: share of errors by bin of the normalised entropy, and the ideal curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.core.documents import Extra, Result
from calibrant.core.view import View
from calibrant.inference.reliability_table import wilson
from calibrant.inference.seeds import SEED
from calibrant.metrics import compute_metrics
from calibrant.metrics.uce import inverse_binary_entropy, table_of

Floats = NDArray[np.float64]
CURVE = np.arange(101) / 100.0


def uncertainty(view: View, seed: int = SEED) -> Result:
    """Content of the metric `uce`, with its bins as rows.

    Returns
    -------
    dict of the estimate, with raters, bins, edges; `table`: a row a bin with lower, upper, weight, `mean_uncertainty`,
    `error_rate` with its `interval` and, of two classes, `ideal_error` (None where the bin is empty); `ideal_curve` of two classes.

    Source
    ------
    Laves et al. (2019); Kock, Thielke et al., appendix D.
    """
    pane_query = view.pane_query
    reported = compute_metrics(view, ["uce"], seed)["uce"]
    found = reported.pop("table", None) or {"bin": [], "weight": [], "uncertainty": [], "error": []}
    ideal = reported.pop("ideal_error", None)
    row_of_bin = {place: i for i, place in enumerate(found["bin"])}
    bounds = _intervals(view) if row_of_bin else None
    rows = []
    for place in range(pane_query.bins):
        i = row_of_bin.get(place)
        row = {
            "lower": place / pane_query.bins,
            "upper": (place + 1) / pane_query.bins,
            "weight": 0.0 if i is None else found["weight"][i],
            "mean_uncertainty": None if i is None else found["uncertainty"][i],
            "error_rate": None if i is None else found["error"][i],
            "interval": None
            if i is None or bounds is None
            else [float(each[place]) for each in bounds],
        }
        if ideal is not None:
            row["ideal_error"] = None if i is None else ideal[i]
        rows.append(row)
    curve = None
    if view.spec.n_classes == 2:
        curve = {"uncertainty": CURVE.tolist(), "error": inverse_binary_entropy(CURVE).tolist()}
    about: Extra = {
        "raters": pane_query.raters,
        "bins": pane_query.bins,
        "edges": pane_query.edges,
    }
    about |= {"ci": pane_query.ci}
    return reported | about | {"table": rows if row_of_bin else [], "ideal_curve": curve}


def _intervals(view: View) -> tuple[Floats, Floats] | None:
    """Wilson's interval of each bin's share of errors, with the number of independent predictions that its variance implies.

    None with posted histograms of uncertainty, which have no confidence. As in `reliability`:
    p (1 - p) at the mean confidence, over the variance that labels drawn from the predictions have.
    """
    table = table_of(view)
    if np.isnan(table["confidence"]).any():
        return None
    weight, variance = table["weight"], table["null_variance"]
    share = np.divide(table["confidence"], weight, out=np.zeros(len(weight)), where=weight > 0)
    error = np.divide(
        weight - table["correct"], weight, out=np.zeros(len(weight)), where=weight > 0
    )
    chance = weight**2 * share * (1.0 - share)
    units = np.divide(chance, variance, out=weight.copy(), where=(variance > 0) & (chance > 0))
    return wilson(np.clip(error, 0.0, 1.0), units, view.pane_query.ci)
