"""Rows as bytes: the arrays of rows one after the other, and the table of names, in one compressed frame with a checksum.

Rows are read to the same bits. Every length is compared with a bound before it is used, and every value with its range once the
arrays are read: a fill relies on both.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from calibrant.core.batch import TASKS
from calibrant.core.edge_rules import N_RULES
from calibrant.core.packing import MAX_CONTENT, PackingError, compressed, decompressed
from calibrant_server.workers.segments.ragged import owners
from calibrant_server.workers.segments.row_columns import FIXED, RATING, SOURCES, RowColumns
from calibrant_server.workers.segments.scores import Scores, StoredScores

R = TypeVar("R", bound=RowColumns)
FORMAT = 3
_MAGIC = b"ROWS"
# Magic, format, place of the task, numbers of classes, rows, narrow rows, ratings, keys of slices, bytes of names.
_HEAD = struct.Struct("<4sBBIIIIII")
# Higher is smaller and slower.
_LEVEL = 1


def pack_rows(rows: RowColumns) -> bytes:
    """Return rows as bytes; a name that no row has is left out."""
    stored, fixed = rows.scores.stored, rows.fixed.copy()
    fixed["total"], fixed["is_narrow"] = stored.totals, stored.is_narrow
    slices, names = rows.slices, rows.names
    if names:
        used = np.unique(np.concatenate([fixed["case"], slices.reshape(-1)]))
        used = used[used >= 0]
        place = np.full(len(names) + 1, -1, np.int32)
        place[used] = np.arange(len(used))
        fixed["case"], slices = place[fixed["case"]], place[slices]
        names = tuple(names[code] for code in used.tolist())
    text = "".join(f"{name}\n" for name in (*rows.keys, *names)).encode()
    arrays = (fixed, slices, stored.narrow, stored.wide, rows.ratings)
    content = b"".join([*(each.tobytes() for each in arrays), text])
    head = _HEAD.pack(
        _MAGIC, FORMAT, TASKS.index(rows.task), rows.scores.n_classes, len(rows), len(stored.narrow), len(rows.ratings),
        len(rows.keys), len(text),
    )  # fmt: skip
    return head + compressed(content, _LEVEL)


def unpack_rows(data: bytes, kind: type[R]) -> R:
    """Return the rows that `pack_rows` wrote.

    Raises
    ------
    PackingError
        Damaged bytes, or bytes of another format.
    """
    try:
        return _unpacked(data, kind)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, PackingError):
            raise
        raise PackingError(f"not packed rows: {error!r}") from error


class _Head(NamedTuple):
    """Numbers of packed rows, as their first bytes have them."""

    task: int
    n_classes: int
    n: int
    n_narrow: int
    n_ratings: int
    n_keys: int
    n_text: int

    @classmethod
    def read(cls, data: bytes) -> _Head:
        """Return the numbers; raise PackingError for another format."""
        magic, number, *numbers = _HEAD.unpack_from(data)
        if magic != _MAGIC or number != FORMAT:
            raise PackingError(f"Received rows of format {number}; this version reads {FORMAT}.")
        head = cls(*numbers)
        if head.n_narrow > head.n or head.task >= len(TASKS):
            raise PackingError("Received rows with invalid numbers.")
        return head

    @property
    def shapes(self) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """Type and shape of each array, in their order."""
        n, k = self.n, self.n_classes
        return [
            (FIXED, (n,)),
            (np.dtype("<i4"), (n, self.n_keys)),
            (np.dtype("<f4"), (self.n_narrow, k)),
            (np.dtype("<f8"), (n - self.n_narrow, k)),
            (RATING, (self.n_ratings,)),
        ]

    def content(self, frame: bytes) -> bytes:
        """Return the content of a frame of exactly these numbers."""
        size = self.n_text + sum(dtype.itemsize * prod(shape) for dtype, shape in self.shapes)
        if size > MAX_CONTENT:
            raise PackingError("the rows are larger than they can be")
        content = decompressed(frame, size)
        if len(content) != size:
            raise PackingError("the rows are not as long as they say")
        return content


def _unpacked(data: bytes, kind: type[R]) -> R:
    head = _Head.read(data)
    content, at, arrays = head.content(data[_HEAD.size :]), 0, []
    for dtype, shape in head.shapes:
        end = at + dtype.itemsize * prod(shape)
        arrays.append(np.frombuffer(content[at:end], dtype).reshape(shape))
        at = end
    fixed, slices, narrow, wide, ratings = arrays
    text = content[at:].decode().split("\n")[:-1]
    stored = StoredScores(fixed["is_narrow"], fixed["total"], narrow, wide)
    scores = Scores(fixed["is_logits"], None, stored)
    keys, names = tuple(text[: head.n_keys]), tuple(text[head.n_keys :])
    rows = kind(TASKS[head.task], fixed, scores, ratings, keys, slices, names)
    _check(rows)
    return rows


def _check(rows: RowColumns) -> None:
    """Raise PackingError unless every value is in its range, and every number of values is that of the arrays."""
    n_ratings = rows.fixed["n_ratings"]
    is_sound = int(n_ratings.min(initial=0)) >= 0 and int(n_ratings.sum()) == len(rows.ratings)
    if not (
        is_sound and columns_fit(rows) and _scores_fit(rows.scores.stored) and _names_fit(rows)
    ):
        raise PackingError("Received rows with invalid columns.")


def columns_fit(rows: RowColumns) -> bool:
    """Return whether ratings, occurrences, sources and weights are in their ranges."""
    fixed, ratings, n_classes = rows.fixed, rows.ratings, rows.scores.n_classes
    place = owners(fixed["n_ratings"]) * n_classes + ratings["class_index"]
    return bool(
        int(ratings["class_index"].max(initial=0)) < n_classes
        and int(ratings["n"].min(initial=1)) > 0
        and int(ratings["n"].max(initial=1)) < 2**63
        and (np.diff(place) > 0).all()
        and (fixed["count"] != 0).all()
        and int(fixed["source"].max(initial=0)) < len(SOURCES)
        and int(fixed["edge_rule"].max(initial=0)) < N_RULES
        and np.isfinite(fixed["weight"]).all()
    )


def _scores_fit(stored: StoredScores) -> bool:
    totals = stored.totals
    return bool(
        int(np.count_nonzero(stored.is_narrow)) == len(stored.narrow)
        and ((totals > 0.5) & (totals < 2.0)).all()
        and np.isfinite(stored.narrow).all()
        and np.isfinite(stored.wide).all()
    )


def _names_fit(rows: RowColumns) -> bool:
    codes = (rows.fixed["case"], rows.slices)
    n_names = len(rows.names)
    return (
        len(set(rows.names)) == n_names
        and len(set(rows.keys)) == rows.slices.shape[1]
        and all(int(each.min(initial=-1)) >= -1 for each in codes)
        and all(int(each.max(initial=-1)) < n_names for each in codes)
    )
