"""Errors of cases against a consensus of their raters: STAPLE, majority and pooled ratings.

Per case and class, one class against the rest, from raters who rated every pixel of the case.

Source
------
Riera-Marin et al., Multi-Rater Calibration Error Estimation, who compare with a consensus; Warfield et al. (2004).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calibrant.core.arrays import Floats, Ints
from calibrant.core.documents import Result
from calibrant.core.grid import equal_width_bin
from calibrant.core.view import NoResultError, View
from calibrant.raters.staple import MAX_ITERATIONS, MIN_RATERS, START, STILL, THRESHOLD, staple
from calibrant.segmentation.case_options import CaseOptions
from calibrant.segmentation.single_cases import rows_of_cases

REFERENCES = ("staple", "majority", "pooled")
SETTINGS = {
    "confidence_weight": 1.0,
    "threshold": THRESHOLD,
    "start": START,
    "stop_at_change": STILL,
    "max_iterations": MAX_ITERATIONS,
    "crop": "none",
    "prior": "mean of all ratings",
}


def consensus_of(view: View, raters: Mapping[str, Ints] | None) -> Result:
    """Return STAPLE's consensus of each case and class, and the ECE against it, the majority and all ratings.

    Parameters
    ----------
    view : with raw rows and their cases; its bins, edges and the option `background` apply
    raters : each named rater's class for every row, -1 where none was given

    Returns
    -------
    dict, JSON-able: the settings of STAPLE, `n_cases`, `mean` (ECE by reference: mean over classes, then over cases) and
    `cases`: each with its `raters` and by class `prior`, `sensitivity` and `specificity` by rater, `n_iterations`,
    `n_pixels`, `n_consensus`, and `ece` by reference; or with a `reason` instead of `classes`.

    Raises
    ------
    NoResultError
        As `rows_of_cases`, or `raters_not_named`.
    """
    batch, rows_by_case = rows_of_cases(view)
    if raters is None:
        raise NoResultError("raters_not_named", "name each rating's rater in the column raters")
    options = CaseOptions.read(view.pane_query.options, view.spec.n_classes)
    classes = options.counted(view.spec.n_classes)
    assert view.batch_sums is not None
    ratings = {name: given[view.batch_sums.labelled] for name, given in raters.items()}
    scores, majority, counts = batch.probabilities, batch.majority[0], batch.label_counts
    cases, errors = [], []
    for case, rows in rows_by_case.items():
        full = {name: given[rows] for name, given in ratings.items() if (given[rows] >= 0).all()}
        result: Result = {"case": case, "n_pixels": len(rows), "raters": sorted(full)}
        if len(full) < MIN_RATERS:
            cases.append(result | {"classes": None, "reason": "too_few_raters"})
            continue
        found = [
            _of_class(view, k, full, scores[rows, k], majority[rows], counts[rows]) for k in classes
        ]
        errors.append({name: np.mean([each["ece"][name] for each in found]) for name in REFERENCES})
        cases.append(result | {"classes": found})
    return {
        "method": "staple",
        **SETTINGS,
        "bins": view.pane_query.bins,
        "edges": view.pane_query.edges,
        "background": options.background,
        "n_cases": len(rows_by_case),
        "n_cases_counted": len(errors),
        "mean": {name: float(np.mean([each[name] for each in errors])) for name in REFERENCES}
        if errors
        else None,
        **({} if errors else {"reason": "too_few_raters"}),
        "cases": cases,
    }


def _of_class(
    view: View,
    class_index: int,
    ratings: Mapping[str, Ints],
    score: Floats,
    majority: Ints,
    counts: Ints,
) -> Result:
    names = sorted(ratings)
    marked = np.stack([ratings[name] == class_index for name in names], axis=1)
    found = staple(marked)
    share = counts[:, class_index] / counts.sum(axis=1)
    one = np.ones(len(score))
    references = {
        "staple": (found.mask.astype(np.float64), one),
        "majority": ((majority == class_index).astype(np.float64), one),
        "pooled": (share, counts.sum(axis=1).astype(np.float64)),
    }
    return {
        "class": str(class_index),
        "prior": found.prior,
        "sensitivity": _by_rater(names, found.sensitivity),
        "specificity": _by_rater(names, found.specificity),
        "n_iterations": found.n_iterations,
        "converged": found.converged,
        "n_consensus": int(found.mask.sum()),
        "ece": {name: _ece(view, score, *reference) for name, reference in references.items()},
    }


def _ece(view: View, score: Floats, truth: Floats, weight: Floats) -> float:
    bins = view.pane_query.bins
    place = equal_width_bin(score, bins, view.pane_query.edges)
    gap = np.bincount(place, weight * (truth - score), bins)
    return float(np.abs(gap).sum() / weight.sum())


def _by_rater(names: list[str], values: Floats) -> dict[str, float | None]:
    return {
        name: float(value) if np.isfinite(value) else None
        for name, value in zip(names, values, strict=True)
    }
