"""Checked columns of a request. Every value has the meaning that its name promises, or a violation names its row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.input.arrow import plain
from calibrant.input.arrow_column import Column, Lists
from calibrant.input.name_columns import NameColumns, names_or_times
from calibrant.input.rating_columns import RatingColumns
from calibrant.input.timestamps import event_times
from calibrant.input.value_checks import (
    ViolationCollector,
    all_numbers,
    as_array,
    as_float,
    as_list,
    flat,
)

SUM_EXACT = 1e-9
SUM_LENIENT = 1e-3
# A few long rows among many invalid ones must not allocate a matrix much larger than what was sent.
MAX_SPREAD = 1_000_000
# Squares of weights and logits are summed, and squares of such sums are divided: within these bounds none exceeds float64's range.
MAX_WEIGHT = 1e9
MIN_WEIGHT = 1e-50
MAX_LOGIT = float(np.finfo(np.float32).max)
SCORES = ("probabilities", "logits", "confidences")
VECTORS = ("confidences", "ids", "units", "cases", "event_times", "weights")
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
    texts: dict[str, NDArray[Any]] = field(default_factory=dict)


class InputColumns:
    """Reader of named columns of equal length."""

    def __init__(self, columns: Mapping[str, Any], violations: ViolationCollector) -> None:
        self.violations = violations
        given = {name: value for name, value in columns.items() if value is not None}
        self.columns = {name: self._plain(name, value) for name, value in given.items()}
        for name, column in self.columns.items():
            if name not in KNOWN:
                detail = f"Received field {str(name)[:60]!r}; expected one of {', '.join(KNOWN)}."
                raise CalibrationInputError.at(f"/{str(name)[:60]}", "unknown_field", detail)
            if isinstance(column, np.ma.MaskedArray):
                raise CalibrationInputError.at(
                    f"/{name}",
                    "list",
                    "Received a masked array; expected plain values. Fill in or leave out masked rows.",
                )

    def _plain(self, name: str, value: Any) -> Any:
        """Return a column in a form that is read below. Nulls of a column that was read through Arrow are noted."""
        if name == "slices" or name not in KNOWN:
            return value
        column = plain(name, value)
        if not isinstance(column, Column):
            return flat(column) if name in VECTORS else column
        if name == "labels":
            self.violations.nulls(name, column.broken)
            return column.ratings()
        self.violations.nulls(name, column.broken if name == "label_counts" else column.unusable)
        if name in (*SCORES, "label_counts", "weights"):
            return column.numbers()
        return flat(names_or_times(name, column))

    def read(
        self, task: str | None, n_classes: int | None, class_names: Sequence[str] | None
    ) -> ParsedColumns:
        """Read all columns. Errors of the complete batch are raised; errors of rows are noted."""
        kind = self._score_column()
        scores = self._scores(kind, n_classes)
        n, k = scores.shape
        if task == "binary" and k != 2:
            raise CalibrationInputError.at(
                f"/{kind}", "n_classes", f"Received {k} classes; expected 2 for a binary model."
            )
        if task not in (None, "binary") and kind == "confidences":
            raise CalibrationInputError.at(
                "/confidences",
                "task",
                f"Received confidences; expected probabilities or logits for a {task} model.",
            )
        for name, column in self.columns.items():
            if name != "slices" and _length(name, column) != n:
                detail = f"Received {_length(name, column)} rows of {name}; expected {n}, as many as {kind}."
                raise CalibrationInputError.at(f"/{name}", "length", detail)
        taken = ParsedColumns(
            task=task or ("binary" if kind == "confidences" else "multiclass"),
            scores=scores,
            is_logits=kind == "logits",
            ratings=RatingColumns(self.columns, self.violations).read(n, k, class_names),
        )
        if "weights" in self.columns:
            taken.weights = self._weights()
        if "event_times" in self.columns:
            taken.event_times = event_times(self.columns["event_times"], self.violations)
        taken.texts = {
            name: self._names.texts(name)
            for name in ("ids", "units", "cases")
            if name in self.columns
        }
        if "slices" in self.columns:
            taken.slices = self._names.slices(n)
        return taken

    @property
    def _names(self) -> NameColumns:
        return NameColumns(self.columns, self.violations)

    def _score_column(self) -> str:
        given = [name for name in SCORES if name in self.columns]
        if len(given) != 1:
            detail = f"Received {len(given)} of {', '.join(SCORES)}; expected exactly one."
            raise CalibrationInputError.at(
                f"/{given[1] if given else ''}".rstrip("/"), "one_score_column", detail
            )
        return given[0]

    def _scores(self, kind: str, n_classes: int | None) -> NDArray[np.float64]:
        width = 1 if kind == "confidences" else None
        raw = self._matrix(kind, n_classes) if width is None else self._vector(kind)[:, None]
        if len(raw) == 0:
            raise CalibrationInputError.at(
                f"/{kind}", "empty", "Received no rows; expected at least one."
            )
        k = 2 if width else raw.shape[1]
        if k < 2:
            raise CalibrationInputError.at(
                f"/{kind}",
                "n_classes",
                "Received rows of fewer than 2 classes; expected at least 2.",
            )
        if n_classes is not None and k != n_classes:
            detail = f"Received rows of {k} classes; expected {n_classes}, as the model has."
            raise CalibrationInputError.at(f"/{kind}", "n_classes", detail)
        low, high = (-MAX_LOGIT, MAX_LOGIT) if kind == "logits" else (0.0, 1.0)
        # With nan among the values neither comparison holds.
        if not (raw.min() >= low and raw.max() <= high):
            raw = self._valid_scores(kind, raw, 0.5 if width else 1.0 / k)
        if kind == "logits":
            return raw
        if width:
            return np.hstack([1.0 - raw, raw])
        return self._normalised(raw)

    def _valid_scores(
        self, kind: str, raw: NDArray[np.float64], instead: float
    ) -> NDArray[np.float64]:
        """Note rows with a score that is not finite or out of range, and replace it."""
        raw = self._rows_within(
            kind,
            raw,
            np.isfinite(raw),
            instead,
            "finite",
            "Received NaN or infinity; expected finite numbers.",
        )
        if kind == "logits":
            return self._rows_within(
                kind,
                raw,
                np.abs(raw) <= MAX_LOGIT,
                0.0,
                "range",
                "Received a logit outside the range of float32; expected one inside.",
            )
        return self._rows_within(
            kind,
            raw,
            (raw >= 0.0) & (raw <= 1.0),
            instead,
            "range",
            "Received a value outside [0, 1]; expected a probability.",
        )

    def _rows_within(
        self,
        kind: str,
        raw: NDArray[np.float64],
        good: NDArray[np.bool_],
        instead: float,
        rule: str,
        detail: str,
    ) -> NDArray[np.float64]:
        """Note rows with an invalid value, and replace it by a harmless one."""
        if good.all():
            return raw
        rows = np.asarray(good.all(axis=1))
        self.violations.rows(kind, ~rows, rule, detail)
        return np.where(rows[:, None], raw, instead)

    def _normalised(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Keep rows whose sum is within 1e-9 of one, divide those within 1e-3 by their sum, and reject the others."""
        total = raw.sum(axis=1)
        off = np.abs(total - 1.0)
        if off.max() <= SUM_EXACT:
            return raw
        for row in np.flatnonzero(off > SUM_LENIENT):
            detail = f"Received probabilities with sum {total[row]:.6g}; expected a sum within 1e-3 of 1."
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
                    self.violations.row(
                        name,
                        int(row),
                        "number",
                        "Received a value that is not a number; expected numbers only.",
                    )
        return array

    def _matrix_by_row(self, name: str, column: Any, n_classes: int | None) -> NDArray[np.float64]:
        """Read a matrix row by row, which is slow but finds the invalid rows."""
        if not isinstance(column, list):
            raise CalibrationInputError.at(
                f"/{name}",
                "matrix",
                f"Received another type for {name}; expected a list of rows of numbers.",
            )
        column = [as_list(row) for row in column]
        lengths = [len(row) for row in column if isinstance(row, list)]
        width = n_classes or (Counter(lengths).most_common(1)[0][0] if lengths else 0)
        if len(column) * width > max(MAX_SPREAD, 4 * (sum(lengths) + len(column))):
            raise CalibrationInputError.at(
                f"/{name}",
                "n_classes",
                f"Received rows of different lengths; expected {width} numbers in each.",
            )
        result = np.full((len(column), width), 1.0 / max(width, 1))
        expected = (
            f"expected {width}, as in other rows."
            if n_classes is None
            else f"expected {n_classes}, one per class of the model."
        )
        for i, row in enumerate(column):
            if not isinstance(row, list):
                self.violations.row(
                    name, i, "matrix", "Received another type; expected a list of numbers."
                )
            elif len(row) != width:
                self.violations.row(name, i, "n_classes", f"Received {len(row)} values; {expected}")
            elif not all_numbers(row):
                self.violations.row(
                    name,
                    i,
                    "number",
                    "Received a value that is not a number; expected numbers only.",
                )
            else:
                result[i] = [as_float(value) for value in row]
        return result

    def _vector(self, name: str) -> NDArray[np.float64]:
        column = self.columns[name]
        if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "fiu":
            return column.astype(np.float64)
        if not isinstance(column, list):
            raise CalibrationInputError.at(
                f"/{name}",
                "vector",
                f"Received another type for {name}; expected a list of numbers.",
            )
        if all_numbers(column):
            return np.array([as_float(value) for value in column])
        result = np.full(len(column), 0.5)
        for i, value in enumerate(column):
            if all_numbers([value]):
                result[i] = as_float(value)
            else:
                self.violations.row(
                    name,
                    i,
                    "number",
                    "Received a value that is not a number; expected numbers only.",
                )
        return result

    def _weights(self) -> NDArray[np.float64]:
        weights = self._vector("weights")
        bad = ~((weights == 0) | ((weights >= MIN_WEIGHT) & (weights <= MAX_WEIGHT)))
        detail = (
            f"Received a weight out of range; expected 0, or {MIN_WEIGHT:.0e} to {MAX_WEIGHT:.0e}."
        )
        self.violations.rows("weights", bad, "weight", detail)
        return np.where(bad, 0.0, weights)


def _length(name: str, column: Any) -> int:
    if isinstance(column, list | Lists) or (isinstance(column, np.ndarray) and column.ndim):
        return len(column)
    raise CalibrationInputError.at(
        f"/{name}",
        "list",
        f"Received another type for {name}; expected a list with one entry per row.",
    )
