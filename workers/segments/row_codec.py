"""Rows as bytes: the arrays of rows one after the other, and the table of names, in one compressed frame with a checksum.

Rows are read to the same bits. Joining the arrays of pieces is reading these together. Every length is compared with a bound
before it is used, and every value with its range once the arrays are read: a fill relies on both.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import TASKS
from calibrant.core.edge_rules import N_RULES
from calibrant.core.frames import MAX_CONTENT, PackingError, compressed, decompressed
from calibrant_server.workers.segments.ragged import Ints, joined, owners, starts_of
from calibrant_server.workers.segments.row_columns import FIXED, RATING, SOURCES, Codes, RowColumns
from calibrant_server.workers.segments.scores import Scores, StoredScores

R = TypeVar("R", bound=RowColumns)
FORMAT = 3
_MAGIC = b"ROWS"
# Magic, format, place of the task, numbers of classes, rows, narrow rows, ratings, keys of slices, bytes of names.
_HEAD = struct.Struct("<4sBBIIIIII")
_CODE = np.dtype("<i4")
# Higher is smaller and slower.
_LEVEL = 1


def pack_rows(rows: RowColumns) -> bytes:
    """Return rows as bytes; a name that no row has is left out."""
    stored, fixed = rows.scores.stored, joined([rows.fixed])
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


def unpack_rows(pieces: Sequence[bytes], kind: type[R]) -> R:
    """Return the rows of pieces that `pack_rows` wrote, at least one, in their order; values are checked once, on the joined columns.

    Raises
    ------
    PackingError
        Damaged bytes, bytes of another format, or pieces of different models.
    """
    try:
        return _joined([_Piece.read(data) for data in pieces], kind)
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
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each array, in their order."""
        n, k = self.n, self.n_classes
        return (
            FIXED.itemsize * n,
            _CODE.itemsize * n * self.n_keys,
            4 * self.n_narrow * k,
            8 * (n - self.n_narrow) * k,
            RATING.itemsize * self.n_ratings,
        )


class _Piece(NamedTuple):
    """Packed rows: their numbers, the bytes of each array, keys of slices and names."""

    head: _Head
    arrays: tuple[bytes, ...]
    keys: tuple[str, ...]
    names: tuple[str, ...]

    @classmethod
    def read(cls, data: bytes) -> _Piece:
        """Cut the content of packed rows; raise PackingError unless its size is that of its numbers."""
        head = _Head.read(data)
        ends = list(accumulate(head.sizes, initial=0))
        size = ends[-1] + head.n_text
        if size > MAX_CONTENT:
            raise PackingError("the rows are larger than they can be")
        content = decompressed(data[_HEAD.size :], size)
        if len(content) != size:
            raise PackingError("the rows are not as long as they say")
        text = content[ends[-1] :].decode().split("\n")[:-1]
        arrays = tuple(content[at:end] for at, end in pairwise(ends))
        return cls(head, arrays, tuple(text[: head.n_keys]), tuple(text[head.n_keys :]))


def _joined(pieces: Sequence[_Piece], kind: type[R]) -> R:
    """Return the rows of pieces over joined arrays, with one table of names."""
    heads = [each.head for each in pieces]
    task, n_classes = heads[0].task, heads[0].n_classes
    if any((each.task, each.n_classes) != (task, n_classes) for each in heads):
        raise PackingError("Received rows of different tasks or numbers of classes.")
    parts = [b"".join(each) for each in zip(*(each.arrays for each in pieces), strict=True)]
    fixed, ratings = np.frombuffer(parts[0], FIXED), np.frombuffer(parts[4], RATING)
    piece = owners(np.array([each.n for each in heads]))
    _check_lengths(heads, fixed, piece)
    fixed, keys, slices, names = _named(pieces, fixed, piece)
    narrow, wide = (np.frombuffer(each, f"<f{k}") for each, k in ((parts[2], 4), (parts[3], 8)))
    shape = (-1, n_classes)
    stored = StoredScores(
        fixed["is_narrow"], fixed["total"], narrow.reshape(shape), wide.reshape(shape)
    )
    scores = Scores(fixed["is_logits"], None, stored)
    rows = kind(TASKS[task], fixed, scores, ratings, keys, slices, names)
    if not (columns_fit(rows) and _scores_fit(stored)):
        raise PackingError("Received rows with invalid columns.")
    return rows


def _check_lengths(heads: Sequence[_Head], fixed: NDArray[np.void], piece: Ints) -> None:
    """Raise PackingError unless the rows of each piece have as many ratings and narrow scores as its numbers say."""
    for column, n in (
        (fixed["n_ratings"], [each.n_ratings for each in heads]),
        (fixed["is_narrow"], [each.n_narrow for each in heads]),
    ):
        if (np.bincount(piece, column, len(heads)) != n).any():
            raise PackingError("Received rows with other numbers of values than they say.")
    if int(fixed["n_ratings"].min(initial=0)) < 0:
        raise PackingError("Received a negative number of ratings.")


def _named(
    pieces: Sequence[_Piece], fixed: NDArray[np.void], piece: Ints
) -> tuple[NDArray[np.void], tuple[str, ...], Codes, tuple[str, ...]]:
    """Return rows with places in one table of names, keys and values of slices, and the names."""
    keys, names = pieces[0].keys, pieces[0].names
    if any((each.keys, each.names) != (keys, names) for each in pieces):
        keys = tuple(sorted({key for each in pieces for key in each.keys}))
        names = tuple(dict.fromkeys(chain.from_iterable(each.names for each in pieces)))
    slices = np.concatenate([_slices(each, keys) for each in pieces])
    n_names = np.array([len(each.names) for each in pieces])
    if not _codes_fit(np.column_stack([fixed["case"], slices]), n_names[piece]):
        raise PackingError("Received rows with places of names that are not there.")
    if any(each.names != names for each in pieces):
        place = dict(zip(names, range(len(names)), strict=True))
        lookup = np.array([place[name] for each in pieces for name in each.names], np.int32)
        first = starts_of(n_names)[piece]
        fixed = fixed.copy()
        fixed["case"] = _looked_up(lookup, fixed["case"], first)
        slices = _looked_up(lookup, slices, first[:, None])
    return fixed, keys, slices, names


def _slices(piece: _Piece, keys: tuple[str, ...]) -> Codes:
    """Return the values of slices of a piece by more keys; raise PackingError if it has a key or a name twice."""
    if len(set(piece.keys)) != piece.head.n_keys or len(set(piece.names)) != len(piece.names):
        raise PackingError("Received rows with a key or a name twice.")
    given = np.frombuffer(piece.arrays[1], _CODE).reshape(piece.head.n, piece.head.n_keys)
    if piece.keys == keys:
        return given
    found = np.full((piece.head.n, len(keys)), -1, np.int32)
    found[:, [keys.index(key) for key in piece.keys]] = given
    return found


def _codes_fit(codes: Codes, n_names: Ints) -> bool:
    """Return whether each place of a name is -1, or one of as many names."""
    return bool(codes.min(initial=-1) >= -1 and (codes < n_names[:, None]).all())


def _looked_up(lookup: Codes, codes: Codes, first: Ints) -> Codes:
    """Return new places of names; -1 stays."""
    found = np.full(codes.shape, -1, np.int32)
    own = codes >= 0
    found[own] = lookup[(codes + first)[own]]
    return found


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
