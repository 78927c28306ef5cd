"""The public functions that compare two models on the same rows, two panes, and our metrics with those of another library.

Two separate intervals do not show a difference: both contain what the rows have in common. Here the rows of the two
models are paired, so that what they share cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.grid import Edges
from calibrant.core.pane import Pane
from calibrant.core.query import Bins, PaneQuery
from calibrant.core.view import NoResultError, View
from calibrant.inference.metrics_differences import differences_of
from calibrant.inference.pairing import paired
from calibrant.input.table_names import names_of_columns, reject_order
from calibrant.library_arguments import (
    accepted_options,
    filled,
    labelled_batch,
    reject_edges,
    reject_unused_edges,
    slugs_of,
    view_of_rows,
)
from calibrant.library_of_panes import report_of, view_of
from calibrant.metrics import accumulators_for
from calibrant.peers.peer_comparison import METRICS as COMPARED
from calibrant.peers.peer_comparison import compared
from calibrant.results import Comparison
from calibrant.results.metric_requests import scopes_by_index

# What the scores of the second model are called, by the name that the first model's have.
OTHERS = {"probabilities": "other", "logits": "other_logits"}


def compare(
    probabilities: Any = None,
    other: Any = None,
    labels: Any = None,
    metrics: str | Sequence[str] | None = None,
    *,
    bins: Bins = 15,
    binning: str = "equal_width",
    edges: Edges = "right",
    min_count: float = 0,
    scope: str | None = None,
    raters: str = "pooled",
    ci: float = 0.95,
    logits: Any = None,
    other_logits: Any = None,
    label_counts: Any = None,
    weights: Any = None,
    units: Any = None,
    ids: Any = None,
    cases: Any = None,
    classes: Sequence[Any] | None = None,
    ignore_label: Any = None,
    normalize: bool = False,
    **options: Any,
) -> Comparison:
    """Compare two models on the same rows, metric by metric: each difference with an interval, paired by row.

    Parameters
    ----------
    probabilities, other : of the first and of the second model, row by row of the same items: both (n, n_classes), or
        both (n,), the probability of class 1 of two
    labels, metrics, bins, binning, edges, min_count, scope, raters, ci, label_counts, weights, units, ids, cases, \
