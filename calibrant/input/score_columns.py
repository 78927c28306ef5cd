"""Scores of a request: probabilities or logits of every class, or of class 1 alone, as rows of float64.

One number per row, (n,) or (n, 1), is of class 1 of two. Log-odds of class 1 are their logistic function: the same task,
scope and rows as the probabilities have.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.edge_rules import FLOAT32, rule_of_type
from calibrant.core.errors import CalibrationInputError
from calibrant.input import advice
from calibrant.input.narrow_types import type_name
from calibrant.input.row_sums import SUM_EXACT, SUM_LENIENT, tolerance_of
from calibrant.input.value_checks import (
    ViolationCollector,
    all_numbers,
    as_array,
    as_float,
    as_list,
    described,
    first_without_number,
    flat,
    kind_of,
)

# A few long rows among many invalid ones must not allocate a matrix much larger than what was sent.
MAX_SPREAD = 1_000_000
# Squares of logits are summed: within this bound no sum exceeds float64's range.
MAX_LOGIT = float(np.finfo(np.float32).max)
# Rounding of sigmoids, softmaxes and averages outside [0, 1].
ROUNDING = 1e-5
# Log-odds from which 1 - p has fewer than nine digits, so that the other class gets a logistic function of its own.
_SATURATED = 16.0
# Probabilities of larger log-odds are not normal numbers: such rows stay logits.
_MAX_LOG_ODDS = 700.0
_NUMBER = "Received {}, which is not a number; expected numbers only."

Floats = NDArray[np.float64]


@dataclass
class ParsedScores:
    """Scores of all classes.

    Attributes
    ----------
    rows : float64 (n, n_classes), probabilities that sum to 1, or logits
    is_logits : whether rows are logits
    is_flat : whether one number per row was sent
    edge_rule : by which scores are on an edge (`core.edge_rules`)
    n_adjusted, n_normalised, largest_deviation : as in `InputNotes`
    """

    rows: Floats
    is_logits: bool
    is_flat: bool
    edge_rule: int = FLOAT32
    n_adjusted: int = 0
    n_normalised: int = 0
    largest_deviation: float = 0.0


class ScoreColumn:
    """Reader of one column of scores. Errors of the complete column are raised; errors of rows are noted.

    Parameters
    ----------
    kind : `probabilities`, `logits`, `confidences` or `label_shares`
    column : as it was sent
    violations : collects errors of rows
    normalize : divide each row by its sum, whatever it is
    """

    def __init__(
        self, kind: str, column: Any, violations: ViolationCollector, normalize: bool = False
    ) -> None:
        self.kind, self.violations, self.normalize = kind, violations, normalize
        self._is_shares = kind == "label_shares"
        self.edge_rule = rule_of_type(type_name(column))
        self.column = np.asarray(column) if isinstance(column, np.ndarray) else column
        if normalize and kind == "logits":
            detail = "Received normalize with logits, whose softmax has the sum 1; remove it."
            raise CalibrationInputError.at("/normalize", "not_taken", detail)

    def read(self, n_classes: int | None) -> ParsedScores:
        """Return the scores of a model of `n_classes`, None for those of the column."""
        raw = self._raw(n_classes)
        if len(raw) == 0:
            detail = "Received no rows; expected at least one."
            raise CalibrationInputError.at(f"/{self.kind}", "empty", detail)
        is_flat = raw.shape[1] == 1
        self._check_width(2 if is_flat else raw.shape[1], n_classes, is_flat)
        parsed = ParsedScores(
            raw,
            self.kind == "logits",
            is_flat,
            FLOAT32 if self.kind == "logits" else self.edge_rule,
        )
        if parsed.is_logits:
            self._bound_logits(parsed)
        else:
            self._bound_probabilities(parsed)
        if is_flat:
            _complete(parsed)
        elif not parsed.is_logits:
            self._normalise(parsed)
        return parsed

    def _raw(self, n_classes: int | None) -> Floats:
        if self.kind == "confidences" or _is_flat(self.column):
            return vector(self.kind, _joined(self.column), self.violations)[:, None]
        return self._matrix(n_classes)

    def _check_width(self, k: int, n_classes: int | None, is_flat: bool) -> None:
        if k < 2:
            detail = "Received rows without a value; expected one per class."
        elif n_classes is None or k == n_classes:
            return
        elif is_flat:
            detail = (
                f"Received one number per row; expected {n_classes}, one per class of the model."
            )
        else:
            detail = f"Received rows of {k} classes; expected {n_classes}, as the model has."
        raise CalibrationInputError.at(f"/{self.kind}", "n_classes", detail)

    def _bound_logits(self, parsed: ParsedScores) -> None:
        raw = parsed.rows
        # With nan among the values neither comparison holds.
        if raw.min() >= -MAX_LOGIT and raw.max() <= MAX_LOGIT:
            return
        detail = "Received NaN or infinity; expected finite numbers."
        if np.isneginf(raw).any():
            detail += advice.MASKED_LOGITS
        raw = self._rows_within(raw, np.isfinite(raw), "finite", detail)
        detail = "Received a logit outside the range of float32; expected one inside."
        parsed.rows = self._rows_within(raw, np.abs(raw) <= MAX_LOGIT, "range", detail)

    def _bound_probabilities(self, parsed: ParsedScores) -> None:
        raw = parsed.rows
        highest = MAX_LOGIT if self.normalize and not parsed.is_flat else 1.0
        if raw.min() >= 0.0 and raw.max() <= highest:
            return
        detail = "Received NaN or infinity; expected finite numbers."
        raw = self._rows_within(raw, np.isfinite(raw), "finite", detail)
        beyond = ((raw < 0.0) & (raw >= -ROUNDING)) | ((raw > highest) & (raw <= 1.0 + ROUNDING))
        parsed.n_adjusted = int(beyond.sum())
        raw = np.where(beyond, np.clip(raw, 0.0, 1.0), raw)
        good = (raw >= 0.0) & (raw <= highest)
        if not good.all():
            what, hint = ("share", advice.COUNTS) if self._is_shares else ("probability", advice.of_range(raw))  # fmt: skip
            detail = f"Received a value outside [0, 1]; expected a {what}."
            raw = self._rows_within(raw, good, "range", detail, hint)
        parsed.rows = raw

    def _rows_within(
        self, raw: Floats, good: NDArray[np.bool_], rule: str, detail: str, hint: str = ""
    ) -> Floats:
        """Note rows with an invalid value, the first with a hint, and replace it by a harmless one."""
        if good.all():
            return raw
        rows = np.asarray(good.all(axis=1))
        self.violations.rows(self.kind, ~rows, rule, detail, hint)
        instead = 0.0 if self.kind == "logits" else 1.0 / max(raw.shape[1], 2)
        return np.where(rows[:, None], raw, instead)

    def _normalise(self, parsed: ParsedScores) -> None:
        """Use rows as sent whose sum is within 1e-9 of one; divide those within the tolerance by it; reject the others."""
        raw = parsed.rows
        total = raw.sum(axis=1)
        off = np.abs(total - 1.0)
        if off.max() <= SUM_EXACT:
            return
        far = np.flatnonzero(off > SUM_LENIENT)
        bad = far[~self._is_near(raw[far], off[far])]
        self._reject_sums(bad, total)
        divide = off > SUM_EXACT
        divide[bad] = False
        total[~divide] = 1.0
        parsed.rows = np.divide(raw, total[:, None], out=None if self._is_given(raw) else raw)
        stated = divide if self.normalize else divide & (off > SUM_LENIENT)
        parsed.n_normalised = int(stated.sum())
        parsed.largest_deviation = float(off[stated].max(initial=0.0))

    def _is_given(self, rows: Floats) -> bool:
        """Return whether rows may be the caller's own, which are not changed."""
        is_array = isinstance(self.column, np.ndarray)
        return not is_array or bool(np.may_share_memory(rows, self.column))

    def _is_near(self, rows: Floats, off: Floats) -> NDArray[np.bool_]:
        if self.normalize:
            return np.asarray(rows.sum(axis=1) > 0.0)
        return np.asarray(off <= tolerance_of(rows) + SUM_EXACT)

    def _reject_sums(self, bad: NDArray[np.int64], total: Floats) -> None:
        what, hint = ("shares", advice.COUNTS) if self._is_shares else ("probabilities", advice.of_sum(total[bad]))  # fmt: skip
        for row in bad:
            detail = f"Received {what} with sum {total[row]:.6g}; expected 1, within the rounding of the values."
            self.violations.row(self.kind, int(row), "row_sum", detail + hint)
            hint = ""

    def _matrix(self, n_classes: int | None) -> Floats:
        array = as_array(self.column)
        if array is None or array.ndim != 2 or array.dtype.kind not in "fiu":
            return self._matrix_by_row(n_classes)
        array = array.astype(np.float64, copy=False)
        if isinstance(self.column, list):
            # Among numbers numpy reads true and false as 1 and 0.
            suspects = np.flatnonzero(((array == 0.0) | (array == 1.0)).any(axis=1))
            for row in suspects:
                if any(isinstance(value, bool | np.bool_) for value in self.column[row]):
                    self.violations.row(self.kind, int(row), "number", _NUMBER.format("bool"))
        return array

    def _matrix_by_row(self, n_classes: int | None) -> Floats:
        """Read a matrix row by row, which is slow but finds the invalid rows."""
        rows = self._rows()
        lengths = [len(row) for row in rows if isinstance(row, list)]
        width = n_classes or (Counter(lengths).most_common(1)[0][0] if lengths else 0)
        if len(rows) * width > max(MAX_SPREAD, 4 * (sum(lengths) + len(rows))):
            detail = f"Received rows of different lengths; expected {width} numbers in each."
            raise CalibrationInputError.at(f"/{self.kind}", "n_classes", detail)
        result = np.full((len(rows), width), 1.0 / max(width, 1))
        expected = (
            f"expected {width}, as in other rows."
            if n_classes is None
            else f"expected {n_classes}, one per class of the model."
        )
        for i, row in enumerate(rows):
            broken = _broken(row, width, expected)
            if broken is None:
                result[i] = [as_float(value) for value in row]
            else:
                self.violations.row(self.kind, i, *broken)
        return result

    def _rows(self) -> list[Any]:
        """Return the rows of a column that is no plain matrix of numbers."""
        column = self.column
        if isinstance(column, np.ndarray) and column.dtype == object and column.ndim in (1, 2):
            column = column.tolist()
        depth = getattr(as_array(column), "ndim", 0)
        if isinstance(column, list) and depth < 3:
            return [as_list(row) for row in column]
        detail = f"Received {described(column)} for {self.kind};{advice.SHAPES}"
        if depth > 2:
            detail += advice.IMAGES
        raise CalibrationInputError.at(f"/{self.kind}", "matrix", detail)


