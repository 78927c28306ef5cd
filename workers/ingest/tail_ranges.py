"""Rows of several tails, unpacked together and taken apart only where they are used.

A window has hundreds of panes with a few rows each, and numpy takes as long for a few rows as for hundreds. So the columns of neighbouring
tails are unpacked as one block, of which each pane has a range. Panes that are merged use their ranges of a block as one. Ranges of a
block are read, cached and dropped at about the same time; the block is in memory as long as one of them. The pieces of one tail are
unpacked together in the same way.
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
    n: int
    arrays: dict[str, NDArray[Any]]
    about: Header


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
        try:
            block = make(**_columns([tail for _, tail in some])[0])
        except INVALID:
            continue
        start = 0
        for place, tail in some:
            found[place] = RowRange(block, start, start + tail.n)
            start += tail.n
    return found


def unpack_together(pieces: Sequence[bytes], make: Callable[..., TailRows]) -> TailRows | None:
    """Return the rows of several pieces of one tail, in their order; None where each is to be unpacked alone: one is damaged.

    Parameters
    ----------
    make : `TailRows`
    """
    tails = []
    for data in pieces:
        tail = _tail(data, MAX_CONTENT)
        if tail is None or (tails and _form(tail) != _form(tails[0])):
            return None
        tails.append(tail)
    try:
        columns, narrowed = _columns(tails)
    except INVALID:
        return None
    return make(**columns).knowing(narrowed)


def _tail(data: bytes, largest: int = MAX_BYTES) -> _Tail | None:
    """Return the arrays of a small tail if each has the length that it must have."""
    try:
        arrays, about = unpack(data, largest=largest)
        tail = _Tail(int(about["n"]), arrays, about)
        return tail if about["rows"] == FORMAT and _has_lengths(tail) else None
    except INVALID:
        return None


def _has_lengths(tail: _Tail) -> bool:
    n, arrays, about = tail
    narrow, wide, n_votes = arrays["narrow"], arrays["wide"], arrays["n_votes"]
    if narrow.dtype != np.float32 or wide.dtype != np.float64 or narrow.ndim != 2 or wide.ndim != 2:
        return False
    is_narrow, n_narrow = arrays.get("is_narrow"), len(narrow)
    if is_narrow is None:
        fits = n in (n_narrow, len(wide)) and n == n_narrow + len(wide)
    else:
        fits = len(is_narrow) == n and np.count_nonzero(is_narrow) == n_narrow == n - len(wide)
    named = _flags(tail, "named", lambda values: values != 0)
    grouped = _flags(tail, "source", lambda values: values >= 2)
    return (
        n > 0
        and fits
        and narrow.shape[1] == wide.shape[1]
        and len(arrays.get("totals", narrow)) == n_narrow
        and n_votes.shape == (n,)
        and n_votes.min() >= 0
        and arrays["vote_class"].shape == arrays["vote_count"].shape == (n_votes.sum(),)
        and all(arrays[name].shape == (n,) for name in PLAIN if about["same"].get(name) is None)
        and len(arrays.get("hashes", ())) == named
        and len(arrays.get("unit_hashes", ())) == grouped
        and all(_has_names(tail, name) for name in _names(tail))
    )


def _flags(tail: _Tail, name: str, chosen: Callable[[Any], Any]) -> int:
    """Return how many rows have a property by a column that may be one value for all."""
    given = tail.about["same"].get(name)
    if given is not None:
        return tail.n if chosen(given) else 0
    return int(np.count_nonzero(chosen(tail.arrays[name])))


def _names(tail: _Tail) -> list[str]:
    listed = [f"slice{number}" for number in range(len(tail.about["slices"]))]
    return [
        *(["case"] if "case" in tail.arrays else []),
        *(each for each in listed if each in tail.arrays),
    ]


def _has_names(tail: _Tail, name: str) -> bool:
    codes = tail.arrays[name]
    return codes.shape == (tail.n,) and codes.min() >= -1


def _form(tail: _Tail) -> Any:
    """Return what tails of one block have in common."""
    keys = tuple(map(str, tail.about["slices"]))
    return tail.about["task"], tail.arrays["narrow"].shape[1], keys, tuple(_names(tail))


def _columns(tails: Sequence[_Tail]) -> tuple[Columns, Narrowed]:
    """Return the columns of tails of one form, concatenated, and how their scores narrow.

    Raises
    ------
    PackingError
        Some value is invalid.
    """
    sizes, about = [tail.n for tail in tails], tails[0].about
    n, task = sum(sizes), about["task"]
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
    scores, narrowed = _scores(tails, n)
    columns["scores"] = scores
    row = np.repeat(np.arange(n), _of(tails, "n_votes"))
    ratings = columns["ratings"] = Ratings(row, _of(tails, "vote_class"), _of(tails, "vote_count"))
    check_columns(columns, task)
    named, grouped = columns["named"], columns["source"] >= 2
    hashes = Batch(task, scores, False, ratings).prediction_hash.copy()
    hashes[named] = _of(tails, "hashes", np.uint64)
    units = hashes.copy()
    units[grouped] = _of(tails, "unit_hashes", np.uint64)
    columns |= {"hashes": hashes, "unit_hashes": units, "cases": _named(tails, "case", n)}
    columns["slices"] = {
        str(key): _named(tails, f"slice{number}", n) for number, key in enumerate(about["slices"])
    }
    return columns, narrowed


def _of(tails: Sequence[_Tail], name: str, kind: Any = None) -> NDArray[Any]:
    """Return an array of all tails; without `kind`, each has it."""
    if kind is None:
        return np.concatenate([tail.arrays[name] for tail in tails])
    return np.concatenate([tail.arrays.get(name, np.zeros(0, kind)) for tail in tails])


def _scores(tails: Sequence[_Tail], n: int) -> tuple[NDArray[np.float64], Narrowed]:
    """Return the scores that `pack_scores` wrote, and how they narrow."""
    fits = np.concatenate(
        [
            tail.arrays["is_narrow"].astype(np.bool_)
            if "is_narrow" in tail.arrays
            else np.full(tail.n, len(tail.arrays["narrow"]) > 0)
            for tail in tails
        ]
    )
    narrow = _of(tails, "narrow")
    divided = np.concatenate(
        [tail.arrays.get("totals", np.ones(len(tail.arrays["narrow"]))) for tail in tails]
    )
    scores, as_received = np.empty((n, narrow.shape[1])), np.zeros((n, narrow.shape[1]), np.float32)
    totals = np.ones(n)
    scores[fits], scores[~fits] = narrow.astype(np.float64) / divided[:, None], _of(tails, "wide")
    as_received[fits], totals[fits] = narrow, divided
    return scores, (fits, as_received, totals)


def _named(tails: Sequence[_Tail], name: str, n: int) -> NDArray[Any]:
    """Return the name of each row, None without one."""
    if name not in tails[0].arrays:
        return np.full(n, None, dtype=object)
    names: list[Any] = []
    codes = []
    for tail in tails:
        own = tail.arrays[f"{name}_names"].tobytes().decode().split("\n")[:-1]
        code = tail.arrays[name]
        if code.max() >= len(own):
            raise PackingError("Received a row with an invalid name.")
        codes.append(np.where(code < 0, -1, code + len(names)))
        names += own
    return np.asarray(np.array([*names, None], dtype=object)[np.concatenate(codes)])
