"""Arrays and lists of a caller as a checked batch.

One-dimensional probabilities are those of class 1, two-dimensional ones have a column per class. Errors name the
argument as the caller wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError, Violation
from calibrant.core.spec import PaneSpec
from calibrant.input.arrow import plain
from calibrant.input.arrow_column import Column

# The columns of a batch that go by another name here.
ARGUMENTS = {"confidences": "probabilities"}
# Rules that logits break where probabilities are expected, and what the first error of a call then advises.
LOOKS_LIKE_LOGITS = ("row_sum", "range")
LOGITS_ADVICE = " If these are logits, pass logits=."


# Raters who happen to agree in this way in so many rows are not plausible.
_MIN_ONE_HOT = 20


def read_arrays(
    probabilities: Any = None,
    labels: Any = None,
    *,
    logits: Any = None,
    label_counts: Any = None,
    weights: Any = None,
    units: Any = None,
    ids: Any = None,
    cases: Any = None,
    classes: Sequence[str] | None = None,
    spec: PaneSpec | None = None,
) -> Batch:
    """Check arrays and make them a batch; a batch of no rows is allowed.

    Parameters
    ----------
    probabilities, labels, logits, label_counts, weights, units, ids, cases, classes : as in `Pane.fill`
    spec : of the pane that the batch will fill; None for one taken from the arrays

    Returns
    -------
    Batch

    Raises
    ------
    CalibrationInputError
        A value that is not allowed, with its argument, row and rule.

    Examples
    --------
    >>> read_arrays([0.9, 0.2], [1, 0]).task
    'binary'
    >>> read_arrays([[0.7, 0.2, 0.1]], [[0, 0, 2]]).label_counts.tolist()
    [[2, 0, 1]]
    >>> read_arrays([0.9, 1.2], [1, 0])
    Traceback (most recent call last):
    ...
    calibrant.core.errors.CalibrationInputError: probabilities, row 1: Received a value outside [0, 1]; expected a probability. \
