"""The public functions: metrics, reliability, temperature and maps of arrays.

Functions of arrays compute from the rows, as `POST /v1/score` does; methods of `Pane` compute from its state, as the
service does from a window (`library_of_panes`). `metric_functions` makes one function for each metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from calibrant.calibrators import Options, fit
from calibrant.calibrators.map_method import map_methods
from calibrant.calibrators.temperature.fit import fit_rows
from calibrant.calibrators.temperature.fit_result import curve_points
from calibrant.core.errors import CalibrationInputError
from calibrant.core.grid import Edges
from calibrant.core.pane import Pane
from calibrant.core.query import Bins, PaneQuery
from calibrant.core.routing import split_batch
from calibrant.core.spec import PaneSpec
from calibrant.core.view import View
from calibrant.inference.reliability_table import reliability as reliability_of
from calibrant.library_arguments import (
    check_types,
    filled_view,
    labelled_batch,
    reject_edges,
    slugs_of,
)
from calibrant.library_estimates import query_of
from calibrant.library_of_panes import report_of
from calibrant.library_slices import sliced_report
from calibrant.multilabel import of_task
from calibrant.results import CalibrationMap, ReliabilityTable, Report, Temperature
from calibrant.results.metric_requests import scopes_by_index


def evaluate(
    probabilities: Any = None,
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
    task: str | None = None,
    by: Any = None,
    **options: Any,
) -> Report:
    """Compute several metrics of one batch of predictions.

    Parameters
    ----------
    probabilities : (n, n_classes), rows that sum to 1, scored by the top class unless `scope` says otherwise; or (n,),
        the probability of class 1 of two, scored as such
    labels : a class per row, or one per rater; None or NaN where there is none. Class indices from 0, whole floats too; truth
        values of two classes; or names.
    metrics : slugs, as a list or separated by commas, with options of their own in brackets: "ece,lp_ece(order=3)".
        Default: 12 metrics.
    bins, binning, edges, min_count : of metrics that bin: how many bins or their own edges, as [0, 0.5, 0.9, 1], "equal_width" or
        "equal_mass", (a, b] for "right" or [a, b) for "left", and the least number of samples of a bin. Of own edges, metrics
        that have bins of another kind take the number.
    scope : the probability to score: "top_label", "positive", "class:INDEX", "class:NAME" where `classes` names them, or "all"
    raters : label policy: "pooled", "mean", "majority" or "single"
    ci : nominal coverage of the intervals
    logits : instead of `probabilities`: (n, n_classes), or (n,), the log-odds of class 1 of two, which mean what their logistic
        function means as probabilities
    label_counts : instead of `labels`: (n, n_classes), ratings per class
    label_shares : instead of `labels`: (n, n_classes), shares of the classes, which sum to 1; `raters` is then "pooled" or "mean"
    n_ratings : (n,), ratings of each row of `label_shares`. Default: one that is divided. Smoothed targets are no ratings.
    weights : (n,), a factor per row
    units : (n,), names or integers: what is independent of the rest, such as the patient
    ids, cases : (n,), names or integers of predictions, and of images or studies
    classes : names of the classes, such as `classifier.classes_`; labels may then be names. Names that are integers or truth values
        are never indices.
    ignore_label : a label, or several, that stand for none, such as -100 or 255
    normalize : divide each row of probabilities by its sum, whatever it is; the result states how many rows, and by how much
    task : "multilabel" for independent events: `probabilities` or `logits` (n, n_labels) and `labels` (n, n_labels) of 0 and 1, NaN
        where there is none; `classes` names the labels. Default: by the shape of the probabilities.
    by : (n,), names or integers of slices, such as the site: adds `slices`, a report of each, and tests which are worse than chance
        among so many explains
    options : further options, by name, of the metrics that take them

    Returns
    -------
    Report, a mapping of slug to Estimate; with `by` a SlicedReport. For "multilabel" the estimates are means over labels;
    its `labels` has the report, and its `temperatures` the temperature of each label.

    Raises
    ------
    CalibrationInputError
        A value that is not allowed, with its argument, row and rule; an unknown metric; an option that no requested
        metric takes.

    Examples
    --------
    >>> report = evaluate([0.9, 0.8, 0.3, 0.1], [1, 1, 0, 0], ["accuracy", "brier"])
    >>> report["accuracy"].value
    1.0
    """
    slugs, arguments = slugs_of(metrics, options), locals()
    check_types(arguments)
    pane_query, slugs = query_of(arguments, options, slugs)
    if by is not None:
        return sliced_report(by, arguments, pane_query, slugs)
    if task is not None:
        return of_task(task, arguments, pane_query, slugs)
    return report_of(filled_view(arguments, pane_query, slugs), slugs)


def reliability(
    probabilities: Any = None,
    labels: Any = None,
    *,
    bins: Bins = 15,
    binning: str = "equal_width",
    edges: Edges = "right",
    min_count: float = 0,
    scope: str | None = None,
    raters: str = "pooled",
    ci: float = 0.95,
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
) -> ReliabilityTable:
    """Compute the reliability table of one batch of predictions: per bin the mean confidence and the accuracy.

    Parameters
    ----------
    probabilities, labels, bins, binning, edges, min_count, scope, raters, ci, logits, label_counts, label_shares, n_ratings, weights, units, ids, \
