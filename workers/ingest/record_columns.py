"""Labelled records by columns: many of them are scored together, and an object for each takes several times as long as its bytes.

`RetainedRecord` and `retained_rows` are the second version of what is read here: a test compares them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Batch, Ratings
from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.ingest.retained_prediction import (
    CASE,
    LOGITS,
    NARROW,
    SLICED,
    UNIT,
    WEIGHTED,
    Slices,
    group_name,
    texts_at,
)
from calibrant_server.workers.ingest.retained_record import (
    COUNT_STRUCT,
    DELETED,
    DIVIDED,
    FORMATS,
    PREDICTED,
    RATER_STRUCT,
    RECORD_HEAD,
    RecordError,
)

_TIME, _NUMBER = struct.Struct("<q8s"), struct.Struct("<d")
_TEXTS = UNIT | CASE | SLICED
_NARROW, _SUM = 1, 2
# Where a head has the numbers of unnamed ratings and of raters. Many records wait for a label: they are left out by these four bytes.
LABELS, NO_LABELS = slice(8, 12), bytes(4)
Counts = Mapping[int, int]
_NOBODY: Mapping[str, int] = {}


class LabelledRow(NamedTuple):
    """A labelled prediction that counts.

    Attributes
    ----------
    ratings : rater to class, withdrawn ones included
    totals : ratings by class, unnamed and named together
    scores : packed: four or eight bytes each, then eight of the sum that they are divided by, if there is one
    form : `_NARROW` if a score takes four bytes, plus `_SUM` if there is a sum
    delay : of the first label, `UNKNOWN` if it is not known
    """

    ratings: Mapping[str, int]
    totals: Counts
    scores: bytes
    form: int
    is_logits: bool
    n_scores: int
    event_us: int
    delay: int
    weight: float | None
    unit: str | None
    case: str | None
    slices: Slices


def labelled_row(data: bytes) -> LabelledRow | None:
    """Return a labelled prediction that counts; None of any other record.

    Raises
    ------
    RecordError
        As `RetainedRecord.unpack`.
    """
    try:
        head = RECORD_HEAD.unpack_from(data)
        number, flags, _, n_scores, n_unnamed, n_ratings, n_slices, delay = head
        if number not in FORMATS:
            raise RecordError(f"record format {number} is not known")
        if not flags & PREDICTED or flags & DELETED or not (n_unnamed or n_ratings):
            return None
        totals, ratings, at = _labels(data, n_unnamed, n_ratings)
        is_narrow, is_divided = bool(flags & NARROW), number == DIVIDED
        (event_us, _), start = _TIME.unpack_from(data, at), at + _TIME.size
        at = start + n_scores * (4 if is_narrow else 8)
        if is_divided:
            (total,) = _NUMBER.unpack_from(data, at)
            at += _NUMBER.size
            if not 0.5 < total < 2.0:
                raise RecordError(f"probabilities do not sum to {total}")
        scores = data[start:at]
        weight: float | None = None
        unit: str | None = None
        case: str | None = None
        slices: Slices = ()
        if flags & WEIGHTED:
            (weight,) = _NUMBER.unpack_from(data, at)
            at += _NUMBER.size
        if flags & _TEXTS:
            unit, case, slices, at = texts_at(data, at, flags, n_slices)
        if at > len(data):
            raise RecordError(f"received {len(data)} bytes; expected at least {at}")
    except (struct.error, IndexError, ValueError) as error:
        raise RecordError(f"a record cannot be read: {error}") from error
    if not any(totals.values()):
        return None
    return LabelledRow(
        ratings, totals, scores, _NARROW * is_narrow + _SUM * is_divided, bool(flags & LOGITS), n_scores, event_us,
        delay - 1 if delay else UNKNOWN, weight, unit, case, slices,
    )  # fmt: skip


def _labels(data: bytes, n_unnamed: int, n_ratings: int) -> tuple[Counts, Mapping[str, int], int]:
    """Return ratings by class, those of named raters, and where they end."""
    at = RECORD_HEAD.size
    if n_unnamed == 1 and not n_ratings:
        return _single(*COUNT_STRUCT.unpack_from(data, at)), _NOBODY, at + COUNT_STRUCT.size
    totals: dict[int, int] = {}
    for _ in range(n_unnamed):
        class_index, n = COUNT_STRUCT.unpack_from(data, at)
        totals[class_index] = n
        at += COUNT_STRUCT.size
    ratings: dict[str, int] = {}
    for _ in range(n_ratings):
        length, class_index, _, _ = RATER_STRUCT.unpack_from(data, at)
        at += RATER_STRUCT.size
        ratings[data[at : at + length].decode()] = class_index
        at += length
    for class_index in ratings.values():
        if class_index != WITHDRAWN:
            totals[class_index] = totals.get(class_index, 0) + 1
    return totals, ratings, at


@lru_cache(maxsize=256)
def _single(class_index: int, n: int) -> Counts:
    """Return ratings of one class; most records have the same, and share it."""
    return {class_index: n}


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Labelled predictions in the order of their ids.

    Attributes
    ----------
    batch : None without a row
    raters : named raters with the number of rows that each rated, by name
    rows : as their records have them
    """

    batch: Batch | None
    raters: dict[str, int]
    rows: list[LabelledRow]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, found: Mapping[str, LabelledRow], task: str) -> LabelledRows:
        """Return rows as one batch with uniformly named units, each with its weight, and with its case if all rows have one."""
        names = sorted(found)
        rows = [found[name] for name in names]
        raters: dict[str, int] = {}
        for row in rows:
            for rater, class_index in row.ratings.items():
                if class_index != WITHDRAWN:
                    raters[rater] = raters.get(rater, 0) + 1
        batch = _batch(names, rows, task) if rows else None
        return cls(batch, dict(sorted(raters.items())), rows)

    def classes_of(self, rater: str) -> NDArray[np.int64]:
        """Return a rater's class for every row, int64 (n,); -1 if they gave none or withdrew it."""
        return np.array([row.ratings.get(rater, WITHDRAWN) for row in self.rows], np.int64)