def vector(name: str, column: Any, violations: ViolationCollector) -> Floats:
    """Return a column of one number per row. Rows without one are noted."""
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "fiu":
        return column.astype(np.float64)
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype == object:
        column = column.tolist()
    if not isinstance(column, list):
        detail = f"Received {described(column)} for {name}; expected one number per row, (n,)."
        raise CalibrationInputError.at(f"/{name}", "vector", detail)
    if all_numbers(column):
        return np.array([as_float(value) for value in column])
    result = np.full(len(column), 0.5)
    for i, value in enumerate(column):
        if all_numbers([value]):
            result[i] = as_float(value)
        else:
            violations.row(name, i, "number", _NUMBER.format(kind_of(value)))
    return result


def _joined(column: Any) -> Any:
    """Return the values of rows of one value each, and any other column as it is."""
    if isinstance(column, list) and column and all(_has_one(row) for row in column):
        return [as_list(row)[0] for row in column]
    return flat(column)


def _is_flat(column: Any) -> bool:
    """Return whether a column has one number per row, not one per class."""
    if isinstance(column, np.ndarray) and column.dtype != object:
        return column.ndim == 1 or (column.ndim == 2 and column.shape[1] == 1)
    if not isinstance(column, list | np.ndarray):
        return False
    first = next((as_list(each) for each in column if each is not None), None)
    if isinstance(first, list):
        return len(first) == 1 and all(_has_one(row) for row in column)
    return isinstance(first, Number | np.number | str)


