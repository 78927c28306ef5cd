"""Rows of several tails, unpacked together and taken apart only where they are used.

A window has hundreds of panes with a few rows each, and numpy takes as long for a few rows as for hundreds. So the columns of neighbouring
tails are unpacked as one block, of which each pane has a range. Panes that are merged use their ranges of a block as one. Ranges of a
block are read, cached and dropped at about the same time; the block is in memory as long as one of them. The
pieces of one tail are unpacked together in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import Columns, Header
from calibrant.core.float32 import Narrowed
from calibrant.core.packed_together import arrays_together
from calibrant.core.packing import (
    KNOWN_HEADERS,
    MAX_CONTENT,
    MAX_KNOWN_HEADER,
    Column,
    Layout,
    Opened,
    PackingError,
    layout_of,
    opened,
)
from calibrant_server.workers.ingest.tail_format import FORMAT, PLAIN, check_columns

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.tail_rows import TailRows

# Of one tail in memory: larger ones are unpacked one by one, so that a run of panes takes no more memory than its sums.
MAX_BYTES = 1 << 16
INVALID = (PackingError, KeyError, TypeError, IndexError, ValueError, OverflowError)


@dataclass(frozen=True, eq=False)
class RowRange:
    """Rows of one tail in a block.

    Attributes
    ----------
    block : rows of several tails
    start, stop : of the range
    """

    block: TailRows
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def follows(self, other: RowRange) -> bool:
        """Whether these rows are next in the same block."""
        return other.block is self.block and other.stop == self.start

    @property
    def rows(self) -> TailRows:
        """The rows alone."""
        return self.block.between(self.start, self.stop)

    @property
    def part(self) -> NDArray[np.int64]:
        return self.block.part[self.start : self.stop]

    @property
    def net(self) -> TailRows:
        """The rows without those that equal rows of opposite sign."""
        return self.rows.net

    @property
    def only_adds(self) -> bool:
        """Whether no row takes another one away."""
        return bool((self.block.sign[self.start : self.stop] > 0).all())

    @property
    def least_bytes(self) -> int:
        """Lower estimate of the packed size, without packing."""
        return 4 * len(self) * int(self.block.scores.shape[1])

    def fill_into(self, pane: Any, slice_: str, make: Callable[[], Any]) -> None:
        """Add the rows of a slice to a pane, and take away those of negative sign."""
        self.rows.fill_into(pane, slice_, make)


def joined_ranges(pieces: Sequence[Any]) -> list[Any]:
    """Return rows of panes in their order, with adjacent ranges of a block as one."""
    found: list[Any] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, RowRange) and isinstance(last, RowRange) and piece.follows(last):
            found[-1] = RowRange(piece.block, last.start, piece.stop)
        else:
            found.append(piece)
    return [each.rows if isinstance(each, RowRange) else each for each in found]


@dataclass(frozen=True, eq=False)
class _Head:
    """What the header of a tail describes.

    Attributes
    ----------
    lengths : of its arrays
    names : arrays that have the number of each row's name
    form : what tails of one block have in common
    """

    n: int
    lengths: Mapping[str, int]
    about: Header
    names: tuple[str, ...]
    form: Any


class _Tail(NamedTuple):
    """A tail whose arrays are not read yet."""

    head: _Head
    packed: Opened


def unpack_small(several: Sequence[bytes], make: Callable[..., TailRows]) -> list[RowRange | None]:
    """Return the rows of packed tails, None for those to be unpacked alone: large ones and damaged ones.

    Parameters
    ----------
    make : `TailRows`
    """
    found: list[RowRange | None] = [None] * len(several)
    alike: dict[Any, list[tuple[int, _Tail]]] = {}
    for place, data in enumerate(several):
        tail = _tail(data)
        if tail is not None:
            alike.setdefault(tail.head.form, []).append((place, tail))
    for some in alike.values():
        if not _place(some, make, found):
            # A damaged one spoils the block: the others make blocks of their own.
            for each in some:
                _place([each], make, found)
    return found


def _place(
    some: Sequence[tuple[int, _Tail]],
    make: Callable[..., TailRows],
    found: list[RowRange | None],
) -> bool:
    """Make a block of tails, and put the range of each at its place; return whether they are valid."""
    try:
        block = make(**_Block([tail for _, tail in some]).columns())
    except INVALID:
        return False
    start = 0
    for place, tail in some:
        found[place] = RowRange(block, start, start + tail.head.n)
        start += tail.head.n
    return True


def unpack_together(pieces: Sequence[bytes], make: Callable[..., TailRows]) -> TailRows | None:
    """Return the rows of several pieces of one tail, in their order; None where each is to be unpacked alone: one is damaged.

    Parameters
    ----------
    make : `TailRows`
    """
    tails: list[_Tail] = []
    for data in pieces:
        tail = _tail(data, MAX_CONTENT)
        if tail is None or (tails and tail.head.form != tails[0].head.form):
            return None
        tails.append(tail)
    try:
        block = _Block(tails)
        return make(**block.columns()).knowing(block.narrowed())
    except INVALID:
        return None


def _tail(data: bytes, largest: int = MAX_BYTES) -> _Tail | None:
    """Return a tail or piece of at most so many bytes in memory, if each of its arrays has a possible length."""
    try:
        packed = opened(data, largest=largest)
        is_short = len(packed.text) <= MAX_KNOWN_HEADER
        head = _known_head(packed.text) if is_short else _head(packed.layout)
        return None if head is None else _Tail(head, packed)
    except INVALID:
        return None


@lru_cache(maxsize=KNOWN_HEADERS)
def _known_head(text: bytes) -> _Head | None:
    return _head(layout_of(text))


def _head(layout: Layout) -> _Head | None:
    """Return what the header of a tail describes; None if an array cannot have this length or type."""
    about, arrays = layout.described, {each.name: each for each in layout.columns}
    keys = tuple(map(str, about["slices"]))
    names = (["case"] if "case" in arrays else []) + [
        f"slice{number}" for number in range(len(keys)) if f"slice{number}" in arrays
    ]
    if about["rows"] != FORMAT or not _has_lengths(arrays, about, names):
        return None
    lengths = {name: each.shape[0] for name, each in arrays.items()}
    form = (about["task"], arrays["narrow"].shape[1], keys, tuple(names))
    return _Head(int(about["n"]), lengths, about, tuple(names), form)


def _has_lengths(arrays: Mapping[str, Column], about: Header, names: Sequence[str]) -> bool:
    """Whether the arrays have lengths that fit each other; `_Block` compares those that depend on values."""
    n, narrow, wide = int(about["n"]), arrays["narrow"], arrays["wide"]
    one, same = (n,), about["same"]
    if narrow.dtype != np.float32 or wide.dtype != np.float64:
        return False
    if len(narrow.shape) != 2 or len(wide.shape) != 2:
        return False
    n_narrow = narrow.shape[0]
    is_mixed = 0 < n_narrow < n
    return (
        n > 0
        and n == n_narrow + wide.shape[0]
        and narrow.shape[1] == wide.shape[1]
        and all(len(each.shape) == 1 for each in arrays.values() if each not in (narrow, wide))
        and ("is_narrow" in arrays or not is_mixed)
        and ("is_narrow" not in arrays or arrays["is_narrow"].shape == one)
        and ("totals" not in arrays or arrays["totals"].shape == (n_narrow,))
        and arrays["n_votes"].shape == one
        and arrays["vote_class"].shape == arrays["vote_count"].shape
        and all(same.get(name) is not None or arrays[name].shape == one for name in PLAIN)
        and all(arrays[name].shape == one for name in names)
    )


class _Block:
    """Tails of one form, whose columns are concatenated.

    Attributes
    ----------
    heads : of the tails
    sizes : rows of each
    arrays : of all tails that have them
    """

    def __init__(self, tails: Sequence[_Tail]) -> None:
        self.heads = [tail.head for tail in tails]
        self.sizes = np.array([head.n for head in self.heads])
        self.arrays = arrays_together([tail.packed for tail in tails])

    def columns(self) -> Columns:
        """Return the columns.

        Raises
        ------
        PackingError
            Some value is invalid.
        """
        n, about = int(self.sizes.sum()), self.heads[0].about
        task = about["task"]
        columns: Columns = {"task": task}
        for name, kind in PLAIN.items():
            given = [head.about["same"].get(name) for head in self.heads]
            columns[name] = self._with_own(name, given, kind)
        named, grouped = columns["named"], columns["source"] >= 2
        fits, n_votes = self._fits(), self.arrays["n_votes"]
        self._check({"narrow": fits, "hashes": named, "unit_hashes": grouped}, n_votes)
        scores = columns["scores"] = self._scores(fits)
        row = np.repeat(np.arange(n), n_votes)
        ratings = Ratings(row, self.arrays["vote_class"], self.arrays["vote_count"])
        columns["ratings"] = ratings
        check_columns(columns, task)
        hashes = Batch(task, scores, False, ratings).prediction_hash.copy()
        hashes[named] = self._hashes("hashes")
        units = hashes.copy()
        units[grouped] = self._hashes("unit_hashes")
        columns |= {"hashes": hashes, "unit_hashes": units, "cases": self._named("case")}
        columns["slices"] = {
            str(key): self._named(f"slice{number}") for number, key in enumerate(about["slices"])
        }
        return columns

    def narrowed(self) -> Narrowed:
        """Return how the scores narrow, as they were packed."""
        fits, narrow = self._fits(), self._narrow()
        scores, totals = np.zeros((len(fits), narrow.shape[1]), np.float32), np.ones(len(fits))
        scores[fits], totals[fits] = narrow, self._totals()
        return fits, scores, totals

    def _with_own(
        self, name: str, given: Sequence[Any], kind: Any, sizes: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        """Return a column: an array where a tail has one, and the given value where not.

        Parameters
        ----------
        given : of each tail; None where it has an array
        sizes : values of each tail, if not one for each row
        """
        sizes = self.sizes if sizes is None else sizes
        if None not in given:
            return np.repeat(np.array(given, kind), sizes)
        column = np.repeat(np.array([0 if each is None else each for each in given], kind), sizes)
        column[np.repeat([each is None for each in given], sizes)] = self.arrays[name]
        return column

    def _check(self, flags: dict[str, Any], n_votes: NDArray[Any]) -> None:
        """Raise PackingError unless each tail has as many values as its own rows say.

        Parameters
        ----------
        flags : for each row, whether the tail has a value of it, by the array of values
        """
        starts = np.cumsum(self.sizes) - self.sizes
        lengths = {
            name: (np.add.reduceat(has_value, starts, dtype=np.int64), name)
            for name, has_value in flags.items()
        }
        lengths["votes"] = np.add.reduceat(n_votes, starts), "vote_class"
        for expected, name in lengths.values():
            if [head.lengths.get(name, 0) for head in self.heads] != expected.tolist():
                raise PackingError(f"Received another number of {name} than the rows have.")
        if n_votes.min() < 0:
            raise PackingError("Received a row with a negative number of votes.")

    def _hashes(self, name: str) -> NDArray[Any]:
        return self.arrays.get(name, np.zeros(0, np.uint64))

    def _narrow(self) -> NDArray[np.float32]:
        """Return the scores that are four bytes."""
        return self.arrays["narrow"].reshape(-1, self.heads[0].form[1])

    def _fits(self) -> NDArray[np.bool_]:
        """Return whether the scores of each row are four bytes."""
        given = [
            None if "is_narrow" in head.lengths else head.lengths["narrow"] > 0
            for head in self.heads
        ]
        return self._with_own("is_narrow", given, np.bool_)

    def _totals(self) -> NDArray[np.float64]:
        """Return what the scores of each row of four bytes are divided by."""
        given = [None if "totals" in head.lengths else 1.0 for head in self.heads]
        sizes = np.array([head.lengths["narrow"] for head in self.heads])
        return self._with_own("totals", given, np.float64, sizes)

    def _scores(self, fits: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the scores that `pack_scores` wrote."""
        narrow = self._narrow()
        scores = np.empty((len(fits), narrow.shape[1]))
        scores[fits] = narrow.astype(np.float64) / self._totals()[:, None]
        scores[~fits] = self.arrays["wide"].reshape(-1, narrow.shape[1])
        return scores

    def _named(self, name: str) -> NDArray[Any]:
        """Return the name of each row, None without one."""
        if name not in self.arrays:
            return np.full(int(self.sizes.sum()), None, dtype=object)
        names: list[Any] = [None]
        firsts, lengths, end = [], [], 0
        text = self.arrays[f"{name}_names"].tobytes()
        for head in self.heads:
            start, end = end, end + head.lengths[f"{name}_names"]
            own = text[start:end].decode().split("\n")[:-1]
            firsts.append(len(names))
            lengths.append(len(own))
            names += own
        codes = self.arrays[name]
        if codes.min() < -1 or (codes >= np.repeat(lengths, self.sizes)).any():
            raise PackingError("Received a row with an invalid name.")
        places = np.where(codes < 0, 0, codes + np.repeat(firsts, self.sizes))
        return np.asarray(np.array(names, dtype=object)[places])
