"""Multi-label predictions: K independent events per row, each scored as the probability of its own label.

No softmax, and no top label: a label is a binary model of its own, with its own temperature. Averages are means over labels. They have
no interval: the labels of a row depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.temperature.fit import fit_rows
from calibrant.calibrators.temperature.fit_result import curve_points
from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant.core.query import PaneQuery
from calibrant.input.annotations import Annotations
from calibrant.input.arrow import plain
from calibrant.input.arrow_column import Column
from calibrant.input.class_labels import is_missing, reject_class_names
from calibrant.input.table_names import names_of_columns, reject_order
from calibrant.input.value_checks import as_array, as_list, described
from calibrant.library_arguments import labelled_batch, view_of_rows
from calibrant.library_of_panes import report_of
from calibrant.results import MultilabelReport, Report, Temperature
from calibrant.results.report import MULTILABEL, of_labels

MAX_LABELS = 1000
_EXPECTED = "expected one column per label, (n, n_labels)"
NOT_TAKEN = ("label_counts", "label_shares", "n_ratings", "annotations", "normalize")


def of_task(
    task: Any, arguments: Mapping[str, Any], pane_query: PaneQuery, slugs: Sequence[str]
) -> MultilabelReport:
    """Return the report of a task that is named.

    Raises
    ------
    CalibrationInputError
        Another task than "multilabel"; the shape of the probabilities says what else they are.
    """
    if not isinstance(task, str) or task != MULTILABEL:
        detail = f"Received task={task!r:.60}; expected 'multilabel', or none: the shape of the probabilities says whether a model is binary."
        raise CalibrationInputError.at("/task", "task", detail)
    return multilabel_report(arguments, pane_query, slugs)


def multilabel_report(
    arguments: Mapping[str, Any], pane_query: PaneQuery, slugs: Sequence[str]
) -> MultilabelReport:
    """Return metrics and temperature of each label, and the means over labels.

    Parameters
    ----------
    arguments : of `calibrant.evaluate`; `probabilities` or `logits` (n, n_labels), `labels` (n, n_labels) of 0 and 1, NaN or None where
        there is none; `classes` names the labels

    Raises
    ------
    CalibrationInputError
        A value that is not allowed, with its argument, row, rule and label.
    """
    if pane_query.scope not in (None, "positive"):
        detail = f"Received scope={pane_query.scope!r:.60}; expected none: each label is scored as the probability of its event."
        raise CalibrationInputError.at("/scope", "scope", detail)
    labels: dict[str, Report] = {}
    temperatures: dict[str, Temperature] = {}
    for name, batch in _batches(arguments).items():
        labels[name] = report_of(view_of_rows(batch, pane_query, slugs), slugs)
        fitted, curve = fit_rows(batch, raters=pane_query.raters, ci=pane_query.ci)
        temperatures[name] = Temperature.with_curve(fitted, partial(curve_points, curve))
    return of_labels(labels, temperatures)


def _batches(arguments: Mapping[str, Any]) -> dict[str, Batch]:
    """Return the rows of each label, as a binary model has them."""
    _reject_others(arguments)
    kind = "probabilities" if arguments.get("logits") is None else "logits"
    columns = [names_of_columns(arguments.get(name)) for name in ("labels", kind)]
    reject_order("labels", *columns)
    scores, labels = (_matrix(name, arguments.get(name)) for name in (kind, "labels"))
    if scores.shape != labels.shape:
        detail = f"Received labels of shape {labels.shape}; expected {scores.shape}, a 0 or 1 for each of the {kind}."
        raise CalibrationInputError.at("/labels", "shape", detail)
    names = _names(arguments.get("classes"), scores.shape[1])
    return {
        name: _of_label(name, {**arguments, kind: scores[:, k], "labels": labels[:, k]})
        for k, name in enumerate(names)
    }


def _reject_others(arguments: Mapping[str, Any]) -> None:
    """Reject what rows of independent events do not have: labels in another form, and a division of rows by their sum.

    Raises
    ------
    CalibrationInputError
        As described.
    """
    given = {name: arguments.get(name) for name in NOT_TAKEN}
    if isinstance(arguments.get("labels"), Annotations):
        given["annotations"] = arguments["labels"]
    for name, value in given.items():
        if value is not None and value is not False:
            detail = f"Received {name} with task='multilabel'; expected labels of 0 and 1. Remove {name}."
            raise CalibrationInputError.at(f"/{name}", "not_taken", detail)


def _of_label(name: str, arguments: dict[str, Any]) -> Batch:
    try:
        return labelled_batch(arguments | {"classes": None})
    except CalibrationInputError as error:
        raise error.each(_named(name)) from error


def _named(name: str) -> Callable[[Any], Any]:
    """Return the function that adds the name of the label to a violation."""
    return lambda each: type(each)(each.pointer, each.rule, f"Label {name!r:.60}: {each.detail}")


def _matrix(name: str, value: Any) -> NDArray[Any]:
    """Return an argument as numbers, NaN where there is none."""
    column = _plain(name, value)
    array = as_array(column)
    if array is None and isinstance(column, list):
        _reject_ragged(name, column)
        width = next((len(row) for row in column if isinstance(row, list)), 0)
        array = as_array([_filled(row, width) for row in column])
    if array is None or array.ndim != 2 or array.dtype.kind not in "fiub":
        received = described(column) if array is None else described(array)
        detail = f"Received {received} for {name}; {_EXPECTED}."
        raise CalibrationInputError.at(f"/{name}", "shape", detail)
    if not 1 <= array.shape[1] <= MAX_LABELS:
        detail = f"Received {array.shape[1]} labels; expected 1 to {MAX_LABELS}."
        raise CalibrationInputError.at(f"/{name}", "n_classes", detail)
    return array


def _plain(name: str, value: Any) -> Any:
    """Return an argument as an array without nulls, or as a list of lists."""
    column = plain(name, value)
    if isinstance(column, Column):
        is_matrix = isinstance(column.values, np.ndarray) and not column.unusable.any()
        return column.values if is_matrix else column.as_list()
    if isinstance(column, np.ma.MaskedArray):
        return column.tolist()
    return [as_list(row) for row in column] if isinstance(column, list | tuple) else column


def _filled(row: Any, width: int) -> Any:
    """Return a row with NaN for each missing value; a missing row has only these."""
    if row is None:
        return [np.nan] * width
    return [np.nan if is_missing(each) else each for each in row] if isinstance(row, list) else row


def _reject_ragged(name: str, column: list[Any]) -> None:
    """Reject rows of different lengths, with the first that differs; a row of nothing is missing."""
    rows = [i for i, row in enumerate(column) if row is not None]
    sizes = [len(row) if isinstance(row, list) else 1 for row in column if row is not None]
    place = next((i for i, size in enumerate(sizes) if size != sizes[0]), None)
    if place is not None:
        other = rows[place]
        detail = f"Received {sizes[place]} values; expected {sizes[0]}, one per label, as in the first row."
        raise CalibrationInputError.at(f"/{name}/{other}", "shape", detail)


def _names(classes: Any, k: int) -> list[str]:
    """Return the name of each label, by default its place."""
    given = range(k) if classes is None else classes
    if not isinstance(given, Iterable):
        detail = f"Received classes={given!r:.60}; expected {k} names, one per column."
        raise CalibrationInputError.at("/classes", "n_classes", detail)
    names = [str(each) for each in given]
    if len(names) != k or len(set(names)) < k:
        detail = f"Received {len(set(names))} names of labels; expected {k}, one per column."
        raise CalibrationInputError.at("/classes", "n_classes", detail)
    reject_class_names(names)
    return names
