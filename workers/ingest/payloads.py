"""Payloads of labels and of updates (histograms, panes): how entries of these kinds are packed.

Ranges of labels and deletions are checked by columns before any of an entry counts. The API rejects such values before it appends a batch,
and names field and row. Entries also come from elsewhere: from other writers of the stream, and from other versions. A class outside the
model would be stored with the record, and fail only when its pane is filled.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from operator import or_
from typing import Any

import orjson

from calibrant.input.labels import MAX_NAMED, MAX_REVISION, WITHDRAWN, LabelRow
from calibrant.input.names import NAME_RULE, are_names, name_of
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.join.record_format import MAX_RATINGS_OF_CLASS

_MAGIC = b"CU"
_FORMAT = 1
_HEAD = struct.Struct("<2sBxI")
_ROWS_TOGETHER = 1000  # as plain lists, rows take several times their memory


def pack_labels(rows: Sequence[LabelRow]) -> bytes:
    """Pack the payload of kind `labels`; equal rows give equal bytes."""
    parts = [
        _rows_as_json(rows[start : start + _ROWS_TOGETHER])
        for start in range(0, len(rows), _ROWS_TOGETHER)
    ]
    return b'{"format":%d,"rows":[%b]}' % (_FORMAT, b",".join(parts))


def _rows_as_json(rows: Sequence[LabelRow]) -> bytes:
    return orjson.dumps([[row.id, sorted(row.unnamed.items()), row.ratings] for row in rows])[1:-1]


def unpack_labels(payload: bytes) -> list[Any]:
    """Return the rows of a payload of kind `labels`, as lists: id, unnamed and named ratings; raise EntryError if it is damaged."""
    try:
        found = orjson.loads(payload)
        if found["format"] != _FORMAT:
            raise EntryError(f"received labels in another format; expected format {_FORMAT}")
        rows: list[Any] = found["rows"]
        for _, unnamed, ratings in rows:
            if type(unnamed) is not list or type(ratings) is not list:
                raise EntryError("the labels cannot be read: a row is not an id with two lists")
    except (KeyError, TypeError, ValueError) as error:
        raise EntryError(f"the labels cannot be read: {error}") from error
    return rows


@dataclass(frozen=True)
class PackedUpdate:
    """A histogram or pane that a client filled itself.

    Attributes
    ----------
    packed : `calibrant.Histogram.pack()` or `calibrant.Pane.pack()`
    event_time_us : microseconds since the epoch; None for the histogram's own, else the time of receipt
    slices : key to value, None for the histogram's own; the update fills the slice of all rows and one of each pair
    source, epoch, sequence : given together for running totals (`mode: cumulative`), else None
    at : pointer to the update in the request body, None for the body itself
    """

    packed: bytes
    event_time_us: int | None = None
    slices: dict[str, str] | None = None
    source: str | None = None
    epoch: int | None = None
    sequence: int | None = None
    at: str | None = None

    @property
    def is_cumulative(self) -> bool:
        """Whether the totals replace those of a smaller sequence."""
        return self.source is not None


def pack_updates(updates: Sequence[PackedUpdate]) -> bytes:
    """Pack the payload of kind `histograms` or `pane`."""
    heads = []
    for update in updates:
        head = {
            name: value
            for name, value in asdict(update).items()
            if value is not None and name != "packed"
        }
        heads.append({**head, "n": len(update.packed)})
    head_bytes = json.dumps(heads, separators=(",", ":")).encode()
    return (
        _HEAD.pack(_MAGIC, _FORMAT, len(head_bytes))
        + head_bytes
        + b"".join(u.packed for u in updates)
    )


def unpack_updates(payload: bytes) -> list[PackedUpdate]:
    """Unpack a payload of kind `histograms` or `pane`; raise EntryError if it is damaged."""
    try:
        magic, version, head_length = _HEAD.unpack_from(payload)
        if (magic, version) != (_MAGIC, _FORMAT):
            raise EntryError(f"received updates in another format; expected format {_FORMAT}")
        at = _HEAD.size + head_length
        heads: list[dict[str, Any]] = json.loads(payload[_HEAD.size : at])
        updates = []
        for head in heads:
            length = head.pop("n")
            updates.append(PackedUpdate(packed=payload[at : at + length], **head))
            at += length
    except (
        struct.error,
        TypeError,
        KeyError,
        AttributeError,
        UnicodeDecodeError,
        json.JSONDecodeError,
    ) as error:
        raise EntryError(f"the updates cannot be read: {error}") from error
    if at != len(payload):
        raise EntryError(f"received {len(payload)} bytes of updates; expected {at}")
    return updates


def check_labels(rows: Sequence[Any], n_classes: int) -> None:
    """Raise EntryError unless every id, class, number, rater and revision of the rows is in range."""
    if not _are_valid(rows, n_classes):
        raise EntryError(
            f"received labels out of range; expected rows with an id and ratings, classes from 0 to {n_classes - 1} "
            f"({WITHDRAWN}: withdrawn), each class and each rater once, and at most {MAX_NAMED} raters"
        )


def check_removal(ids: Any) -> None:
    """Raise EntryError unless the ids of a deletion are names."""
    for name in ids if type(ids) is list and ids else [ids]:
        if type(name) is not str or name_of(name) != name:
            raise EntryError(f"received the id {name!r:.40}; expected {NAME_RULE}")


def _are_valid(rows: Sequence[Any], n_classes: int) -> bool:
    """Return whether all rows are valid."""
    if not rows:
        return True
    ids, unnamed, named = zip(*rows, strict=True)
    counts, ratings = list(chain.from_iterable(unnamed)), list(chain.from_iterable(named))
    return (
        all(map(or_, map(bool, unnamed), map(bool, named)))
        and max(map(len, named)) <= MAX_NAMED
        and _are_lists(counts, 2)
        and _are_lists(ratings, 3)
        and are_names(ids)
        and _counts_fit(counts, n_classes)
        and _ratings_fit(ratings, n_classes)
        and not any(_repeats(row) for row in chain(unnamed, named) if len(row) > 1)
    )


def _are_lists(values: Sequence[Any], n: int) -> bool:
    return {*map(type, values)} <= {list} and {*map(len, values)} <= {n}


def _counts_fit(counts: Sequence[Any], n_classes: int) -> bool:
    classes, n = zip(*counts, strict=True) if counts else ((), ())
    return _are_whole(classes, 0, n_classes - 1) and _are_whole(n, 1, MAX_RATINGS_OF_CLASS)


def _ratings_fit(ratings: Sequence[Any], n_classes: int) -> bool:
    raters, classes, revisions = zip(*ratings, strict=True) if ratings else ((), (), ())
    given = [each for each in revisions if each is not None]
    return (
        are_names(raters)
        and _are_whole(classes, WITHDRAWN, n_classes - 1)
        and _are_whole(given, 0, MAX_REVISION)
    )


def _are_whole(values: Sequence[Any], lowest: int, highest: int) -> bool:
    if not values:
        return True
    return {*map(type, values)} == {int} and lowest <= min(values) and max(values) <= highest


def _repeats(row: Sequence[Any]) -> bool:
    """Whether a row has a class or a rater twice."""
    return len({first for first, *_ in row}) < len(row)
