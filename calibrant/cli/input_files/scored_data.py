"""Predictions with labels, from one or two files, as the arguments of the library's functions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.cli.input_files.columns import Files
from calibrant.cli.input_files.file_errors import InputFileError
from calibrant.cli.input_files.formats import read_table
from calibrant.cli.input_files.labels import (
    KnownClasses,
    class_indices,
    labels_of,
    long_labels,
    ratings_by_reader,
    reject_other_labels,
    share_columns,
)
from calibrant.cli.input_files.roles import ColumnRoles
from calibrant.client import Pseudonyms
from calibrant.core.batch import Batch
from calibrant.core.errors import CalibrationInputError
from calibrant.inference.pairing import paired
from calibrant.input.arrays import read_arrays


@dataclass
class ScoredData:
    """Checked predictions with labels.

    Attributes
    ----------
    batch : of the library
    is_logits, why_logits : how the scores were read, and why
    score_columns, rater_columns, label_column : names of the columns
    classes : names of the classes, None if they are numbers
    ratings : int64 (n, n_readers), class by reader, -1 where they gave none; None unless there are several readers
    slices : value of each row, None without `--slice`
    files : path and SHA-256 of each file
    unused_id : column of ids by which rows could have been matched, but were not; None without one
    """

    batch: Batch
    is_logits: bool
    why_logits: str
    score_columns: list[str]
    label_column: str | None
    rater_columns: list[str]
    classes: list[str] | None
    ratings: NDArray[np.int64] | None = None
    slices: list[str | None] | None = None
    files: list[tuple[Path, str]] = field(default_factory=list)
    unused_id: tuple[str, str] | None = None

    @property
    def readers(self) -> list[str]:
        """Names of the readers, empty unless there are several."""
        return self.rater_columns if self.ratings is not None else []

    @property
    def by_reader(self) -> dict[str, NDArray[np.int64]]:
        """The class of each row by reader, -1 where there is no rating."""
        if self.ratings is None:
            return {}
        return {name: self.ratings[:, place] for place, name in enumerate(self.readers)}

    @property
    def paired(self) -> Batch:
        """The batch for a comparison with other predictions of the same rows."""
        return paired(self.batch)


def read_scored(
    scores_path: Path,
    labels_path: Path | None,
    roles: ColumnRoles,
    pseudonyms: Pseudonyms | None = None,
) -> ScoredData:
    """Read and check predictions and labels.

    Parameters
    ----------
    scores_path, labels_path : files; None for labels in the file of the scores
    roles : of the columns
    pseudonyms : replaces the names of units, cases, ids and files; None to keep them

    Raises
    ------
    InputFileError
        A file, column or value is not allowed.
    """
    table = read_table(scores_path, roles.form)
    other = table if labels_path is None else read_table(labels_path, roles.form)
    files = Files(table, other, roles, None if pseudonyms is None else pseudonyms.of)
    scores, score_names, is_logits, why = files.scores()
    classes = files.classes(score_names, scores.shape[1])
    known = KnownClasses(classes or (), roles.ignored, max(scores.shape[1], 2))
    order = None if roles.long else files.order(len(scores))
    columns: dict[str, Any] = {
        "logits" if is_logits else "probabilities": scores[:, 0]
        if scores.shape[1] == 1
        else scores,
    }
    reject_other_labels(other.path, roles)
    if roles.shares is None:
        by_reader, label_name, raters = _labels(files, order, known)
        columns["labels"] = labels_of(by_reader)
    else:
        by_reader, label_name, raters = [[]], roles.shares, []
        columns |= share_columns(files, order, classes)
    for argument, option in (("units", "unit"), ("cases", "case"), ("ids", "id")):
        found = files.names(option, order)
        if found is not None:
            columns[argument] = found
    weights = files.weights(order)
    if weights is not None:
        columns["weights"] = weights
    try:
        batch = read_arrays(**columns, normalize=roles.normalize)
    except CalibrationInputError as error:
        raise files.located(error, is_logits, score_names, label_name) from error
    if not batch.row_total.any():
        raise InputFileError(files.label_table.path, "No row has a label.", "no_labels", label_name)
    paths = [scores_path, *([] if labels_path is None else [labels_path])]
    return ScoredData(
        batch,
        is_logits,
        why,
        score_names,
        label_name,
        raters,
        classes,
        ratings_by_reader(by_reader) if raters or not roles.long else None,
        files.slice_values(order),
        [(path if pseudonyms is None else pseudonyms.file(path), digest(path)) for path in paths],
        files.unused_id(),
    )


def _labels(
    files: Files, order: NDArray[np.int64] | None, known: KnownClasses
) -> tuple[list[list[int | None]], str | None, list[str]]:
    """Return one column of class indices per reader, the column of the labels, and the columns of the readers."""
    if files.roles.long:
        return long_labels(files, known)
    labels, label_name, raters = files.labels(order, known.names)
    by_reader = class_indices(labels, known, files.label_table, label_name, raters)
    return by_reader, label_name, raters


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
