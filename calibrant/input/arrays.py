"""Arrays and lists of a caller as a checked batch.

One-dimensional scores are those of class 1, two-dimensional ones have a column per class. Errors name the argument as the
caller wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError
from calibrant.core.spec import PaneSpec
from calibrant.input.arrow import plain
from calibrant.input.arrow_column import Column
from calibrant.input.class_labels import names_of_classes
from calibrant.input.table_names import (
    SCORES,
    names_of_columns,
    reject_other_columns,
    reject_other_names,
)
from calibrant.input.value_checks import as_sequence, kind_of


def read_arrays(
    probabilities: Any = None,
    labels: Any = None,
    *,
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
    spec: PaneSpec | None = None,
) -> Batch:
    """Check arrays and make them a batch; a batch of no rows is allowed.

    Parameters
    ----------
    probabilities, labels, logits, label_counts, weights, units, ids, cases, classes, ignore_label, normalize : as in `Pane.fill`
    label_shares, n_ratings : as in `calibrant.evaluate`
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
If these are percentages, divide them by 100; if they are logits, pass them as logits. (range)
    """
    given = {
        "probabilities": probabilities, "logits": logits, "labels": labels, "label_counts": label_counts,
        "label_shares": label_shares, "n_ratings": n_ratings,
        "weights": weights, "units": units, "ids": ids, "cases": cases,
    }  # fmt: skip
    _reject_two_scores(probabilities, logits)
    reject_other_columns(given, classes is not None)
    names = names_of_classes(classes)
    for scores in SCORES:
        reject_other_names(scores, names_of_columns(given[scores]), names)
    columns: Columns = {
        name: plain(name, column) for name, column in given.items() if column is not None
    }
    empty = _empty(columns, spec)
    if empty is not None:
        return empty
    return Batch.from_columns(
        columns,
        task=None if spec is None else spec.task,
        n_classes=None if spec is None else spec.n_classes,
        class_names=names,
        ignored=ignored_labels(ignore_label),
        normalize=normalize,
    ).batch


def ignored_labels(ignore_label: Any) -> list[Any]:
    """Return the labels that are no rating, of one or several.

    Examples
    --------
    >>> ignored_labels(-100), ignored_labels((254, 255)), ignored_labels(None)
    ([-100], [254, 255], [])
    """
    if ignore_label is None:
        return []
    if isinstance(ignore_label, str | int | float | np.generic):
        return [ignore_label]
    is_set = isinstance(ignore_label, set | frozenset)
    found = as_sequence(list(ignore_label) if is_set else ignore_label)
    if found is None or not all(isinstance(each, str | int | float) for each in found):
        detail = f"Received {kind_of(ignore_label)}; expected a label or a list of labels."
        raise CalibrationInputError.at("/ignore_label", "label", detail)
    return found


def _reject_two_scores(probabilities: Any, logits: Any) -> None:
    """Reject a call that has not exactly one kind of scores."""
    if (probabilities is None) == (logits is None):
        received = "neither" if logits is None else "both"
        detail = f"Received {received} of probabilities and logits; expected exactly one of them."
        raise CalibrationInputError.at("/probabilities", "one_score_column", detail)


def _empty(columns: Columns, spec: PaneSpec | None) -> Batch | None:
    """Return the batch of no rows, where the scores have none."""
    (kind, scores), *others = columns.items()
    is_single = isinstance(scores, np.ndarray) and scores.ndim == 0
    if is_single or not isinstance(scores, np.ndarray | list | Column) or len(scores):
        return None
    for name, column in others:
        n = len(column) if hasattr(column, "__len__") else 1
        if n:
            detail = f"Received {n} rows of {name} and none of {kind}; expected as many."
            raise CalibrationInputError.at(f"/{name}", "length", detail)
    width = scores.shape[1] if isinstance(scores, np.ndarray) and scores.ndim == 2 else 1
    spec = spec or PaneSpec("binary" if width == 1 else "multiclass", max(width, 2))
    texts: Columns = {
        name: np.zeros(0, object) for name in ("ids", "units", "cases") if name in columns
    }
    return Batch(spec.task, np.zeros((0, spec.n_classes)), False, Ratings.none(), **texts)