def _batch(names: list[str], rows: list[LabelledRow], task: str) -> Batch:
    groups = [group_name(row.unit, row.case) for row in rows]
    units = None
    if any(group is not None for group in groups):
        own = [group or f"i{name}" for group, name in zip(groups, names, strict=True)]
        units = np.array(own, dtype=object)
    has_cases = all(row.case is not None for row in rows) and any(row.case for row in rows)
    scores, is_logits = _scores(rows)
    return Batch(
        task=task,
        scores=scores,
        is_logits=is_logits,
        ratings=_ratings(rows),
        weights=_weights(rows),
        ids=np.array(names, dtype=object),
        delays=np.array([row.delay for row in rows]),
        units=units,
        cases=np.array([row.case for row in rows], dtype=object) if has_cases else None,
    )


def _scores(rows: list[LabelledRow]) -> tuple[NDArray[np.float64], bool]:
    """Return scores, and whether they are logits: probabilities if some rows have these."""
    scores = _as_filled(rows)
    are_logits = [row.is_logits for row in rows]
    if all(are_logits):
        return scores, True
    none = np.zeros(0, np.int64)
    for place in np.flatnonzero(are_logits):
        own = Batch("multiclass", scores[place][None, :], True, Ratings(none, none, none))
        scores[place] = own.probabilities[0]
    return scores, False


def _as_filled(rows: list[LabelledRow]) -> NDArray[np.float64]:
    n_scores = rows[0].n_scores
    places: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        if row.n_scores != n_scores:
            raise ValueError(f"received rows of {row.n_scores} and {n_scores} scores")
        places.setdefault(row.form, []).append(place)
    scores = np.empty((len(rows), n_scores))
    for form, own in places.items():
        packed = b"".join([rows[place].scores for place in own])
        raw = np.frombuffer(packed, np.uint8).reshape(len(own), -1)
        width = n_scores * (4 if form & _NARROW else 8)
        values = raw[:, :width].copy().view("<f4" if form & _NARROW else "<f8").astype(np.float64)
        if form & _SUM:
            values /= raw[:, width:].copy().view("<f8")
        scores[own] = values
    return scores


def _ratings(rows: list[LabelledRow]) -> Ratings:
    entries: list[int] = []
    for place, row in enumerate(rows):
        totals = row.totals
        for class_index in sorted(totals) if len(totals) > 1 else totals:
            if totals[class_index]:
                entries += (place, class_index, totals[class_index])
    columns = np.array(entries, np.int64).reshape(-1, 3).T
    return Ratings(*(np.ascontiguousarray(column) for column in columns))


def _weights(rows: Iterable[LabelledRow]) -> NDArray[Any] | None:
    given = [row.weight for row in rows]
    if all(weight is None for weight in given):
        return None
    return np.array([1.0 if weight is None else weight for weight in given])
