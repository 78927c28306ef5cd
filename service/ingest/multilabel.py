"""Multi-label rows, whose labels are independent events: each label of a row is one prediction of a binary model with the slice `label`.

The engine stores such a model as a binary one, so exactly-once batches, labels by id, corrections, deletions, retention, exports and
imports are those of any model. A prediction has the id `ROW/PLACE` with the place of its label; the row is its unit, because the labels
of a row depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np

from calibrant.core.documents import Columns
from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow_column import Column
from calibrant.input.class_labels import is_missing
from calibrant.input.names import name_of
from calibrant.results.report import MULTILABEL
from calibrant_server.service.http.problems import BodyTooLarge
from calibrant_server.service.ingest.parsed_batch import LabelCells, ParsedBatch, indexed
from calibrant_server.workers.store.model_config import LABEL_SLICE, ModelConfig

# Each label has a pane per time slice, and is one result of a read.
MAX_LABELS = 100
_SCORES = ("probabilities", "logits")
_REPEATED = ("units", "cases", "event_times", "weights")
_TAKEN = (*_SCORES, "labels", "ids", *_REPEATED, "slices")


def label_names(posted: ParsedBatch, config: ModelConfig | None) -> list[str]:
    """Return the names of the labels of a batch whose task is multi-label: the model's, else their places.

    Raises
    ------
    CalibrationInputError
        The batch states a task that its model does not have, or has no scores of labels.
    """
    if config is not None and config.label_names is not None:
        return config.label_names
    if config is not None:
        detail = f"Received task={MULTILABEL}; the model is {config.task}. Leave the task out, or send to another model."
        raise CalibrationInputError.at("/task", "task", detail)
    return [str(place) for place in range(_n_labels(posted.columns))]


def _n_labels(columns: Columns) -> int:
    """Return the number of labels that the first row has scores of."""
    rows = next((columns[name] for name in _SCORES if name in columns), None)
    first = None if rows is None or not len(rows) else indexed(rows)[0]
    n = len(first) if isinstance(first, list | np.ndarray) else 0
    if not 1 <= n <= MAX_LABELS:
        detail = f"Received {n} labels; expected rows with the scores of 1 to {MAX_LABELS} labels."
        raise CalibrationInputError.at("/probabilities", "n_classes", detail)
    return n


def multilabel_config(tenant: str, model: str, names: Sequence[str]) -> ModelConfig:
    """Return the model that a first batch of multi-label rows makes."""
    listed = list(names)
    return ModelConfig(tenant, model, "binary", 2, slices={LABEL_SLICE: listed}, label_names=listed)


def prediction_cells(posted: ParsedBatch, names: Sequence[str], max_rows: int) -> ParsedBatch:
    """Return rows with scores of labels as predictions, one per row and label.

    Raises
    ------
    CalibrationInputError
        A column that such rows do not have, or whose rows do not have one value per label.
    BodyTooLarge
        More predictions than rows that a batch may have.
    """
    _reject_others(posted)
    kind = next((name for name in _SCORES if name in posted.columns), "probabilities")
    scores = _matrix(kind, posted.columns.get(kind), len(names))
    n, k = len(scores), len(names)
    _reject_many(n * k, names, max_rows)
    cells = LabelCells(*np.divmod(np.arange(n * k), k), n, names)
    labels = posted.columns.get("labels")
    columns: Columns = {kind: _flat(scores)}
    columns |= {} if labels is None else {"labels": _labels(labels, n, k)}
    columns |= _of_rows(posted.columns, scores, cells)
    return replace(posted, columns=columns, cells=cells)


def label_cells(posted: ParsedBatch, names: Sequence[str], max_rows: int) -> ParsedBatch:
    """Return labels of rows by id as labels of predictions; a label that is null says nothing.

    Raises
    ------
    CalibrationInputError
        Rows that do not have one value per label, or no label at all.
    BodyTooLarge
        More labels than one batch may have.
    """
    columns = {name: each for name, each in posted.columns.items() if each is not None}
    if not {"ids", "labels"} <= columns.keys():
        return posted
    n = len(columns["ids"]) if hasattr(columns["ids"], "__len__") else 0
    flat = _labels(columns["labels"], n, len(names))
    _reject_many(len(flat), names, max_rows)
    present = [place for place, each in enumerate(flat) if each is not None]
    if not present:
        detail = "Received no label: all are null. Send at least one."
        raise CalibrationInputError.at("/labels", "empty_ratings", detail)
    cells = LabelCells(*np.divmod(np.array(present), len(names)), n, names)
    found: Columns = {name: _repeated(name, each, cells) for name, each in columns.items()}
    found |= {"ids": _ids(columns["ids"], cells), "labels": [flat[place] for place in present]}
    return replace(posted, columns=found, cells=cells)


def ids_of_row(name: str, config: ModelConfig) -> tuple[str, ...]:
    """Return the ids of the predictions of a row; of other models, the id itself."""
    if config.label_names is None:
        return (name,)
    return tuple(_id(name, place) for place in range(len(config.label_names)))


def _reject_others(posted: ParsedBatch) -> None:
    """Reject what multi-label rows do not have."""
    others = [each for each in posted.columns if each not in _TAKEN]
    given = next(iter(others), None)
    if given is not None:
        detail = f"Received {given} of multi-label rows; expected probabilities or logits (n, labels), with {', '.join(_TAKEN[2:])}."
        raise CalibrationInputError.at(f"/{given}", "not_taken", detail)
    if posted.reading.normalize:
        detail = "Received normalize of multi-label rows, which do not sum to 1. Remove normalize."
        raise CalibrationInputError.at("/normalize", "not_taken", detail)
    if LABEL_SLICE in (posted.columns.get("slices") or {}):
        detail = f"Received the slice {LABEL_SLICE}, whose values are the labels of each row. Use another name."
        raise CalibrationInputError.at(f"/slices/{LABEL_SLICE}", "reserved", detail)


def _reject_many(n: int, names: Sequence[str], limit: int) -> None:
    """Reject rows with more labels, together, than one batch may have."""
    if n > limit:
        detail = f"Received {n // len(names)} rows of {len(names)} labels, together {n}; expected at most {limit}. Send several batches."
        raise BodyTooLarge(detail)


def _matrix(name: str, column: Any, k: int) -> Any:
    """Return rows with one value per label, as an array or as lists."""
    plain = isinstance(column, Column) and isinstance(column.values, np.ndarray)
    rows = column.values if plain and not column.unusable.any() else indexed(column)
    if isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.shape[1] == k:
        return rows
    rows = rows.tolist() if isinstance(rows, np.ndarray) else rows
    if not isinstance(rows, list):
        detail = f"Received no {name}; expected one row per prediction, with one value per label."
        raise CalibrationInputError.at(f"/{name}", "missing", detail)
    for place, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != k:
            n = f"{len(row)} values" if isinstance(row, list) else "no list of values"
            detail = f"Received {n}; expected {k}, one per label."
            raise CalibrationInputError.at(f"/{name}/{place}", "shape", detail)
    return rows


def _flat(rows: Any) -> Any:
    """Return the values of all rows, one after the other."""
    return rows.reshape(-1) if isinstance(rows, np.ndarray) else [v for row in rows for v in row]


def _labels(column: Any, n: int, k: int) -> list[Any]:
    """Return the labels of all rows, None where there is none; a row that is null has none."""
    listed = indexed(column)
    listed = listed.tolist() if isinstance(listed, np.ndarray) else listed
    if not isinstance(listed, list) or len(listed) != n:
        received = f"{len(listed)} rows" if isinstance(listed, list) else "another type"
        detail = f"Received {received} of labels; expected {n}, as many as there are rows of scores or ids."
        raise CalibrationInputError.at("/labels", "length", detail)
    flat = _flat(_matrix("labels", [[None] * k if row is None else row for row in listed], k))
    for place, label in enumerate(flat):
        if isinstance(label, list):
            detail = "Received a list as one label; expected 0, 1 or null for each label."
            raise CalibrationInputError.at(f"/labels/{place // k}/{place % k}", "label", detail)
    return [None if is_missing(label) else label for label in flat]


def _of_rows(columns: Columns, scores: Any, cells: LabelCells) -> Columns:
    """Return the columns with one value per row as columns of the predictions, with ids, units and the slice of the label."""
    named = [name for name in _REPEATED if name in columns]
    found = {name: _repeated(name, columns[name], cells) for name in named}
    if "ids" in columns:
        found["ids"] = _ids(columns["ids"], cells)
    if not {"units", "cases"} & columns.keys():
        units = _names(columns["ids"]) if "ids" in columns else _digests(scores)
        found["units"] = _repeated("ids", units, cells)
    own = columns.get("slices") or {}
    slices = {key: _repeated(f"slices/{key}", each, cells) for key, each in own.items()}
    slices[LABEL_SLICE] = [cells.names[label] for label in cells.labels.tolist()]
    return found | {"slices": slices}


def _names(ids: Any) -> list[str]:
    """Return the name of each row; one that is invalid is rejected as an id."""
    return [name_of(each) or "-" for each in indexed(ids)]


def _digests(scores: Any) -> list[str]:
    """Return a name of each row without an id, by its scores."""
    return [blake2b(_bits(row), digest_size=12).hexdigest() for row in scores]


def _bits(row: Any) -> bytes:
    """Return the bits of a row's scores, the same in every form of a body; none for values that are rejected as scores."""
    try:
        return np.asarray(row, np.float64).tobytes()
    except (TypeError, ValueError, OverflowError):
        return b""


def _ids(column: Any, cells: LabelCells) -> list[Any]:
    labels = cells.labels.tolist()
    names = _repeated("ids", column, cells)
    return [_id(name, label) for name, label in zip(names, labels, strict=True)]


def _id(name: Any, place: int) -> Any:
    """Return the id of a label of a row; what is no name is returned as it is, so that its row is rejected."""
    found = name_of(name)
    return name if found is None else f"{found}/{place}"


def _repeated(name: str, column: Any, cells: LabelCells) -> Any:
    """Return the value of the row of each prediction; reject another number of values than one per row."""
    listed: Any = indexed(column)
    if not isinstance(listed, list | np.ndarray) or len(listed) != cells.n_rows:
        received = f"{len(listed)} values" if hasattr(listed, "__len__") else "another type"
        detail = f"Received {received} of {name}; expected a list of {cells.n_rows}, one per row."
        raise CalibrationInputError.at(f"/{name}", "length", detail)
    if isinstance(listed, np.ndarray):
        return listed[cells.rows]
    return [listed[row] for row in cells.rows.tolist()]