def _has_one(row: Any) -> bool:
    row = as_list(row)
    return isinstance(row, list) and len(row) == 1 and not isinstance(row[0], list)


def _complete(parsed: ParsedScores) -> None:
    """Give scores of class 1 their other class: as probabilities, except for log-odds that no probability holds."""
    score = parsed.rows[:, 0]
    if not parsed.is_logits:
        parsed.rows = np.column_stack([1.0 - score, score])
    elif np.abs(score).max() > _MAX_LOG_ODDS:
        parsed.rows = np.column_stack([np.zeros(len(score)), score])
    else:
        parsed.rows, parsed.is_logits = _logistic(score), False


def _logistic(log_odds: Floats) -> Floats:
    """Return the probabilities of both classes."""
    probability = 1.0 / (1.0 + np.exp(-log_odds))
    odds = np.exp(-np.maximum(log_odds, _SATURATED))
    other = np.where(log_odds > _SATURATED, odds / (1.0 + odds), 1.0 - probability)
    return np.column_stack([other, probability])


def _broken(row: Any, width: int, expected: str) -> tuple[str, str] | None:
    """Return rule and detail of a row that is no row of numbers."""
    if not isinstance(row, list):
        detail = f"Received {kind_of(row)}; expected a list of numbers."
        return "matrix", detail
    if len(row) != width:
        return "n_classes", f"Received {len(row)} values; {expected}"
    wrong = first_without_number(row)
    return None if wrong is None else ("number", _NUMBER.format(kind_of(wrong[0])))
