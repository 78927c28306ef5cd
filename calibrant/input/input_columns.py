"""Checked columns of a request. Every value has the meaning that its name promises, or a violation names its row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.edge_rules import rules_of
from calibrant.core.errors import CalibrationInputError, nearest
from calibrant.input.annotations import Annotations
from calibrant.input.arrow import plain
from calibrant.input.arrow_column import Column, Lists
from calibrant.input.class_labels import ClassLabels
from calibrant.input.name_columns import NameColumns, names_or_times
from calibrant.input.notes import NO_NOTES, InputNotes
from calibrant.input.rating_columns import RatingColumns
from calibrant.input.score_columns import ParsedScores, ScoreColumn, vector
from calibrant.input.timestamps import event_times
from calibrant.input.value_checks import ViolationCollector, described, flat

# Squares of weights are summed, and squares of such sums are divided: within these bounds none exceeds float64's range.
MAX_WEIGHT = 1e9
MIN_WEIGHT = 1e-50
SCORES = ("probabilities", "logits", "confidences")
VECTORS = ("confidences", "n_ratings", "ids", "units", "cases", "event_times", "weights")
KNOWN = (
    *SCORES,
    "labels",
    "label_counts",
    "label_shares",
    "n_ratings",
    "ids",
    "units",
    "cases",
    "event_times",
    "slices",
    "weights",
)


@dataclass(frozen=True)
class Reading:
    """How columns are read, besides the task and the classes of the model.

    Attributes
    ----------
    class_names : of the classes; None for labels that are indices
    ignored : labels that are no rating
    normalize : divide each row of probabilities by its sum, whatever it is
    has_named_raters : whether each rating has the name of its rater
    """

    class_names: Sequence[Any] | None = None
    ignored: Iterable[Any] = ()
    normalize: bool = False
    has_named_raters: bool = False


@dataclass
class ParsedColumns:
    """Columns as arrays."""

    task: str
    scores: NDArray[np.float64]
    is_logits: bool
    ratings: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    weights: NDArray[np.float64] | None = None
    event_times: NDArray[np.int64] | None = None
    slices: dict[str, NDArray[Any]] | None = None
    edge_rules: NDArray[np.uint8] | None = None
    texts: dict[str, NDArray[Any]] = field(default_factory=dict)
    notes: InputNotes = NO_NOTES


class InputColumns:
    """Reader of named columns of equal length."""

    def __init__(self, columns: Mapping[str, Any], violations: ViolationCollector) -> None:
        self.violations = violations
        given = {name: value for name, value in columns.items() if value is not None}
        self.columns = {name: self._plain(name, value) for name, value in given.items()}
        long = self.columns.get("labels")
        self._annotations = long if isinstance(long, Annotations) else None
        if self._annotations is not None:
            self._ids = self._names_of_rows()
            by_row, _ = self._annotations.by_row(self._ids)
            self.columns["labels"] = [each or None for each in by_row]
        for name, column in self.columns.items():
            if name not in KNOWN:
                listed, hint = ", ".join(KNOWN), nearest(str(name), KNOWN)
                detail = f"Received field {str(name)[:60]!r}; expected one of {listed}.{hint}"
                raise CalibrationInputError.at(f"/{str(name)[:60]}", "unknown_field", detail)
            if isinstance(column, np.ma.MaskedArray) and name != "labels":
                detail = "Received a masked array; expected plain values. Fill in or leave out masked rows."
                raise CalibrationInputError.at(f"/{name}", "list", detail)

    def _plain(self, name: str, value: Any) -> Any:
        """Return a column in a form that is read below. Nulls of a column that was read through Arrow are noted."""
        if name == "slices" or name not in KNOWN:
            return value
        column = plain(name, value)
        if not isinstance(column, Column):
            return flat(column) if name in VECTORS else column
        if name == "labels":
            return column.ratings()
        if name == "label_counts":
            return column.counts()
        self.violations.nulls(name, column.unusable)
        if name in (*SCORES, "weights", "label_shares", "n_ratings"):
            return column.numbers()
        return flat(names_or_times(name, column))

    def _names_of_rows(self) -> list[str]:
        """Return the ids by which annotations are joined."""
        if "ids" not in self.columns:
            detail = "Received annotations without ids of the predictions; expected ids, by which ratings are joined."
            raise CalibrationInputError.at("/ids", "missing", detail)
        return list(NameColumns(self.columns, self.violations).texts("ids"))

    def read(self, task: str | None, n_classes: int | None, reading: Reading) -> ParsedColumns:
        """Read all columns. Errors of the complete batch are raised; errors of rows are noted."""
        kind = self._score_column()
        column = self.columns[kind]
        scores = ScoreColumn(kind, column, self.violations, reading.normalize).read(n_classes)
        self._check_task(kind, scores, task)
        n, k = scores.rows.shape
        self._check_lengths(kind, n)
        labels = ClassLabels(k, _checked_names(reading.class_names, k), reading.ignored)
        has_names = reading.has_named_raters
        if self._annotations is not None:
            self._annotations.check(labels, self._ids)
            has_names = has_names or self._annotations.is_named
        ratings = RatingColumns(self.columns, self.violations, has_names)
        taken = ParsedColumns(
            task=task or ("binary" if scores.is_flat else "multiclass"),
            scores=scores.rows,
            is_logits=scores.is_logits,
            ratings=ratings.read(n, labels),
            edge_rules=rules_of(n, scores.edge_rule),
        )
        taken.notes = InputNotes(
            scores.n_adjusted, scores.n_normalised, scores.largest_deviation, ratings.warnings,
            "label_shares" in self.columns, ratings.per_rating,
        )  # fmt: skip
        self._read_others(taken)
        return taken

    def _read_others(self, taken: ParsedColumns) -> None:
        """Read the columns that need no scores."""
        if "weights" in self.columns:
            taken.weights = self._weights()
        if "event_times" in self.columns:
            taken.event_times = event_times(self.columns["event_times"], self.violations)
        names = NameColumns(self.columns, self.violations)
        given = [name for name in ("ids", "units", "cases") if name in self.columns]
        taken.texts = {name: names.texts(name) for name in given}
        if "slices" in self.columns:
            taken.slices = names.slices(len(taken.scores))

    @staticmethod
    def _check_task(kind: str, scores: ParsedScores, task: str | None) -> None:
        k = scores.rows.shape[1]
        if task == "binary" and k != 2:
            detail = f"Received {k} classes; expected 2 for a binary model."
            raise CalibrationInputError.at(f"/{kind}", "n_classes", detail)
        if task not in (None, "binary") and scores.is_flat:
            detail = f"Received one number per row; expected probabilities or logits of every class of this {task} model."
            raise CalibrationInputError.at(f"/{kind}", "task", detail)

    def _check_lengths(self, kind: str, n: int) -> None:
        for name, column in self.columns.items():
            if name != "slices" and _length(name, column) != n:
                detail = f"Received {_length(name, column)} rows of {name}; expected {n}, as many as {kind}."
                raise CalibrationInputError.at(f"/{name}", "length", detail)

    def _score_column(self) -> str:
        given = [name for name in SCORES if name in self.columns]
        if len(given) != 1:
            received = f"the columns {', '.join(given)}" if given else "no scores"
            detail = f"Received {received}; expected exactly one of {', '.join(SCORES)}."
            raise CalibrationInputError.at(
                f"/{given[1] if given else ''}".rstrip("/"), "one_score_column", detail
            )
        return given[0]

    def _weights(self) -> NDArray[np.float64]:
        weights = vector("weights", self.columns["weights"], self.violations)
        bad = ~((weights == 0) | ((weights >= MIN_WEIGHT) & (weights <= MAX_WEIGHT)))
        detail = (
            f"Received a weight out of range; expected 0, or {MIN_WEIGHT:.0e} to {MAX_WEIGHT:.0e}."
        )
        self.violations.rows("weights", bad, "weight", detail)
        return np.where(bad, 0.0, weights)


def _checked_names(names: Sequence[Any] | None, k: int) -> Sequence[Any] | None:
    """Return names of classes, one for each."""
    if names is not None and len(names) != k:
        detail = f"Received {len(names)} names of classes; expected {k}, one per class."
        raise CalibrationInputError.at("/classes", "n_classes", detail)
    return names


def _length(name: str, column: Any) -> int:
    if isinstance(column, list | Lists) or (isinstance(column, np.ndarray) and column.ndim):
        return len(column)
    detail = f"Received {described(column)} for {name}; expected one entry per row."
    raise CalibrationInputError.at(f"/{name}", "list", detail)
