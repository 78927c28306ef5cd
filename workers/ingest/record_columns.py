"""Labelled records one by one, each as a tuple: many are scored together, and an object of each takes several times as long as its bytes.

`RetainedRecord` and `retained_rows` are the second version of what is read here: a test compares them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from calibrant.accumulators.delays import UNKNOWN
from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.ingest.retained_prediction import (
    CASE,
    LOGITS,
    NARROW,
    SLICED,
    UNIT,
    WEIGHTED,
    Slices,
    texts_at,
)
from calibrant_server.workers.ingest.retained_record import (
    COUNT_STRUCT,
    DELETED,
    PREDICTED,
    RATER_STRUCT,
    RECORD_HEAD,
)
from calibrant_server.workers.join.record_format import (
    DIVIDED,
    FORMATS,
    LONG_NAMES,
    LONG_RATERS,
    PLAIN,
    RecordError,
)

_TIME, _NUMBER = struct.Struct("<q8s"), struct.Struct("<d")
_TEXTS = UNIT | CASE | SLICED
NARROW_FORM, SUM_FORM = 1, 2
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
    form : `NARROW_FORM` if a score takes four bytes, plus `SUM_FORM` if there is a sum
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
        form = number - PLAIN
        totals, ratings, at = _labels(data, n_unnamed, n_ratings, 2 if form & LONG_RATERS else 1)
        is_narrow, is_divided = bool(flags & NARROW), bool(form & DIVIDED)
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
            unit, case, slices, at = texts_at(data, at, flags, n_slices, bool(form & LONG_NAMES))
        if at > len(data):
            raise RecordError(f"received {len(data)} bytes; expected at least {at}")
    except (struct.error, IndexError, ValueError) as error:
        raise RecordError(f"a record cannot be read: {error}") from error
    if not any(totals.values()):
        return None
    return LabelledRow(
        ratings, totals, scores, NARROW_FORM * is_narrow + SUM_FORM * is_divided, bool(flags & LOGITS), n_scores, event_us,
        delay - 1 if delay else UNKNOWN, weight, unit, case, slices,
    )  # fmt: skip


def _labels(
    data: bytes, n_unnamed: int, n_ratings: int, width: int
) -> tuple[Counts, Mapping[str, int], int]:
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
        length = int.from_bytes(data[at : at + width], "little")
        class_index, _, _ = RATER_STRUCT.unpack_from(data, at + width)
        at += width + RATER_STRUCT.size
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