If these are logits, pass logits=. (range)
    """
    columns: Columns = _scores(probabilities, logits)
    columns |= {
        "labels": _labels(labels),
        "label_counts": _array("label_counts", label_counts),
        "weights": _array("weights", weights),
    }
    columns |= {
        "units": _array("units", units),
        "ids": _array("ids", ids),
        "cases": _array("cases", cases),
    }
    task, n_classes = (None, None) if spec is None else (spec.task, spec.n_classes)
    if "confidences" in columns and task not in (None, "binary"):
        detail = f"Received one probability per row; expected one per class of this {task} model."
        raise CalibrationInputError.at("/probabilities", "task", detail)
    empty = _empty(columns, spec)
    if empty is not None:
        return empty
    _check_names(classes)
    try:
        batch = Batch.from_columns(
            columns, task=task, n_classes=n_classes, class_names=classes
        ).batch
    except CalibrationInputError as error:
        raise _advised(error.each(_renamed)) from None
    _reject_one_hot(columns["labels"], batch.n_classes)
    if classes is not None and len(classes) != batch.n_classes:
        detail = (
            f"Received {len(classes)} names of classes; expected {batch.n_classes}, one per class."
        )
        raise CalibrationInputError.at("/classes", "n_classes", detail)
    return batch


def _check_names(classes: Sequence[str] | None) -> None:
    """Check that the names of classes are texts and distinct; a repeated name would be read as its last class."""
    if classes is None:
        return
    if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
        detail = "Received names of classes of another type; expected a list of texts."
        raise CalibrationInputError.at("/classes", "list", detail)
    if len(set(classes)) < len(classes):
        detail = "Received a name of a class more than once; expected each name once."
        raise CalibrationInputError.at("/classes", "repeated_class", detail)


def _scores(probabilities: Any, logits: Any) -> Columns:
    """Return the one column of scores, by its name in a batch."""
    if (probabilities is None) == (logits is None):
        received = "neither" if logits is None else "both"
        detail = f"Received {received} of probabilities and logits; expected exactly one of them."
        raise CalibrationInputError.at("/probabilities", "one_score_column", detail)
    if logits is None:
        scores = _array("probabilities", probabilities)
        return {"confidences" if _is_flat(scores) else "probabilities": scores}
    scores = _array("logits", logits)
    return {"logits": _log_odds(scores) if _is_flat(scores) and len(scores) else scores}


def _log_odds(column: Any) -> Any:
    """Return the logits of both classes of log-odds of class 1."""
    null = column.unusable if isinstance(column, Column) else None
    try:
        flat = np.asarray(column.values if isinstance(column, Column) else column, np.float64)
    except (TypeError, ValueError):
        return column
    logits = np.column_stack([np.zeros(len(flat)), flat])
    return logits if null is None else Column(logits, null)


def _is_flat(column: Any) -> bool:
    """Return whether a column has one number per row, not one per class."""
    values = column.values if isinstance(column, Column) else column
    if isinstance(values, np.ndarray):
        return values.ndim == 1 and values.dtype != object
    return isinstance(values, list) and (
        not values or isinstance(values[0], int | float | np.number)
    )


def _array(name: str, column: Any) -> Any:
    """Return a column as an array, a list or an Arrow column; what else says that it is an array becomes one."""
    if column is None or isinstance(column, np.ndarray | list):
        return column
    if isinstance(column, Sequence) and not isinstance(column, str | bytes):
        return list(column)
    found = plain(name, column)
    return np.asarray(found) if hasattr(found, "__array__") else found


def _labels(column: Any) -> Any:
    """Return labels with truth values as the classes 0 and 1."""
    column = _array("labels", column)
    if isinstance(column, np.ndarray) and column.dtype == bool:
        return column.astype(np.int64)
    if (
        isinstance(column, Column)
        and isinstance(column.values, np.ndarray)
        and column.values.dtype.kind == "b"
    ):
        return Column(column.values.astype(np.int64), column.null, column.broken)
    if isinstance(column, list) and any(isinstance(label, tuple) for label in column):
        return [list(label) if isinstance(label, tuple) else label for label in column]
    return column


def _reject_one_hot(labels: Any, n_classes: int) -> None:
    """Reject rows with a 1 for the class and a 0 for each other class: they would count as ratings of classes 0 and 1."""
    if not isinstance(labels, np.ndarray | list) or len(labels) < _MIN_ONE_HOT:
        return
    if any(np.shape(label) != (n_classes,) for label in labels[:_MIN_ONE_HOT]):
        return
    if _is_one_hot(labels[:_MIN_ONE_HOT]) and _is_one_hot(labels):
        detail = (
            "Received a 1 for one class and a 0 for each other class in every row, which would count as ratings of the classes "
            "0 and 1. Pass labels.argmax(axis=1), or the same rows as label_counts=."
        )
        raise CalibrationInputError.at("/labels", "one_hot", detail)


def _is_one_hot(labels: Any) -> bool:
    try:
        rows = np.asarray(labels, np.float64)
    except (TypeError, ValueError):  # rows of several lengths, or names
        return False
    return bool(
        rows.ndim == 2 and np.isin(rows, (0.0, 1.0)).all() and (rows.sum(axis=1) == 1.0).all()
    )


def _empty(columns: Columns, spec: PaneSpec | None) -> Batch | None:
    """Return the batch of no rows, where the scores have none."""
    (kind, scores), *others = [
        (name, column) for name, column in columns.items() if column is not None
    ]
    if not isinstance(scores, np.ndarray | list | Column) or len(scores):
        return None
    for name, column in others:
        if len(column):
            detail = (
                f"received {len(column)} rows of {name} and none of {ARGUMENTS.get(kind, kind)}"
            )
            raise CalibrationInputError.at(f"/{name}", "length", detail)
    width = scores.shape[1] if isinstance(scores, np.ndarray) and scores.ndim == 2 else 2
    spec = spec or PaneSpec("binary" if _is_flat(scores) else "multiclass", max(width, 2))
    nothing = np.zeros(0, np.int64)
    texts: Columns = {
        name: np.zeros(0, object) for name in ("ids", "units", "cases") if columns[name] is not None
    }
    return Batch(
        spec.task, np.zeros((0, spec.n_classes)), False, Ratings(nothing, nothing, nothing), **texts
    )


def _advised(error: CalibrationInputError) -> CalibrationInputError:
    """Return the error with advice on logits in its first violation, once for the whole call."""
    first, *others = error.violations
    if first.argument != "probabilities" or first.rule not in LOOKS_LIKE_LOGITS:
        return error
    first = Violation(first.pointer, first.rule, first.detail + LOGITS_ADVICE)
    return CalibrationInputError([first, *others], error.n_violations)


def _renamed(violation: Violation) -> Violation:
    """Return a violation under the name that the caller gave the column."""
    pointer, detail = violation.pointer, violation.detail
    for column, argument in ARGUMENTS.items():
        pointer = pointer.replace(f"/{column}", f"/{argument}")
        detail = detail.replace(column, argument)
    return Violation(pointer, violation.rule, detail)
