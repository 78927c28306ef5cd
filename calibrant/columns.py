"""Columns of a request, checked: every value has the meaning that its name promises, or an offence says where not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import CalibrationInputError, Offence

SUM_EXACT = 1e-9
SUM_LENIENT = 1e-3
MOST_OFFENCES = 100
MOST_RATINGS = 1_000_000
# A few long rows among many wrong ones may not ask for a matrix much larger than what was sent.
MOST_SPREAD = 1_000_000
# Ratings are counted in a table of all rows and classes where it is at most so many times as large as they are.
_DENSE = 16
# Squares of weights and logits are summed: within these bounds no sum of a pane overflows.
MOST_WEIGHT = 1e9
MOST_LOGIT = float(np.finfo(np.float32).max)
SCORES = ("probabilities", "logits", "confidences")
KNOWN = (*SCORES, "labels", "label_counts", "ids", "units", "cases", "event_times", "slices", "weights")
NAME = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
NAME_RULE = "1 to 128 of A-Za-z0-9._:@-"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NUMBERS = frozenset({int, float})
_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_EARLIEST, _YEAR_10000 = 0, 253_402_300_800_000_000  # panes are counted from 1970 on


class Offences:
    """The offences found so far, and the rows that they spoil."""

    def __init__(self) -> None:
        self._of_row: dict[int, Offence] = {}

    @property
    def found(self) -> list[Offence]:
        """One offence for each bad row, in the order of rows."""
        return [self._of_row[row] for row in sorted(self._of_row)]

    def row(self, column: str, row: int, rule: str, detail: str) -> None:
        """A row that breaks a rule; only its first offence is kept."""
        if row not in self._of_row:
            self._of_row[row] = Offence(f"/{column}/{row}", rule, detail)

    def rows(self, column: str, bad: NDArray[np.bool_], rule: str, detail: str) -> None:
        """All rows marked in `bad` break a rule."""
        for row in np.flatnonzero(bad):
            self.row(column, int(row), rule, detail)

    def bad_rows(self, n: int) -> NDArray[np.bool_]:
        bad = np.zeros(n, bool)
        bad[list(self._of_row)] = True
        return bad

    def refuse(self) -> None:
        """Raise what was found, the first rows first."""
        raise CalibrationInputError(self.found[:MOST_OFFENCES])


@dataclass
class Taken:
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

    def __init__(self, columns: Mapping[str, Any], offences: Offences) -> None:
        self.columns = {name: value for name, value in columns.items() if value is not None}
        self.offences = offences
        for name, column in self.columns.items():
            if name not in KNOWN:
                detail = f"{str(name)[:60]!r} is not a field of predictions"
                raise CalibrationInputError.at(f"/{str(name)[:60]}", "unknown_field", detail)
            if isinstance(column, np.ma.MaskedArray):
                raise CalibrationInputError.at(f"/{name}", "list", "a masked array would lose its mask")

    def read(self, task: str | None, n_classes: int | None, class_names: Sequence[str] | None) -> Taken:
        """All columns. Whole-batch faults raise; faults of rows are noted."""
        kind = self._score_column()
        scores = self._scores(kind, n_classes)
        n, k = scores.shape
        if task == "binary" and k != 2:
            raise CalibrationInputError.at(f"/{kind}", "n_classes", f"a binary model has 2 classes, not {k}")
        if task not in (None, "binary") and kind == "confidences":
            raise CalibrationInputError.at("/confidences", "task", f"confidences are for binary models, this is {task}")
        for name, column in self.columns.items():
            if name != "slices" and _length(name, column) != n:
                detail = f"{name} has {_length(name, column)} rows, {kind} has {n}"
                raise CalibrationInputError.at(f"/{name}", "length", detail)
        taken = Taken(
            task=task or ("binary" if kind == "confidences" else "multiclass"),
            scores=scores,
            is_logits=kind == "logits",
            votes=self._votes(n, k, class_names),
        )
        if "weights" in self.columns:
            taken.weights = self._weights()
        if "event_times" in self.columns:
            taken.event_times = self._event_times()
        taken.texts = {name: self._texts(name) for name in ("ids", "units", "cases") if name in self.columns}
        if "slices" in self.columns:
            taken.slices = self._slices(n)
        return taken

    def _score_column(self) -> str:
        given = [name for name in SCORES if name in self.columns]
        if len(given) != 1:
            detail = f"exactly one of {', '.join(SCORES)} is required, {len(given)} were given"
            raise CalibrationInputError.at(f"/{given[1] if given else ''}".rstrip("/"), "one_score_column", detail)
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
        raw = self._rows_within(kind, raw, np.isfinite(raw), instead, "finite", "NaN and infinities are refused")
        if kind == "logits":
            inside = np.abs(raw) <= MOST_LOGIT
            return self._rows_within(kind, raw, inside, 0.0, "range", "a logit lies within the range of float32")
        inside = (raw >= 0.0) & (raw <= 1.0)
        raw = self._rows_within(kind, raw, inside, instead, "range", "a probability lies in [0, 1]")
        if width:
            return np.hstack([1.0 - raw, raw])
        return self._normalised(raw)

    def _rows_within(
        self, kind: str, raw: NDArray[np.float64], good: NDArray[np.bool_], instead: float, rule: str, detail: str
    ) -> NDArray[np.float64]:
        """Rows with a value that is not good are noted, and stand as a value that does no harm."""
        if good.all():
            return raw
        rows = np.asarray(good.all(axis=1))
        self.offences.rows(kind, ~rows, rule, detail)
        return np.where(rows[:, None], raw, instead)

    def _normalised(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows as sent within 1e-9 of one, divided by their sum within 1e-3, else refused."""
        total = raw.sum(axis=1)
        off = np.abs(total - 1.0)
        for row in np.flatnonzero(off > SUM_LENIENT):
            detail = f"probabilities sum to {total[row]:.6g}; the sum must be within 1e-3 of 1"
            self.offences.row("probabilities", int(row), "row_sum", detail)
        divide = (off > SUM_EXACT) & (off <= SUM_LENIENT)
        if divide.any():
            raw[divide] /= total[divide, None]
        return raw

    def _matrix(self, name: str, n_classes: int | None) -> NDArray[np.float64]:
        column = self.columns[name]
        array = _as_array(column)
        if array is None or array.ndim != 2 or array.dtype.kind not in "fiu":
            return self._matrix_by_row(name, column, n_classes)
        array = array.astype(np.float64)
        if isinstance(column, list):
            # Among numbers numpy reads true and false as 1 and 0.
            suspects = np.flatnonzero(((array == 0.0) | (array == 1.0)).any(axis=1))
            for row in suspects:
                if any(isinstance(value, bool | np.bool_) for value in column[row]):
                    self.offences.row(name, int(row), "number", "every value is a number")
        return array

    def _matrix_by_row(self, name: str, column: Any, n_classes: int | None) -> NDArray[np.float64]:
        """The slow way, which finds the rows that are to blame."""
        if not isinstance(column, list):
            raise CalibrationInputError.at(f"/{name}", "matrix", f"{name} is a list of rows of numbers")
        column = [_as_list(row) for row in column]
        lengths = [len(row) for row in column if isinstance(row, list)]
        width = n_classes or (Counter(lengths).most_common(1)[0][0] if lengths else 0)
        if len(column) * width > max(MOST_SPREAD, 4 * (sum(lengths) + len(column))):
            raise CalibrationInputError.at(f"/{name}", "n_classes", f"most rows do not have {width} numbers")
        result = np.full((len(column), width), 1.0 / max(width, 1))
        for i, row in enumerate(column):
            if not isinstance(row, list):
                self.offences.row(name, i, "matrix", "a row is a list of numbers")
            elif len(row) != width:
                self.offences.row(name, i, "n_classes", f"the row has {len(row)} values, others have {width}")
            elif not _all_numbers(row):
                self.offences.row(name, i, "number", "every value is a number")
            else:
                result[i] = [_as_float(value) for value in row]
        return result

    def _vector(self, name: str) -> NDArray[np.float64]:
        column = self.columns[name]
        if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "fiu":
            return column.astype(np.float64)
        if not isinstance(column, list):
            raise CalibrationInputError.at(f"/{name}", "vector", f"{name} is a list of numbers")
        if _all_numbers(column):
            return np.array([_as_float(value) for value in column])
        result = np.full(len(column), 0.5)
        for i, value in enumerate(column):
            if _all_numbers([value]):
                result[i] = _as_float(value)
            else:
                self.offences.row(name, i, "number", "every value is a number")
        return result

    def _votes(
        self, n: int, k: int, class_names: Sequence[str] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        if "labels" in self.columns and "label_counts" in self.columns:
            raise CalibrationInputError.at("/label_counts", "one_label_column", "send labels or label_counts, not both")
        if "label_counts" in self.columns:
            return self._votes_from_counts(n, k)
        if "labels" in self.columns:
            row, klass = self._ratings(n, k, class_names)
            return _votes_of(row, klass, n, k)
        return (np.zeros(0, np.int64),) * 3

    def _votes_from_counts(self, n: int, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        column = self.columns["label_counts"]
        array = _as_array(column)
        if array is None or array.shape != (n, k) or array.dtype.kind not in "iu" or _has_bools(column):
            array = self._counts_by_row(column, n, k)
        array = np.clip(array, -1, MOST_RATINGS + 1).astype(np.int64)
        negative = np.asarray((array < 0).any(axis=1))
        self.offences.rows("label_counts", negative, "negative_count", "votes are not negative")
        most = np.asarray((array > MOST_RATINGS).any(axis=1))
        self.offences.rows("label_counts", most, "count_limit", f"a class has at most {MOST_RATINGS} votes")
        array = np.clip(array, 0, MOST_RATINGS)
        row, klass = np.nonzero(array)
        return row.astype(np.int64), klass.astype(np.int64), array[row, klass]

    def _counts_by_row(self, column: Any, n: int, k: int) -> NDArray[np.int64]:
        result = np.zeros((n, k), np.int64)
        rows = column.tolist() if isinstance(column, np.ndarray) else column
        for i, row in enumerate(map(_as_list, rows)):
            if row is None:
                continue
            if not isinstance(row, list) or len(row) != k:
                self.offences.row("label_counts", i, "n_classes", f"the row has one count for each of {k} classes")
            elif not all(_is_whole(value) for value in row):
                self.offences.row("label_counts", i, "integer", "votes are whole numbers")
            else:
                result[i] = [min(max(value, -1), MOST_RATINGS + 1) for value in row]
        return result

    def _ratings(
        self, n: int, k: int, class_names: Sequence[str] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and class of every rating."""
        column = self.columns["labels"]
        if isinstance(column, np.ndarray):
            column = column.tolist()
        kinds = set(map(type, column))
        if kinds == {list}:
            flat = list(chain.from_iterable(column))
            lengths = np.fromiter(map(len, column), np.int64, n)
            if set(map(type, flat)) == {int} and (lengths > 0).all():
                return self._in_range(np.repeat(np.arange(n), lengths), flat, k)
        elif kinds == {int}:
            return self._in_range(np.arange(n), column, k)
        return self._ratings_by_row(column, k, class_names)

    def _in_range(self, row: NDArray[np.int64], flat: list[int], k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        try:
            klass = np.array(flat, np.int64)
        except OverflowError:
            klass = np.array([min(max(value, -1), k) for value in flat], np.int64)
        good = (klass >= 0) & (klass < k)
        for i in np.flatnonzero(~good):
            detail = f"class {_short(flat[i])} is not in 0 to {k - 1}"
            self.offences.row("labels", int(row[i]), "class_range", detail)
        return row[good], klass[good]

    def _ratings_by_row(
        self, column: list[Any], k: int, class_names: Sequence[str] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        index = {name: i for i, name in enumerate(class_names or ())}
        rows: list[int] = []
        flat: list[int] = []
        for i, label in enumerate(map(_as_list, column)):
            if label is None:
                continue
            ratings = label if isinstance(label, list) else [label]
            if not ratings:
                detail = "a list of ratings has at least one; send null for none"
                self.offences.row("labels", i, "empty_ratings", detail)
            for rating in ratings:
                klass = index.get(rating, rating) if isinstance(rating, str) else rating
                if not _is_whole(klass):
                    self.offences.row("labels", i, "class_index", _class_detail(rating, index))
                    break
                rows.append(i)
                flat.append(int(klass))
        return self._in_range(np.array(rows, np.int64), flat, k)

    def _weights(self) -> NDArray[np.float64]:
        weights = self._vector("weights")
        bad = ~((weights >= 0) & (weights <= MOST_WEIGHT))
        self.offences.rows("weights", bad, "weight", f"a weight lies in 0 to {MOST_WEIGHT:.0e}")
        return np.where(bad, 0.0, weights)

    def _event_times(self) -> NDArray[np.int64]:
        column = self.columns["event_times"]
        detail = "an event time is an RFC 3339 instant with its offset, such as 2026-11-20T09:00:00Z"
        if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "iM":
            return self._instants(column, detail)
        result = np.zeros(len(column), np.int64)
        for i, text in enumerate(column):
            micros = instant(text)
            if micros is None:
                self.offences.row("event_times", i, "rfc3339", detail)
            else:
                result[i] = micros
        return result

    def _instants(self, column: NDArray[Any], detail: str) -> NDArray[np.int64]:
        """Instants that came as datetime64 or as whole microseconds since 1970."""
        if column.dtype.kind == "M":
            seconds = column.astype("datetime64[s]").astype(np.int64)
            near = (seconds >= _EARLIEST // 10**6) & (seconds < _YEAR_10000 // 10**6)
            column = np.where(near, column, np.datetime64(0, "s")).astype("datetime64[us]")
        else:
            near = (column >= _EARLIEST) & (column < _YEAR_10000)
        self.offences.rows("event_times", ~near, "rfc3339", detail)
        return np.where(near, column.astype(np.int64), 0)

    def _texts(self, name: str) -> NDArray[Any]:
        column = list(self.columns[name])
        strings = set(map(type, column)) <= {str, np.str_}
        if not strings or not _all_names(column):
            for i, text in enumerate(column):
                if not isinstance(text, str) or not NAME.fullmatch(text):
                    self.offences.row(name, i, "name", NAME_RULE)
                    column[i] = "?"
        if name == "ids" and len(set(column)) < len(column):
            self._repeated(column)
        return np.array(column, dtype=object)

    def _repeated(self, ids: list[str]) -> None:
        seen: set[str] = set()
        for i, text in enumerate(ids):
            if text in seen:
                self.offences.row("ids", i, "repeated_id", f"{text!r} stands in this batch already")
            seen.add(text)

    def _slices(self, n: int) -> dict[str, NDArray[Any]]:
        given = self.columns["slices"]
        if not isinstance(given, Mapping):
            raise CalibrationInputError.at("/slices", "slices", "slices maps a key to one value a row")
        result: dict[str, NDArray[Any]] = {}
        for key, column in given.items():
            if not isinstance(key, str) or not NAME.fullmatch(key):
                raise CalibrationInputError.at("/slices", "name", f"a slice key has {NAME_RULE}")
            if ":" in key:
                detail = "a slice key has no colon, which parts it from its value"
                raise CalibrationInputError.at(f"/slices/{key}", "name", detail)
            if not isinstance(column, list | np.ndarray) or len(column) != n:
                detail = f"one value for each of the {n} rows is required"
                raise CalibrationInputError.at(f"/slices/{key}", "length", detail)
            values = list(column)
            for i, text in enumerate(values):
                if not isinstance(text, str) or not NAME.fullmatch(text):
                    self.offences.row(f"slices/{key}", i, "name", NAME_RULE)
                    values[i] = "?"
            result[key] = np.array(values, dtype=object)
        return result


def _votes_of(
    row: NDArray[np.int64], klass: NDArray[np.int64], n: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row, class and number of every class that a row's ratings name, by row, then class."""
    if n * k <= _DENSE * len(row):
        votes = np.bincount(row * k + klass, minlength=n * k)
        pairs = np.flatnonzero(votes)
        return pairs // k, pairs % k, votes[pairs]
    pairs, count = np.unique(row * k + klass, return_counts=True)
    return pairs // k, pairs % k, count.astype(np.int64)


def instant(text: Any) -> int | None:
    """Microseconds since 1970 UTC of an RFC 3339 text with an offset; None where it is not one, or lies before 1970."""
    if not isinstance(text, str) or len(text) > 64 or not _RFC3339.fullmatch(text):
        return None
    try:
        micros = (datetime.fromisoformat(text.upper()) - _EPOCH) // _MICROSECOND
        return micros if _EARLIEST <= micros < _YEAR_10000 else None
    except (ValueError, OverflowError):
        return None


def _class_detail(rating: Any, index: Mapping[str, int]) -> str:
    if rating is None:
        return "null inside a list of ratings is refused; leave the rating out"
    if isinstance(rating, str) and index:
        return f"{rating[:40]!r} is not a class of this model"
    return "a rating is a class index"


def _all_names(column: list[str]) -> bool:
    joined = "\n".join(column) + "\n"
    return joined.count("\n") == len(column) and bool(re.fullmatch(r"(?:[A-Za-z0-9._:@-]{1,128}\n)*", joined))


def _all_numbers(values: list[Any]) -> bool:
    """Whether all are numbers; numpy's own scalars are, booleans are not."""
    return _NUMBERS.issuperset(map(type, values)) or all(
        isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        for value in values
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _has_bools(rows: Any) -> bool:
    """Whether a list of rows holds booleans, which numpy reads as 1 and 0 among whole numbers."""
    return isinstance(rows, list) and not {bool, np.bool_}.isdisjoint(map(type, chain.from_iterable(rows)))


def _as_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _short(value: int) -> str:
    return str(value) if abs(value) < 2**63 else "beyond 64 bits"


def _as_array(column: Any) -> NDArray[Any] | None:
    """A numeric array, or None where the values are ragged or not all numbers."""
    try:
        array = np.asarray(column)
    except (ValueError, OverflowError, TypeError):
        return None
    return None if array.dtype == object else array


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _length(name: str, column: Any) -> int:
    if isinstance(column, list) or (isinstance(column, np.ndarray) and column.ndim):
        return len(column)
    raise CalibrationInputError.at(f"/{name}", "list", f"{name} is a list with one entry a row")