cases, classes, ignore_label, normalize : as in `evaluate`

    Returns
    -------
    ReliabilityTable

    Raises
    ------
    CalibrationInputError
        A value that is not allowed, with its argument, row and rule.

    Examples
    --------
    >>> table = reliability([0.9, 0.8, 0.3, 0.1], [1, 1, 0, 0], bins=2)
    >>> table.bin_confidence.round(2).tolist(), table.bin_accuracy.tolist()
    ([0.2, 0.85], [0.0, 1.0])
    """
    arguments = locals()
    check_types(arguments)
    scope, _ = scopes_by_index(scope, (), classes)
    pane_query = PaneQuery(bins, binning, edges, raters, min_count, scope, ci)
    view = filled_view(arguments, pane_query, ["ece"])
    return ReliabilityTable.from_dict(view.notes.added_to(reliability_of(view)))


def fit_temperature(
    probabilities: Any = None,
    labels: Any = None,
    *,
    objective: str = "nll",
    bins: int = 15,
    min_count: float = 0,
    raters: str = "pooled",
    ci: float = 0.95,
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
) -> Temperature:
    """Fit the temperature T for which softmax(z / T) fits the labels best.

    Parameters
    ----------
    objective : the loss to minimise: "nll", "brier" or "ece"
    bins, min_count : of the ECE: number of bins; those with fewer samples are left out
    probabilities, labels, raters, ci, logits, label_counts, label_shares, n_ratings, weights, units, ids, cases, \
classes, ignore_label, normalize : as in `evaluate`

    Returns
    -------
    Temperature; `float` of it is T, and calling it recalibrates

    Raises
    ------
    CalibrationInputError
        A value that is not allowed, with its argument, row and rule.

    Examples
    --------
    >>> temperature = fit_temperature([0.9] * 10 + [0.1] * 10, [1] * 8 + [0] * 2 + [0] * 8 + [1] * 2)
    >>> round(float(temperature), 3)
    1.585
    >>> temperature([0.9, 0.1]).round(3).tolist()
    [0.8, 0.2]
    """
    reject_edges(bins)
    batch = labelled_batch(locals())
    numbers = PaneQuery(bins=bins, min_count=min_count, ci=ci).numbers()
    fitted, curve = fit_rows(batch, objective=objective, raters=raters, **numbers)
    return Temperature.with_curve(batch.notes.added_to(fitted), partial(curve_points, curve))


def fit_map(
    probabilities: Any = None,
    labels: Any = None,
    *,
    method: str = "isotonic",
    scope: str | None = None,
    bins: int | None = None,
    binning: str | None = None,
    centred: bool | None = None,
    regularisation: float | None = None,
    knots: int | None = None,
    shrunk: bool | None = None,
    raters: str = "pooled",
    ci: float = 0.95,
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
) -> CalibrationMap:
    """Fit a calibration map: a function from the model's probabilities to recalibrated ones.

    Parameters
    ----------
    method : "temperature", "platt", "beta", "isotonic", "spline", "histogram", "scaling_binning", "vector", "dirichlet", ...
    scope : the probability to map: "top_label", "positive", or "class:INDEX" or NAME. Default: class 1 of scores of shape (n,), else all classes;
        methods of one probability map each class against the rest and divide by the sum
    bins, binning : of methods that bin. Default: 15, "equal_width".
    centred : of `isotonic`: one point per block, so that distinct probabilities stay distinct. Default: False.
    regularisation : of maps with parameters per class. Default: 0, chosen by the data.
    knots, shrunk : of `spline`. Default: 6, True; the publication's map is not shrunk.
    probabilities, labels, raters, ci, logits, label_counts, label_shares, n_ratings, weights, units, ids, cases, \
classes, ignore_label, normalize : as in `evaluate`

    Returns
    -------
    CalibrationMap; calling it recalibrates

    Raises
    ------
    CalibrationInputError
        A value that is not allowed, with its argument, row and rule; an option that the method does not take.

    Examples
    --------
    >>> recalibrate = fit_map([0.9] * 10 + [0.1] * 10, [1] * 8 + [0] * 2 + [0] * 10, method="isotonic")
    >>> recalibrate([0.9, 0.1]).round(3).tolist()
    [0.8, 0.0]
    """
    reject_edges(bins)
    batch = labelled_batch(locals(), counted=True)
    given = {
        "bins": bins, "binning": binning, "centred": centred, "regularisation": regularisation, "knots": knots, "shrunk": shrunk,
    }  # fmt: skip
    options = _map_options(
        method, {name: value for name, value in given.items() if value is not None}
    )
    pane = Pane(PaneSpec(batch.task, batch.n_classes))
    for part in split_batch(batch):
        pane.fill_batch(part)
    scope, _ = scopes_by_index(scope, (), classes)
    pane_query = PaneQuery(bins=options.bins, scope=scope, raters=raters, ci=ci)
    return CalibrationMap.from_dict(
        batch.notes.added_to(fit(method, View(pane, pane_query, batch), options))
    )


def _map_options(method: str, given: dict[str, Any]) -> Options:
    """Return the options of a method, once it takes each that is given."""
    taken = map_methods()[method].options if method in map_methods() else given
    for name in given:
        if name not in taken:
            listed = ", ".join(taken) or "none"
            detail = f"Received option {name!r}; {method} takes {listed}."
            raise CalibrationInputError.at(f"/{name}", "unknown_option", detail)
    return Options(**given)
