"""The table behind the uncertainty diagram: share of errors by bin of the normalised entropy, and the ideal curve."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.metrics import compute_metrics
from calibrant.metrics.uce import inverse_binary_entropy
from calibrant.view import View

CURVE = np.arange(101) / 100.0


def uncertainty(view: View, seed: int = 0) -> dict[str, Any]:
    """What the metric `uce` says, with its bins as rows.

    Returns
    -------
    dict of the estimate, with raters, bins, edges; `table`: a row a bin with lower, upper, weight, `mean_uncertainty`,
    `error_rate` and, of two classes, `ideal_error` (None where the bin is empty); `ideal_curve` of two classes.

    Source
    ------
    Laves et al. (2019); Kock, Thielke et al., appendix D.
    """
    question = view.question
    told = compute_metrics(view, ["uce"], seed)["uce"]
    found = told.pop("table", None) or {"bin": [], "weight": [], "uncertainty": [], "error": []}
    ideal = told.pop("ideal_error", None)
    held = {place: i for i, place in enumerate(found["bin"])}
    rows = []
    for place in range(question.bins):
        i = held.get(place)
        row = {
            "lower": place / question.bins,
            "upper": (place + 1) / question.bins,
            "weight": 0.0 if i is None else found["weight"][i],
            "mean_uncertainty": None if i is None else found["uncertainty"][i],
            "error_rate": None if i is None else found["error"][i],
        }
        if ideal is not None:
            row["ideal_error"] = None if i is None else ideal[i]
        rows.append(row)
    curve = None
    if view.spec.n_classes == 2:
        curve = {"uncertainty": CURVE.tolist(), "error": inverse_binary_entropy(CURVE).tolist()}
    about = {"raters": question.raters, "bins": question.bins, "edges": question.edges}
    return told | about | {"table": rows if held else [], "ideal_curve": curve}
