"""Rows of a call of `log` as immutable pieces of known size, and as the JSON body of a batch.

The caller's arrays are copied, as they may be used again. Numbers stay arrays; everything else becomes JSON at once, so that
the bytes of a piece are the bytes that it takes in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import numpy as np

from calibrant.core.errors import CalibrationInputError
from calibrant.input.table_names import reject_other_columns

SCORES = ("probabilities", "logits")
NUMBERS = (*SCORES, "weights", "label_counts", "label_shares", "n_ratings")
# How the values of a batch are read: no columns.
OPTIONS = ("ignore_label", "normalize", "time_unit", "model_version", "task")
# What a piece takes besides its columns, and a column besides its content: objects of Python, measured and rounded up.
PIECE_OVERHEAD = 800
COLUMN_OVERHEAD = 300
MAX_ROWS = 1000
# Rows that are converted to text together: bounds what the conversion takes in memory.
ROWS_TOGETHER = 64
_NAMING = "declare them as the names of the model's classes, and pass an array, such as .to_numpy()"

Content = np.ndarray[Any, np.dtype[Any]] | bytes


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Rows of one call of `log`.

    Attributes
    ----------
    n : number of rows
    columns : by name (`slices/site` for the slice key `site`); an array, or the JSON of a list
    stamped_at : seconds since 1970, the event time of rows without one; None if the service uses the time of receipt
    """

    n: int
    columns: Mapping[str, Content]
    stamped_at: float | None

    @property
    def n_bytes(self) -> int:
        """Bytes that the piece takes in memory."""
        content = sum(
            each.nbytes if isinstance(each, np.ndarray) else len(each)
            for each in self.columns.values()
        )
        return PIECE_OVERHEAD + COLUMN_OVERHEAD * len(self.columns) + content

    @property
    def form(self) -> tuple[Any, ...]:
        """Pieces of one form fit in one batch: the same columns and number of classes."""
        scores = next(self.columns[name] for name in SCORES if name in self.columns)
        assert isinstance(scores, np.ndarray)
        return (scores.shape[1:], self.stamped_at is None, *sorted(self.columns))

    def split(self) -> tuple[RowPiece, RowPiece]:
        """Return both halves of the rows."""
        middle = self.n // 2
        return self._part(0, middle), self._part(middle, self.n)

    def _part(self, start: int, end: int) -> RowPiece:
        columns = {
            name: column[start:end].copy()
            if isinstance(column, np.ndarray)
            else json.dumps(json.loads(column)[start:end]).encode()
            for name, column in self.columns.items()
        }
        return RowPiece(end - start, columns, self.stamped_at)


