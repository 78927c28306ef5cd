"""Columns of a request, checked: every value has the meaning that its name promises, or a violation says where not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow import Column, Lists, plain
from calibrant.input.plain_values import all_numbers, as_array, as_float, as_list
from calibrant.input.rating_columns import RatingColumns
from calibrant.input.timestamps import event_times
from calibrant.input.violations import ViolationCollector

SUM_EXACT = 1e-9
SUM_LENIENT = 1e-3
# A few long rows among many wrong ones may not ask for a matrix much larger than what was sent.
MAX_SPREAD = 1_000_000
# Squares of weights and logits are summed, and squares of such sums divided by: within these bounds none leaves float64's range.
MAX_WEIGHT = 1e9
MIN_WEIGHT = 1e-50
MAX_LOGIT = float(np.finfo(np.float32).max)
SCORES = ("probabilities", "logits", "confidences")
KNOWN = (
    *SCORES,
    "labels",
    "label_counts",
    "ids",
    "units",
    "cases",
    "event_times",
    "slices",
    "weights",
)
# Names stand in paths, where . and .. are folders: a client would make another path of one that ends in them.
NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._:@-]{1,128}")
NAME_RULE = "1 to 128 of A-Za-z0-9._:@-, and neither . nor .."


@dataclass
class ParsedColumns:
    """Columns as arrays."""

    task: str
    scores: NDArray[np.float64]
    is_logits: bool
    votes: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    weights: NDArray[np.float64] | None = None
    event_times: NDArray[np.int64] | None = None
    slices: dict[str, NDArray[Any]] | None = None
    texts: dict[str, NDArray[Any]] = field(default_factory=dict)


class Columns:
    """Reads named columns of equal length."""

    def __init__(self, columns: Mapping[str, Any], violations: ViolationCollector) -> None:
        self.violations = violations
        given = {name: value for name, value in columns.items() if value is not None}
        self.columns = {name: self._plain(name, value) for name, value in given.items()}
        for name, column in self.columns.items():
            if name not in KNOWN:
                detail = f"{str(name)[:60]!r} is not a field of predictions"
                raise CalibrationInputError.at(f"/{str(name)[:60]}", "unknown_field", detail)
            if isinstance(column, np.ma.MaskedArray):
                raise CalibrationInputError.at(
                    f"/{name}", "list", "a masked array would lose its mask"
                )

    def _plain(self, name: str, value: Any) -> Any:
        """A column in a form that is read below; nulls of a column that came through Arrow are noted."""
        if isinstance(value, list | np.ndarray) or name == "slices" or name not in KNOWN:
            return value
        column = plain(name, value)
        if not isinstance(column, Column):
            return column
        if name == "labels":
            self._note_nulls(name, column.broken)
            return column.ratings()
        self._note_nulls(name, column.broken if name == "label_counts" else column.unusable)
        if name in (*SCORES, "label_counts", "weights"):
            return column.numbers()
        return self._names_or_times(name, column)

    def _names_or_times(self, name: str, column: Column) -> Any:
        values = column.values
        kinds = "M" if name == "event_times" else "iu"
        if isinstance(values, Lists) or values.ndim != 1 or values.dtype.kind not in f"O{kinds}":
            wanted = (
                "timestamps or RFC 3339 texts" if name == "event_times" else "texts or integers"
            )
            raise CalibrationInputError.at(
                f"/{name}", "arrow_type", f"Received another type; expected {wanted}."
            )
        return values

    def _note_nulls(self, name: str, rows: NDArray[np.bool_] | None) -> None:
        if rows is not None:
            detail = (
                "Received null; expected a value. Only a label may be null, while there is none."
            )
            self.violations.rows(name, rows, "null", detail)

    def read(
        self, task: str | None, n_classes: int | None, class_names: Sequence[str] | None
    ) -> ParsedColumns:
        """All columns. Whole-batch faults raise; faults of rows are noted."""
        kind = self._score_column()
        scores = self._scores(kind, n_classes)
        n, k = scores.shape
        if task == "binary" and k != 2:
            raise CalibrationInputError.at(
                f"/{kind}", "n_classes", f"a binary model has 2 classes, not {k}"
            )
        if task not in (None, "binary") and kind == "confidences":
            raise CalibrationInputError.at(
                "/confidences", "task", f"confidences are for binary models, this is {task}"
            )
        for name, column in self.columns.items():
            if name != "slices" and _length(name, column) != n:
                detail = f"{name} has {_length(name, column)} rows, {kind} has {n}"
                raise CalibrationInputError.at(f"/{name}", "length", detail)
        taken = ParsedColumns(
            task=task or ("binary" if kind == "confidences" else "multiclass"),
            scores=scores,
            is_logits=kind == "logits",
            votes=RatingColumns(self.columns, self.violations).read(n, k, class_names),
        )
        if "weights" in self.columns:
            taken.weights = self._weights()
        if "event_times" in self.columns:
            taken.event_times = event_times(self.columns["event_times"], self.violations)
        taken.texts = {
            name: self._texts(name) for name in ("ids", "units", "cases") if name in self.columns
        }
        if "slices" in self.columns:
            taken.slices = self._slices(n)
        return taken

    def _score_column(self) -> str:
        given = [name for name in SCORES if name in self.columns]
        if len(given) != 1:
            detail = f"exactly one of {', '.join(SCORES)} is required, {len(given)} were given"
            raise CalibrationInputError.at(
                f"/{given[1] if given else ''}".rstrip("/"), "one_score_column", detail
            )
        return given[0]

    def _scores(self, kind: str, n_classes: int | None) -> NDArray[np.float64]:
        width = 1 if kind == "confidences" else None
        raw = self._matrix(kind, n_classes) if width is None else self._vector(kind)[:, None]
        if len(raw) == 0:
            raise CalibrationInputError.at(f"/{kind}", "empty", "a batch has at least one row")
        k = 2 if width else raw.shape[1]
        if k < 2:
            raise CalibrationInputError.at(f"/{kind}", "n_classes", "a row has at least 2 classes")
        if n_classes is not None and k != n_classes:
            detail = f"rows have {k} classes, the model has {n_classes}"
            raise CalibrationInputError.at(f"/{kind}", "n_classes", detail)
        instead = 0.5 if width else 1.0 / k
        raw = self._rows_within(
            kind, raw, np.isfinite(raw), instead, "finite", "NaN and infinities are refused"
        )
        if kind == "logits":
            inside = np.abs(raw) <= MAX_LOGIT
            return self._rows_within(
                kind, raw, inside, 0.0, "range", "a logit lies within the range of float32"
            )
        inside = (raw >= 0.0) & (raw <= 1.0)
        raw = self._rows_within(kind, raw, inside, instead, "range", "a probability lies in [0, 1]")
        if width:
            return np.hstack([1.0 - raw, raw])
        return self._normalised(raw)

    def _rows_within(
        self,
        kind: str,
        raw: NDArray[np.float64],
        good: NDArray[np.bool_],
        instead: float,
        rule: str,
        detail: str,
    ) -> NDArray[np.float64]:
        """Rows with a value that is not good are noted, and stand as a value that does no harm."""
        if good.all():
            return raw
        rows = np.asarray(good.all(axis=1))
        self.violations.rows(kind, ~rows, rule, detail)
        return np.where(rows[:, None], raw, instead)

    def _normalised(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows as sent within 1e-9 of one, divided by their sum within 1e-3, else refused."""
        total = raw.sum(axis=1)
        off = np.abs(total - 1.0)
        for row in np.flatnonzero(off > SUM_LENIENT):
            detail = f"probabilities sum to {total[row]:.6g}; the sum must be within 1e-3 of 1"
            self.violations.row("probabilities", int(row), "row_sum", detail)
        divide = (off > SUM_EXACT) & (off <= SUM_LENIENT)
        if divide.any():
            raw[divide] /= total[divide, None]
        return raw

    def _matrix(self, name: str, n_classes: int | None) -> NDArray[np.float64]:
        column = self.columns[name]
        array = as_array(column)
        if array is None or array.ndim != 2 or array.dtype.kind not in "fiu":
            return self._matrix_by_row(name, column, n_classes)
        array = array.astype(np.float64)
        if isinstance(column, list):
            # Among numbers numpy reads true and false as 1 and 0.
            suspects = np.flatnonzero(((array == 0.0) | (array == 1.0)).any(axis=1))
            for row in suspects:
                if any(isinstance(value, bool | np.bool_) for value in column[row]):
                    self.violations.row(name, int(row), "number", "every value is a number")
        return array

    def _matrix_by_row(self, name: str, column: Any, n_classes: int | None) -> NDArray[np.float64]:
        """The slow way, which finds the rows that are to blame."""
        if not isinstance(column, list):
            raise CalibrationInputError.at(
                f"/{name}", "matrix", f"{name} is a list of rows of numbers"
            )
        column = [as_list(row) for row in column]
        lengths = [len(row) for row in column if isinstance(row, list)]
        width = n_classes or (Counter(lengths).most_common(1)[0][0] if lengths else 0)
        if len(column) * width > max(MAX_SPREAD, 4 * (sum(lengths) + len(column))):
            raise CalibrationInputError.at(
                f"/{name}", "n_classes", f"most rows do not have {width} numbers"
            )
        result = np.full((len(column), width), 1.0 / max(width, 1))
        expected = (
            f"other rows have {width}"
            if n_classes is None
            else f"the model has {n_classes} classes"
        )
        for i, row in enumerate(column):
            if not isinstance(row, list):
                self.violations.row(name, i, "matrix", "a row is a list of numbers")
            elif len(row) != width:
                self.violations.row(
                    name, i, "n_classes", f"the row has {len(row)} values, {expected}"
                )
            elif not all_numbers(row):
                self.violations.row(name, i, "number", "every value is a number")
            else:
                result[i] = [as_float(value) for value in row]
        return result

    def _vector(self, name: str) -> NDArray[np.float64]:
        column = self.columns[name]
        if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "fiu":
            return column.astype(np.float64)
        if not isinstance(column, list):
            raise CalibrationInputError.at(f"/{name}", "vector", f"{name} is a list of numbers")
        if all_numbers(column):
            return np.array([as_float(value) for value in column])
        result = np.full(len(column), 0.5)
        for i, value in enumerate(column):
            if all_numbers([value]):
                result[i] = as_float(value)
            else:
                self.violations.row(name, i, "number", "every value is a number")
        return result

    def _weights(self) -> NDArray[np.float64]:
        weights = self._vector("weights")
        bad = ~((weights == 0) | ((weights >= MIN_WEIGHT) & (weights <= MAX_WEIGHT)))
        detail = f"a weight is 0 or lies in {MIN_WEIGHT:.0e} to {MAX_WEIGHT:.0e}"
        self.violations.rows("weights", bad, "weight", detail)
        return np.where(bad, 0.0, weights)

    def _texts(self, name: str) -> NDArray[Any]:
        given = self.columns[name]
        if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
            given = given.astype(str)  # a number's digits are its name
        column = list(given)
        strings = set(map(type, column)) <= {str, np.str_}
        if not strings or not _all_names(column):
            for i, text in enumerate(column):
                if not isinstance(text, str) or not NAME.fullmatch(text):
                    self.violations.row(name, i, "name", NAME_RULE)
                    column[i] = "?"
        if name == "ids" and len(set(column)) < len(column):
            self._repeated(column)
        return np.array(column, dtype=object)

    def _repeated(self, ids: list[str]) -> None:
        seen: set[str] = set()
        for i, text in enumerate(ids):
            if text in seen:
                self.violations.row(
                    "ids", i, "repeated_id", f"{text!r} stands in this batch already"
                )
            seen.add(text)

    def _slices(self, n: int) -> dict[str, NDArray[Any]]:
        given = self.columns["slices"]
        if not isinstance(given, Mapping):
            raise CalibrationInputError.at(
                "/slices", "slices", "slices maps a key to one value a row"
            )
        result: dict[str, NDArray[Any]] = {}
        for key, column in given.items():
            if not isinstance(key, str) or not NAME.fullmatch(key):
                raise CalibrationInputError.at("/slices", "name", f"a slice key has {NAME_RULE}")
            if ":" in key:
                detail = "a slice key has no colon, which parts it from its value"
                raise CalibrationInputError.at(f"/slices/{key}", "name", detail)
            column = plain(f"slices/{key}", column)
            if isinstance(column, Column):
                self._note_nulls(f"slices/{key}", column.unusable)
                column = self._names_or_times(f"slices/{key}", column)
            if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
                column = column.astype(str)
            if not isinstance(column, list | np.ndarray) or len(column) != n:
                detail = f"one value for each of the {n} rows is required"
                raise CalibrationInputError.at(f"/slices/{key}", "length", detail)
            values = list(column)
            for i, text in enumerate(values):
                if not isinstance(text, str) or not NAME.fullmatch(text):
                    self.violations.row(f"slices/{key}", i, "name", NAME_RULE)
                    values[i] = "?"
            result[key] = np.array(values, dtype=object)
        return result


def _all_names(column: list[str]) -> bool:
    joined = "\n".join(column) + "\n"
    return joined.count("\n") == len(column) and bool(
        re.fullmatch(r"(?:(?!\.\.?\n)[A-Za-z0-9._:@-]{1,128}\n)*", joined)
    )


def _length(name: str, column: Any) -> int:
    if isinstance(column, list | Lists) or (isinstance(column, np.ndarray) and column.ndim):
        return len(column)
    raise CalibrationInputError.at(f"/{name}", "list", f"{name} is a list with one entry a row")
