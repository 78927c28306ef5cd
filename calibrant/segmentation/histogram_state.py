"""Confidence histogram of a window, from its stored cells, or from its stored sample if that is complete.

If the bins divide the grid's cells, it equals the histogram of the window's predictions, to rounding. A complete sample gives any
number of bins, such as the 2^14 of the publication.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrant.core.arrays import Floats
from calibrant.core.batch import Batch
from calibrant.core.cells import Cells
from calibrant.core.documents import Result
from calibrant.core.pane import Pane
from calibrant.core.query import PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.metrics.uce import table_of
from calibrant.segmentation.case_errors import case_errors
from calibrant.segmentation.class_histograms import EXACT, ConfidenceHistogram
from calibrant.segmentation.histogram_measures import smoothed


def confidence_of(view: View, *, case: str | None = None, smoothing: int = 0) -> Result:
    """Return the contents of a `ConfidenceHistogram` of the view's predictions, JSON-able.

    Parameters
    ----------
    view : with edges "left" and any number of bins that divides the class-wise grid (600 for a case); any number with raw rows
    case : one case alone; its predictions are unknown, only its labels are known
    smoothing : as in `histogram_smoothing.smoothed`

    Returns
    -------
    dict with raters, bins, edges, smoothing, n, n_ratings, source ("state" or "sample"), `mass`, `label` (n_classes, 2, bins), `prediction`
    (2, bins), `uncertainty` (2, bins) and `exact` (sums of NLL and Brier); None, with reasons in `missing`, for what the
    window lacks. Uncertainty is stored in 240 cells, and so known for divisors of 240.

    Raises
    ------
    NoResultError
        Classes are not stored, bins are not exact, plain histograms have other options, or the case is unknown.
    """
    pane_query, counts = view.pane_query, view.counts
    result: Result = {
        "raters": pane_query.raters,
        "bins": pane_query.bins,
        "edges": pane_query.edges,
        "smoothing": smoothing,
        "n": counts["n_labelled"],
        "n_ratings": counts["n_ratings"],
        "source": "sample" if view.is_raw else "state",
    }
    if view.batch_sums is not None and case is None:
        return result | _of_rows(view.batch_sums.batch, pane_query, smoothing)
    label = _of_case(view, case) if case is not None else _of_classes(view)
    parts: Result = {"label": smoothed(label, smoothing).tolist()}
    missing = {}
    for name, make in (
        ("prediction", _prediction),
        ("uncertainty", _uncertainty),
        ("exact", _exact),
    ):
        try:
            if case is not None:
                raise NoResultError(
                    "not_kept_by_case", "a case stores only the histograms of its classes"
                )
            found = make(view)
            parts[name] = found if isinstance(found, dict) else smoothed(found, smoothing).tolist()
        except NoResultError as rejection:
            parts[name], missing[name] = None, rejection.reason
    return result | {"mass": float(label[0].sum()), **parts, "missing": missing}


def complete_rows(pane: Pane, bins: int) -> Batch | None:
    """Return the rows of a pane whose cells do not give these bins and whose sample has every labelled prediction; else None."""
    if bins in pane.spec.class_grid.exact_bins or "sample" not in pane.names:
        return None
    sample = pane.sample
    is_complete = 0 < sample.n == pane.counts["n_labelled"]
    has_histograms = pane.keeps("histograms") and not pane["histograms"].is_empty
    return sample.batch() if is_complete and not has_histograms else None


def _of_rows(batch: Batch, pane_query: PaneQuery, smoothing: int) -> Result:
    found = ConfidenceHistogram.of_batch(batch, pane_query.bins, pane_query.raters)
    parts = {
        name: smoothed(getattr(found, name), smoothing).tolist()
        for name in ("label", "prediction", "uncertainty")
    }
    exact = dict(zip(EXACT, found.exact.tolist(), strict=True))
    return {"mass": found.mass, **parts, "exact": exact, "missing": {}}


def _split(cells: Cells) -> Floats:
    """Return mass of incorrect and correct by bin, (2, bins)."""
    return np.stack([np.maximum(cells.weight - cells.correct, 0.0), cells.correct])


def _of_classes(view: View) -> Floats:
    return np.stack([_split(table.cells) for table in view.class_tables()])


def _of_case(view: View, case: str | None) -> Floats:
    options = {"background": "in", "membership": "hard"}
    cases = case_errors(View(view.pane, replace(view.pane_query, options=options)))
    if case not in cases.names:
        raise NoResultError("unknown_case", f"no table is stored for case {str(case)[:60]!r}")
    one = cases.counted.of_cases(np.array([cases.names.index(case)]))
    return np.stack([np.maximum(one.weight[0] - one.correct[0], 0.0), one.correct[0]], axis=1)


def _prediction(view: View) -> Floats:
    return _split(view.binned("top_label", "equal_width", view.pane_query.bins).cells)


def _uncertainty(view: View) -> Floats:
    table = table_of(view)
    return np.stack([np.maximum(table["weight"] - table["correct"], 0.0), table["correct"]])


def _exact(view: View) -> dict[str, float]:
    sums = view.scores()
    return {
        "nll": sums["nll"],
        "nll_weight": sums["weight_finite"],
        "brier": sums["brier"],
        "zero_probability_weight": sums["weight"] - sums["weight_finite"],
    }


def left(bins: int, raters: str) -> PaneQuery:
    """Return the query of a confidence histogram: fine bins contain [i / n, (i + 1) / n)."""
    return PaneQuery(bins=bins, edges="left", raters=raters)