def pieces(
    given: Mapping[str, Any],
    n_rows: int | None = None,
    n_bytes: int | None = None,
    stamped_at: float | None = None,
) -> list[RowPiece]:
    """Copy the columns of a call as pieces; none for no rows.

    Parameters
    ----------
    given : by name, None for a column that is absent; `slices` maps keys to columns
    n_rows : most rows of one piece. Default: all rows in one piece.
    n_bytes : most bytes of the scores of one piece, if it has more than one row
    stamped_at : event time of rows without one

    Raises
    ------
    CalibrationInputError
        A column is missing, is not an array or a list, or has another length than the scores.
    """
    reject_other_columns(given, are_named=False, naming=_NAMING)
    columns = {name: each for name, each in given.items() if each is not None and name != "slices"}
    slices = given.get("slices") or {}
    if not isinstance(slices, Mapping):
        detail = f"Received {type(slices).__name__}; expected a mapping of keys to columns."
        raise CalibrationInputError.at("/slices", "mapping", detail)
    columns |= {f"slices/{key}": each for key, each in slices.items()}
    scores = _scores(columns)
    n = len(scores)
    for name, column in columns.items():
        if isinstance(column, np.ndarray) and not column.ndim:
            detail = "Received one value; expected a column of one value per row."
            raise CalibrationInputError.at(f"/{name}", "length", detail)
        if len(column) != n:
            detail = f"Received {len(column)} values; expected {n}, one per row."
            raise CalibrationInputError.at(f"/{name}", "length", detail)
    size = max(1, n if n_rows is None else n_rows)
    if n_bytes is not None and n:
        size = min(size, max(1, n_bytes // max(1, scores[0].nbytes)))
    at = None if "event_times" in columns else stamped_at
    return [
        RowPiece(
            min(size, n - start),
            {
                name: _content(name, column[start : start + size])
                for name, column in columns.items()
            },
            at,
        )
        for start in range(0, n, size)
    ]


def n_rows_of(given: Mapping[str, Any]) -> int:
    """Return the number of rows that a call means, for the count of rows that were rejected."""
    for name in SCORES:
        if given.get(name) is not None and hasattr(given[name], "__len__"):
            return len(given[name])
    return 1


def body_of(
    batch: Sequence[RowPiece], batch_id: str, options: Mapping[str, Any] = MappingProxyType({})
) -> bytes:
    """Return pieces of one form as the JSON body of a batch, with `OPTIONS` of all of its rows."""
    named: dict[str, bytes] = {
        name: b",".join(_text(each.columns[name])[1:-1] for each in batch)
        for name in batch[0].columns
    }
    if batch[0].stamped_at is not None:
        times = (f'"{stamp(each.stamped_at or 0.0)}"'.encode() for each in batch)
        named["event_times"] = b",".join(
            b",".join([time] * each.n) for time, each in zip(times, batch, strict=True)
        )
    stated = {"batch_id": batch_id} | {name: plain_value(each) for name, each in options.items()}
    fields = [json.dumps(stated).encode()[1:-1]]
    fields += [
        b'"%s":[%s]' % (name.encode(), text) for name, text in named.items() if "/" not in name
    ]
    slices = [
        b"%s:[%s]" % (json.dumps(name.partition("/")[2]).encode(), text)
        for name, text in named.items()
        if "/" in name
    ]
    if slices:
        fields.append(b'"slices":{%s}' % b",".join(slices))
    return b"{%s}" % b",".join(fields)


def stamp(at: float) -> str:
    """Return seconds since 1970 as RFC 3339 text."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _scores(columns: dict[str, Any]) -> Any:
    """Return the one column of scores, as an array in `columns`; others that are not lists become arrays, too."""
    found = [name for name in SCORES if name in columns]
    if len(found) != 1:
        received = "both" if found else "neither"
        detail = f"Received {received} of probabilities and logits; expected exactly one of them."
        raise CalibrationInputError.at("/probabilities", "one_score_column", detail)
    for name, column in columns.items():
        if name in NUMBERS:
            columns[name] = _array(name, column)
        elif not isinstance(column, list | tuple):
            columns[name] = np.asarray(_local(column))
    scores = columns[found[0]]
    if scores.ndim not in (1, 2):
        detail = f"Received an array of shape {scores.shape}; expected (n, n_classes) or (n,)."
        raise CalibrationInputError.at(f"/{found[0]}", "shape", detail)
    return scores


def _array(name: str, column: Any) -> Any:
    """Return numbers as an array."""
    try:
        found = np.asarray(_local(column))
    except ValueError:
        found = np.asarray(None)
    if found.dtype.kind not in "biuf" or not found.ndim:
        detail = (
            "Received values that are not an array of numbers; expected one row per prediction."
        )
        raise CalibrationInputError.at(f"/{name}", "number", detail)
    return found


def _local(column: Any) -> Any:
    """Return the values of a tensor that is tracked for gradients, or on a device; anything else as it is."""
    return column.detach().cpu() if hasattr(column, "detach") else column


def _content(name: str, column: Any) -> Content:
    """Return a copy of a column that no one else can change."""
    if isinstance(column, np.ndarray):
        if column.dtype.kind == "M":
            column = np.char.add(np.datetime_as_string(column.astype("datetime64[us]")), "Z")
        if name in NUMBERS or column.dtype.kind in "iu":
            return np.array(column, dtype=np.int64 if column.dtype.kind == "b" else column.dtype)
        column = column.tolist()
    return json.dumps([plain_value(each) for each in column]).encode()


def plain_value(value: Any) -> Any:
    """Return a value of a list as JSON has it: nan and other marks of a missing value as null."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            detail = f"Received {value} without a time zone; expected one. Attach the zone that it is in."
            raise CalibrationInputError.at("/event_times", "time_zone", detail)
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    if hasattr(value, "tolist"):
        return plain_value(value.tolist())
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, float) else str(value)


def _text(column: Content) -> bytes:
    """Return the JSON list of a column."""
    if isinstance(column, bytes):
        return column
    return b"[%s]" % b",".join(
        _rows(column[start : start + ROWS_TOGETHER])[1:-1].encode()
        for start in range(0, len(column), ROWS_TOGETHER)
    )


def _rows(some: np.ndarray[Any, np.dtype[Any]]) -> str:
    values = some.tolist()
    try:
        return json.dumps(values, allow_nan=False)
    except ValueError:
        # The service rejects these rows and no others.
        return json.dumps(_finite(values))


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if math.isfinite(value) else None


def nested(columns: dict[str, Any]) -> dict[str, Any]:
    """Return columns with those of slices below `slices`."""
    found = {name: each for name, each in columns.items() if "/" not in name}
    slices = {name.partition("/")[2]: each for name, each in columns.items() if "/" in name}
    return found | ({"slices": slices} if slices else {})


def halves(batch: Sequence[RowPiece]) -> Iterator[list[RowPiece]]:
    """Yield both halves of a batch: of its pieces, or of the rows of its only piece."""
    if len(batch) > 1:
        yield list(batch[: len(batch) // 2])
        yield list(batch[len(batch) // 2 :])
    else:
        for half in batch[0].split():
            yield [half]