classes, ignore_label, normalize, options : as in `evaluate`
    logits : instead of `probabilities`
    other_logits : instead of `other`

    Returns
    -------
    Comparison, a mapping of slug to Difference: the value of the first model minus that of the second. Without `units`,
    `cases` and `ids`, rows are paired by their number; intervals of the single models can then differ slightly from
    those of `evaluate`, which resamples rows by their content.

    Raises
    ------
    CalibrationInputError
        A value that is not allowed, with its argument, row and rule; another number of rows or classes for the second
        model; an unknown metric; an option that no requested metric takes.

    Source
    ------
    Zou and Donner (Statistics in Medicine 2008) for intervals combined by their correlation; the jackknife over 64
    paired replicates for means.

    Examples
    --------
    >>> labels = [1] * 80 + [0] * 20
    >>> found = compare([0.99] * 100, [0.8] * 100, labels, ["brier", "ece"], ids=range(100))
    >>> found["brier"].differs, round(found["ece"].value, 2)
    (True, 0.19)
    """
    arguments = locals()
    slugs = slugs_of(metrics, options)
    mine = labelled_batch(arguments)
    theirs = _other_batch(arguments, mine)
    scope, slugs = scopes_by_index(scope, slugs, classes)
    pane_query = PaneQuery(
        bins, binning, edges, raters, min_count, scope, ci, accepted_options(options, slugs)
    )
    reject_unused_edges(pane_query, slugs)
    views = [view_of_rows(batch, pane_query, slugs) for batch in (paired(mine), paired(theirs))]
    return _comparison(views[0], views[1], slugs)


def compare_panes(
    pane: Pane,
    other: Pane,
    metrics: str | Sequence[str] | None,
    **requested: Any,
) -> Comparison:
    """Compare two panes; see `Pane.compare`."""
    if pane.spec != other.spec:
        detail = f"Received a pane of {other.spec}; expected {pane.spec}, as of the first pane."
        raise CalibrationInputError.at("/other", "spec", detail)
    view, slugs = view_of(pane, metrics, **requested)
    return _comparison(view, view_of(other, metrics, **requested)[0], slugs)


def _comparison(view: View, other: View, slugs: list[str]) -> Comparison:
    first, second = report_of(view, slugs), report_of(other, slugs)
    results = [{key: each.to_dict() for key, each in found.items()} for found in (first, second)]
    about = {name: value for name, value in first.about.items() if name != "detectable"}
    return Comparison.of(first, second, differences_of(view, other, results[0], results[1]), about)


def _other_batch(arguments: dict[str, Any], mine: Batch) -> Batch:
    """Return the labelled scores of the second model, for the rows of the first."""
    scores = {"probabilities": arguments["other"], "logits": arguments["other_logits"]}
    if (scores["probabilities"] is None) == (scores["logits"] is None):
        received = "neither" if scores["logits"] is None else "both"
        detail = f"Received {received} of other and other_logits; expected exactly one of them."
        raise CalibrationInputError.at("/other", "one_score_column", detail)
    _reject_other_rows(scores, mine.n)
    _reject_other_order(arguments, _given(scores))
    try:
        theirs = labelled_batch(arguments | scores)
    except CalibrationInputError as error:
        if error.violations[0].argument in OTHERS:
            raise error.each(_renamed) from None
        # The first model's scores were accepted with the same labels, weights and names.
        raise _other_classes(scores, mine) from None
    if (theirs.task, theirs.n_classes) != (mine.task, mine.n_classes):
        raise _other_classes(scores, mine)
    return theirs


def _other_classes(scores: dict[str, Any], mine: Batch) -> CalibrationInputError:
    shape = "one probability per row" if mine.task == "binary" else f"{mine.n_classes} classes"
    detail = f"Received scores of other classes; expected {shape}, as of the first model."
    return CalibrationInputError.at(f"/{_given(scores)}", "n_classes", detail)


def _reject_other_rows(scores: dict[str, Any], n: int) -> None:
    found = next(each for each in scores.values() if each is not None)
    is_single = isinstance(found, np.ndarray) and found.ndim == 0
    if hasattr(found, "__len__") and not is_single and len(found) != n:
        detail = f"Received {len(found)} rows; expected {n}, the same items as of the first model."
        raise CalibrationInputError.at(f"/{_given(scores)}", "length", detail)


def _reject_other_order(arguments: dict[str, Any], other: str) -> None:
    """Reject a table whose columns are those of the first model in another order."""
    first = arguments["logits" if arguments["probabilities"] is None else "probabilities"]
    reject_order(other, names_of_columns(arguments[other]), names_of_columns(first))


def _given(scores: dict[str, Any]) -> str:
    return OTHERS["probabilities" if scores["logits"] is None else "logits"]


def _renamed(violation: Violation) -> Violation:
    """Return a violation of the second model's scores under the name of their argument."""
    name = violation.argument
    if name not in OTHERS:
        return violation
    pointer = violation.pointer.replace(f"/{name}", f"/{OTHERS[name]}", 1)
    detail = violation.detail.replace("as logits", "as other_logits")
    return Violation(pointer, violation.rule, detail)


def compat(
    probabilities: Any = None,
    labels: Any = None,
    peer: str | None = None,
    *,
    bins: int = 15,
    scope: str | None = None,
    raters: str = "pooled",
    logits: Any = None,
    label_counts: Any = None,
    label_shares: Any = None,
    n_ratings: Any = None,
    weights: Any = None,
    units: Any = None,
    ids: Any = None,
    cases: Any = None,
    classes: Sequence[Any] | None = None,
    ignore_label: Any = None,
    normalize: bool = False,
) -> dict[str, Any]:
    """Compute metrics as another library does, next to ours, and state why they differ.

    Parameters
    ----------
    peer : "monai", "netcal", "relplot", "scikit-learn", "torchmetrics" or "uncertainty-calibration", or "all". Default: all.
    raters : "majority" or "single" if a row has several ratings; other libraries take one label per row
    probabilities, labels, bins, scope, logits, label_counts, label_shares, n_ratings, weights, units, ids, cases, \
classes, ignore_label, normalize : as in `evaluate`

    Returns
    -------
    dict by library: `version` and `values`; these by the library's function: `value` or None with a `reason`, `metric`
    and `ours` (our metric of the same idea and its value), and `why` they differ

    Raises
    ------
    CalibrationInputError
        A value that is not allowed, with its argument, row and rule; rows with weights or several ratings.

    Examples
    --------
    >>> found = compat([0.9, 0.8, 0.3, 1.0], [1, 1, 0, 0], "relplot", bins=2)["relplot"]
    >>> round(found["values"]["binnedECE"]["value"], 9), round(found["values"]["binnedECE"]["ours"], 9)
    (0.4, 0.25)
    """
    reject_edges(bins)
    batch = labelled_batch(locals(), counted=True)
    pane = filled(batch, accumulators_for(COMPARED))
    scope, _ = scopes_by_index(scope, (), classes)
    try:
        return compared(View(pane, PaneQuery(bins=bins, scope=scope, raters=raters), batch), peer)
    except NoResultError as rejection:
        raise CalibrationInputError.at("/labels", rejection.reason, rejection.detail) from rejection
