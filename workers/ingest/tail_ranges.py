"""Rows of several tails, unpacked together and taken apart only where they are used.

A window has hundreds of panes with a few rows each, and numpy takes as long for a few rows as for hundreds. So the columns of neighbouring
tails are unpacked as one block, of which each pane has a range. Panes that are merged use their ranges of a block as one. Ranges of a
block are read, cached and dropped at about the same time; the block is in memory as long as one of them. The
pieces of one tail are unpacked together in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch, Ratings
from calibrant.core.documents import Columns, Header
from calibrant.core.float32 import Narrowed
from calibrant.core.packing import MAX_CONTENT, PackingError, unpack
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


class _Tail(NamedTuple):
    """Unpacked arrays of a tail.

    Attributes
    ----------
    names : arrays that have the number of each row's name
    """

    n: int
    arrays: dict[str, NDArray[Any]]
    about: Header
    names: tuple[str, ...]


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
            alike.setdefault(_form(tail), []).append((place, tail))
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
        block = make(**_columns([tail for _, tail in some]))
    except INVALID:
        return False
    start = 0
    for place, tail in some:
        found[place] = RowRange(block, start, start + tail.n)
        start += tail.n
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
        if tail is None or (tails and _form(tail) != _form(tails[0])):
            return None
        tails.append(tail)
    try:
        return make(**_columns(tails)).knowing(_narrowed(tails))
    except INVALID:
        return None


def _tail(data: bytes, largest: int = MAX_BYTES) -> _Tail | None:
    """Return the arrays of a tail or piece of at most so many bytes in memory, if each has a possible length."""
    try:
        arrays, about = unpack(data, largest=largest)
        names = (["case"] if "case" in arrays else []) + [
            f"slice{number}" for number in range(len(about["slices"])) if f"slice{number}" in arrays
        ]
        tail = _Tail(int(about["n"]), arrays, about, tuple(names))
        return tail if about["rows"] == FORMAT and _has_lengths(tail) else None
    except INVALID:
        return None


def _has_lengths(tail: _Tail) -> bool:
    """Whether the arrays have lengths that fit each other; `_check` compares those that depend on values."""
    n, arrays, about, names = tail
    narrow, wide, one = arrays["narrow"], arrays["wide"], (n,)
    if narrow.dtype != np.float32 or wide.dtype != np.float64 or narrow.ndim != 2 or wide.ndim != 2:
        return False
    n_narrow, same = len(narrow), about["same"]
    is_mixed = 0 < n_narrow < n
    return (
        n > 0
        and n == n_narrow + len(wide)
        and narrow.shape[1] == wide.shape[1]
        and ("is_narrow" in arrays or not is_mixed)
        and ("is_narrow" not in arrays or arrays["is_narrow"].shape == one)
        and ("totals" not in arrays or len(arrays["totals"]) == n_narrow)
        and arrays["n_votes"].shape == one
        and arrays["vote_class"].ndim == 1
        and arrays["vote_class"].shape == arrays["vote_count"].shape
        and all(same.get(name) is not None or arrays[name].shape == one for name in PLAIN)
        and all(arrays[name].shape == one for name in names)
    )


def _form(tail: _Tail) -> Any:
    """Return what tails of one block have in common."""
    keys = tuple(map(str, tail.about["slices"]))
    return tail.about["task"], tail.arrays["narrow"].shape[1], keys, tail.names


def _columns(tails: Sequence[_Tail]) -> Columns:
    """Return the columns of tails of one form, concatenated.

    Raises
    ------
    PackingError
        Some value is invalid.
    """
    sizes, about = np.array([tail.n for tail in tails]), tails[0].about
    n, task = int(sizes.sum()), about["task"]
    columns: Columns = {"task": task}
    for name, kind in PLAIN.items():
        given = [tail.about["same"].get(name) for tail in tails]
        if None not in given:
            columns[name] = np.repeat(np.array(given, kind), sizes)
        else:
            columns[name] = np.concatenate(
                [
                    tail.arrays[name].astype(kind)
                    if value is None
                    else np.full(tail.n, value, kind)
                    for tail, value in zip(tails, given, strict=True)
                ]
            )
    named, grouped = columns["named"], columns["source"] >= 2
    fits, n_votes = _fits(tails), _of(tails, "n_votes")
    _check(tails, sizes, {"narrow": fits, "hashes": named, "unit_hashes": grouped}, n_votes)
    scores = columns["scores"] = _scores(tails, fits)
    row = np.repeat(np.arange(n), n_votes)
    ratings = columns["ratings"] = Ratings(row, _of(tails, "vote_class"), _of(tails, "vote_count"))
    check_columns(columns, task)
    hashes = Batch(task, scores, False, ratings).prediction_hash.copy()
    hashes[named] = _of(tails, "hashes", np.uint64)
    units = hashes.copy()
    units[grouped] = _of(tails, "unit_hashes", np.uint64)
    columns |= {"hashes": hashes, "unit_hashes": units, "cases": _named(tails, "case", n)}
    columns["slices"] = {
        str(key): _named(tails, f"slice{number}", n) for number, key in enumerate(about["slices"])
    }
    return columns


def _check(
    tails: Sequence[_Tail], sizes: NDArray[np.int64], flags: dict[str, Any], n_votes: NDArray[Any]
) -> None:
    """Raise PackingError unless each tail has as many values as its own rows say.

    Parameters
    ----------
    flags : for each row, whether the tail has a value of it, by the array of values
    """
    starts = np.cumsum(sizes) - sizes
    lengths = {
        name: (np.add.reduceat(has_value, starts, dtype=np.int64), name)
        for name, has_value in flags.items()
    }
    lengths["votes"] = np.add.reduceat(n_votes, starts), "vote_class"
    for expected, name in lengths.values():
        if [len(tail.arrays.get(name, ())) for tail in tails] != expected.tolist():
            raise PackingError(f"Received another number of {name} than the rows have.")
    if n_votes.min() < 0:
        raise PackingError("Received a row with a negative number of votes.")


def _of(tails: Sequence[_Tail], name: str, kind: Any = None) -> NDArray[Any]:
    """Return an array of all tails; without `kind`, each has it."""
    if kind is None:
        return np.concatenate([tail.arrays[name] for tail in tails])
    return np.concatenate([tail.arrays.get(name, np.zeros(0, kind)) for tail in tails])


def _fits(tails: Sequence[_Tail]) -> NDArray[np.bool_]:
    """Return whether the scores of each row are four bytes."""
    return np.concatenate(
        [
            tail.arrays["is_narrow"].astype(np.bool_)
            if "is_narrow" in tail.arrays
            else np.full(tail.n, len(tail.arrays["narrow"]) > 0)
            for tail in tails
        ]
    )


def _totals(tails: Sequence[_Tail]) -> NDArray[np.float64]:
    """Return what the scores of each row of four bytes are divided by."""
    return np.concatenate(
        [tail.arrays.get("totals", np.ones(len(tail.arrays["narrow"]))) for tail in tails]
    )


def _scores(tails: Sequence[_Tail], fits: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the scores that `pack_scores` wrote."""
    narrow = _of(tails, "narrow")
    scores = np.empty((len(fits), narrow.shape[1]))
    values = narrow.astype(np.float64) / _totals(tails)[:, None]
    scores[fits], scores[~fits] = values, _of(tails, "wide")
    return scores


def _narrowed(tails: Sequence[_Tail]) -> Narrowed:
    """Return how the scores narrow, as they were packed."""
    fits, narrow = _fits(tails), _of(tails, "narrow")
    scores, totals = np.zeros((len(fits), narrow.shape[1]), np.float32), np.ones(len(fits))
    scores[fits], totals[fits] = narrow, _totals(tails)
    return fits, scores, totals


def _named(tails: Sequence[_Tail], name: str, n: int) -> NDArray[Any]:
    """Return the name of each row, None without one."""
    if name not in tails[0].arrays:
        return np.full(n, None, dtype=object)
    names: list[Any] = [None]
    firsts, lengths = [], []
    for tail in tails:
        own = tail.arrays[f"{name}_names"].tobytes().decode().split("\n")[:-1]
        firsts.append(len(names))
        lengths.append(len(own))
        names += own
    sizes, codes = [tail.n for tail in tails], _of(tails, name)
    if codes.min() < -1 or (codes >= np.repeat(lengths, sizes)).any():
        raise PackingError("Received a row with an invalid name.")
    places = np.where(codes < 0, 0, codes + np.repeat(firsts, sizes))
    return np.asarray(np.array(names, dtype=object)[places])
