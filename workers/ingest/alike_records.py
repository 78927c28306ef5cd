"""Records of one form, decoded together.

An object of each record takes several times as long as its bytes. Most records of a model have the same flags and number of bytes, and
one label without a rater: their columns are views of their bytes, one after the other. The others are read one by one (`labelled_row`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Ratings
from calibrant_server.workers.ingest.labelled_rows import RowBlock, Texts
from calibrant_server.workers.ingest.record_columns import LABELS, NO_LABELS, labelled_row
from calibrant_server.workers.ingest.retained_prediction import (
    CASE,
    LOGITS,
    NARROW,
    SLICED,
    UNIT,
    WEIGHTED,
    texts_at,
)
from calibrant_server.workers.ingest.retained_record import (
    DELETED,
    PREDICTED,
    RECORD_HEAD,
)
from calibrant_server.workers.join.record_format import DIVIDED, FORMATS, PLAIN

# Fewer are read one by one: numpy takes some 20 µs for a column.
MIN_ALIKE = 32
_TEXTS = UNIT | CASE | SLICED
# Of the head: format and flags; numbers of scores, unnamed labels, raters and slices. The rest differs from record to record.
_HEAD, _KIND, _NUMBERS = RECORD_HEAD.size, slice(0, 2), slice(6, 14)
_NUMBERS_STRUCT = struct.Struct("<HHHH")
_NO_TEXTS: Texts = (None, None, ())
Record = tuple[bytes, bytes]


def labelled_blocks(records: Mapping[bytes, bytes]) -> list[RowBlock]:
    """Return the labelled predictions that count of records, by id.

    Raises
    ------
    RecordError
        As `labelled_row`.
    """
    blocks: list[RowBlock] = []
    others: list[Record] = []
    for kind, numbers, alike in _forms(list(records.items())):
        block = _block(kind, numbers, alike) if len(alike) >= MIN_ALIKE else None
        if block is None:
            others += alike
        else:
            blocks.append(block)
    found = {name.decode(): row for name, data in others if (row := labelled_row(data)) is not None}
    return [*blocks, RowBlock.of(found)] if found else blocks


def _forms(records: list[Record]) -> list[tuple[bytes, bytes, list[Record]]]:
    """Return records that may have a label by their form and number of bytes, without those that never count."""
    heads = np.frombuffer(b"".join([data[:_HEAD] for _, data in records]), np.uint8)
    if len(heads) < _HEAD * len(records):
        # One is too short: `labelled_row` says so.
        return [(b"", b"", [each]) for each in records if each[1][LABELS] != NO_LABELS]
    heads = heads.reshape(-1, _HEAD)
    number, flags = heads[:, 0], heads[:, 1]
    counts = (flags & PREDICTED > 0) & (flags & DELETED == 0)
    chosen = np.flatnonzero(
        heads[:, LABELS].any(axis=1) & (counts | ~np.isin(number, list(FORMATS)))
    )
    if not len(chosen):
        return []
    heads = heads[chosen]
    lengths = np.array([len(records[place][1]) for place in chosen.tolist()])
    kinds = np.ascontiguousarray(heads[:, _KIND]).view("<u2")[:, 0].astype(np.int64)
    numbers = np.ascontiguousarray(heads[:, _NUMBERS]).view("<u8")[:, 0]
    form = _grouped(kinds | lengths << 16, numbers)
    found = []
    for own in np.split(np.argsort(form, kind="stable"), np.cumsum(np.bincount(form))[:-1]):
        head = heads[own[0]]
        alike = [records[place] for place in chosen[own].tolist()]
        found.append((head[_KIND].tobytes(), head[_NUMBERS].tobytes(), alike))
    return found


def _grouped(values: NDArray[Any], *more: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of each row's group of equal values, from 0."""
    _, group = np.unique(values, return_inverse=True)
    for each in more:
        _, other = np.unique(each, return_inverse=True)
        _, group = np.unique(group * (other.max() + 1) + other, return_inverse=True)
    return np.asarray(group, np.int64)


def _block(kind: bytes, numbers: bytes, records: Sequence[Record]) -> RowBlock | None:
    """Return predictions of one form and length with one label each; None of another form, or if one is damaged."""
    number, flags = kind
    n_scores, n_unnamed, n_ratings, n_slices = _NUMBERS_STRUCT.unpack(numbers)
    length = len(records[0][1])
    layout, end = _layout(number == PLAIN + DIVIDED, flags, n_scores)
    if (
        number not in (PLAIN, PLAIN + DIVIDED)
        or n_unnamed != 1
        or n_ratings
        or not n_scores
        or end > length
    ):
        return None
    raw = np.frombuffer(
        b"".join([data for _, data in records]),
        np.dtype((np.void, {**layout, "itemsize": length})),
    )
    scores = raw["scores"].astype(np.float64)
    if number == PLAIN + DIVIDED:
        total = raw["total"]
        if not ((total > 0.5) & (total < 2.0)).all():
            return None
        scores /= total[:, None]
    texts = _texts(records, end, flags, n_slices)
    if texts is None:
        return None
    n = len(records)
    delays = raw["delay"].astype(np.int64)
    block = RowBlock(
        names=[name.decode() for name, _ in records],
        scores=scores,
        is_logits=np.full(n, bool(flags & LOGITS)),
        ratings=Ratings(np.arange(n), raw["class"].astype(np.int64), raw["count"].astype(np.int64)),
        event_us=raw["event_us"].astype(np.int64),
        delays=np.where(delays > 0, delays - 1, UNKNOWN),
        weights=raw["weight"].astype(np.float64) if flags & WEIGHTED else np.full(n, np.nan),
        texts=texts,
        rated={},
    )
    return block.where(raw["count"] > 0)


def _layout(is_divided: bool, flags: int, n_scores: int) -> tuple[dict[str, Any], int]:
    """Return names, types and places of the columns of a form, and where its texts begin."""
    is_narrow = bool(flags & NARROW)
    at = RECORD_HEAD.size
    # Class and number of the label, time and digest of what was sent.
    columns = [("delay", "<u2", at - 2), ("class", "<u2", at), ("count", "<u4", at + 2)]
    columns += [("event_us", "<i8", at + 6)]
    at += 22
    columns.append(("scores", f"({n_scores},)<f{4 if is_narrow else 8}", at))
    at += n_scores * (4 if is_narrow else 8)
    for name, is_present in (("total", is_divided), ("weight", bool(flags & WEIGHTED))):
        if is_present:
            columns.append((name, "<f8", at))
            at += 8
    names, formats, offsets = zip(*columns, strict=True)
    return {"names": names, "formats": formats, "offsets": offsets}, at


def _texts(records: Sequence[Record], at: int, flags: int, n_slices: int) -> list[Texts] | None:
    """Return unit, case and slices of each record (many are the same); None if one is damaged."""
    if not flags & _TEXTS:
        return [_NO_TEXTS] * len(records)
    known: dict[bytes, Texts] = {}
    found = []
    for _, data in records:
        packed = data[at:]
        texts = known.get(packed)
        if texts is None:
            try:
                unit, case, slices, end = texts_at(data, at, flags, n_slices)
            except (IndexError, ValueError):
                return None
            if end > len(data):
                return None
            texts = known[packed] = (unit, case, slices)
        found.append(texts)
    return found
