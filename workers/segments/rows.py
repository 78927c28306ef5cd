"""Rows of a time slice or of a sample, with everything that is done with them: stored, cancelled and filled into panes, as the batches
that they came of, with the shares of units that were committed.

A row and its removal cancel, with equal content and equal rows of the same unit and batch. A row's share depends on the other rows of its
unit, so that two rows cancel only if their units' rows are equal as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Batch, Ratings
from calibrant.core.edge_rules import stated_rules
from calibrant.core.hashing import U64, fmix, hash_rows, mix
from calibrant.core.pane import Pane
from calibrant.core.routing import ROWS_TOGETHER
from calibrant.core.stored_batch import StoredBatch
from calibrant_server.workers.segments.ragged import Ints, owners
from calibrant_server.workers.segments.row_codec import pack_rows, unpack_rows
from calibrant_server.workers.segments.row_columns import NAMED_UNIT, SOURCES, RowColumns
from calibrant_server.workers.segments.scores import Scores

R = TypeVar("R", bound=RowColumns)
_LANE = np.full(1, 0x5851F42D4C957F2D, np.uint64)
_CONTENT = ("weight", "delay", "start_s", "case", "source", "is_logits", "edge_rule")


def uncancelled(rows: R) -> R:
    """Return the rows that remain, in order; of several equal rows the first ones cancel."""
    adds = rows.fixed["count"] > 0
    if adds.all() or not adds.any():
        return rows
    units, unit = np.unique(rows.fixed["unit_hash"], return_inverse=True)
    has_both = np.bincount(unit[adds], minlength=len(units)) > 0
    has_both &= np.bincount(unit[~adds], minlength=len(units)) > 0
    some = has_both[unit]
    if not some.any():
        return rows
    remain = ~some
    remain[some] = _remain(*_keys(rows.where(some)), adds[some])
    return rows.where(remain)


def _remain(high: U64, low: U64, adds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows remain, by their keys and signs."""
    order = np.lexsort((low, high))  # stable
    first = np.append(True, (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0))
    group = np.empty(len(high), np.int64)
    group[order] = np.cumsum(first) - 1
    n_groups = int(first.sum())
    n_pairs = np.minimum(*(np.bincount(group[own], minlength=n_groups) for own in (adds, ~adds)))
    remain = np.ones(len(high), np.bool_)
    for own in (adds, ~adds):
        index = order[own[order]]
        groups = group[index]
        start = np.searchsorted(groups, groups)  # groups increase along `order`
        remain[index[np.arange(len(index)) - start < n_pairs[groups]]] = False
    return remain


def _keys(rows: RowColumns) -> tuple[U64, U64]:
    """Return 128 bits for each row that equal rows of equal units share, whatever their sign and batch."""
    content = content_of(rows)
    high, low = (lane(content ^ lane(_LANE)) for lane in (mix, fmix))
    if (rows.fixed["source"] >= NAMED_UNIT).any():
        high, low = _of_units(rows, high, low)
    return mix(high), fmix(low)


def _of_units(rows: RowColumns, *keys: U64) -> Iterator[U64]:
    """Yield keys in which those of rows of named units have those of all rows of their unit, batch and sign."""
    fixed = rows.fixed
    batch = fixed["part"] * 2 + (fixed["count"] > 0)
    key = mix(fixed["unit_hash"] ^ mix(batch.astype(np.uint64) * len(SOURCES) + fixed["source"]))
    unit = np.unique(key, return_inverse=True)[1]
    for own in keys:
        total = np.zeros(len(rows), np.uint64)
        np.add.at(total, unit, own)
        yield np.where(fixed["source"] >= NAMED_UNIT, own + mix(total[unit]), own)


def content_of(rows: RowColumns) -> U64:
    """Hash everything of a row but how often it occurs and its batch; equal only among rows with one table of names."""
    fixed, ratings = rows.fixed, rows.ratings
    scores, n_columns = rows.scores.values, rows.scores.n_classes + len(_CONTENT)
    numbers = np.empty((len(rows), n_columns + len(rows.keys)))
    numbers[:, : rows.scores.n_classes], numbers[:, n_columns:] = scores, rows.slices
    for i, name in enumerate(_CONTENT, rows.scores.n_classes):
        numbers[:, i] = fixed[name]
    each = mix(
        ratings["class_index"].astype(np.uint64) * np.uint64(0x1F123BB5)
        + ratings["n"].astype(np.uint64)
    )
    total = np.zeros(len(rows), np.uint64)
    np.add.at(total, owners(fixed["n_ratings"]), each)
    return mix(mix(mix(hash_rows(numbers) ^ fixed["hash"]) ^ fixed["unit_hash"]) ^ total)


_NO_RATINGS = Ratings.none()


def fill_rows(rows: RowColumns, pane: Pane, slice_: str, make: Callable[[], Pane]) -> None:
    """Add rows of a slice, none of which cancel, to a pane, then take away those of negative sign.

    In this order no cell passes through a count of zero, at which its sums would be dropped.

    Parameters
    ----------
    make : an empty pane of the same specification
    """
    rows = rows.in_slice(slice_)
    lost = rows.fixed["count"] < 0
    gained = rows.where(~lost)
    # Every fill of a pane with sparse blocks merges cells: several fills are cheaper in a pane of their own.
    filled = pane if len(gained) <= 2 * ROWS_TOGETHER else make()
    for batch in batches_of(gained):
        filled.fill_batch(batch)
    if filled is not pane:
        pane.merge(filled)
    if lost.any():
        delta = make()
        for batch in batches_of(rows.where(lost)):
            delta.fill_batch(batch)
        pane.subtract(delta)


def batches_of(rows: RowColumns) -> Iterator[StoredBatch]:
    """Yield rows as batches of one kind of score and one source of units."""
    rows = _of_one_form(rows)
    forms = rows.fixed["source"] * 2 + rows.fixed["is_logits"]
    for form in np.unique(forms).tolist():
        for piece in _by_part(rows.where(forms == form)):
            yield _batch(piece, bool(form % 2), SOURCES[form // 2])


def _batch(rows: RowColumns, is_logits: bool, source: str) -> StoredBatch:
    fixed = rows.fixed
    weights, delays = np.ascontiguousarray(fixed["weight"]), fixed["delay"].astype(np.int64)
    return StoredBatch(
        rows.task,
        rows.scores.values,
        is_logits,
        rows.counted_ratings,
        None if (weights == 1.0).all() else weights,
        cases=rows.cases if (fixed["case"] >= 0).any() else None,
        delays=None if (delays == UNKNOWN).all() else delays,
        edge_rules=stated_rules(np.ascontiguousarray(fixed["edge_rule"])),
        hashes=rows.hashes,
        unit_hashes=np.ascontiguousarray(fixed["unit_hash"]),
        source=source,
        parts=rows.part,
    )


def _by_part(rows: RowColumns) -> Iterator[RowColumns]:
    """Divide rows where a batch ends, into pieces of the size that is filled fastest."""
    if len(rows) <= ROWS_TOGETHER:
        yield rows
        return
    part = rows.part
    if (np.diff(part) < 0).any():
        order = np.argsort(part, kind="stable")
        rows, part = rows.take(order), part[order]
    cuts = np.searchsorted(part, part[np.arange(ROWS_TOGETHER, len(rows), ROWS_TOGETHER)])
    ends = [0, *np.unique(cuts[cuts > 0]).tolist(), len(rows)]
    yield from (rows.take(np.arange(*ends_of)) for ends_of in pairwise(ends))


def _of_one_form(rows: RowColumns) -> RowColumns:
    """Return the rows with probabilities for the logits of units that were sent in both forms.

    A unit's rows share its weight and are therefore filled together.
    """
    is_logits = rows.fixed["is_logits"]
    if is_logits.all() or not is_logits.any():
        return rows
    own = np.flatnonzero(is_logits & _in_mixed_unit(rows))
    if not len(own):
        return rows
    values = rows.scores.values.copy()
    values[own] = Batch(rows.task, values[own], True, _NO_RATINGS).probabilities
    changed = rows.with_columns(is_logits=is_logits & ~np.isin(np.arange(len(rows)), own))
    return replace(changed, scores=Scores(changed.fixed["is_logits"], values))


def _in_mixed_unit(rows: RowColumns) -> np.ndarray:
    """Return which rows are of a named unit of a batch that has both logits and probabilities, bool (n,)."""
    fixed, found = rows.fixed, np.zeros(len(rows), np.bool_)
    named: Ints = np.flatnonzero(fixed["source"] >= NAMED_UNIT)
    some = fixed[named]
    keys = np.stack([some["unit_hash"].view(np.int64), some["part"], some["source"].astype(np.int64)])  # fmt: skip
    units, unit_of = np.unique(keys, axis=1, return_inverse=True)
    unit_of = unit_of.reshape(-1)
    n_rows = np.bincount(unit_of, minlength=units.shape[1])
    n_logits = np.bincount(unit_of, some["is_logits"], units.shape[1])
    found[named] = ((n_logits > 0) & (n_logits < n_rows))[unit_of]
    return found


@dataclass(frozen=True, eq=False)
class Rows(RowColumns):
    """Rows of one model, in the order in which they were committed."""

    def pack(self) -> bytes:
        """Return the rows as bytes, exactly."""
        return pack_rows(self)

    @classmethod
    def unpack(cls, data: bytes) -> Rows:
        """Return the rows that `pack` wrote.

        Raises
        ------
        PackingError
            Damaged bytes, or bytes of another format.
        """
        return unpack_rows([data], cls)

    @classmethod
    def unpack_pieces(cls, pieces: Sequence[bytes]) -> Rows:
        """Return the rows of several pieces, at least one, in their order; errors are those of `unpack`."""
        return unpack_rows(pieces, cls)

    @cached_property
    def net(self) -> Rows:
        """The rows without those that equal rows of opposite sign."""
        return uncancelled(self)

    def fill_into(self, pane: Pane, slice_: str, make: Callable[[], Pane]) -> None:
        """Add the rows of a slice to a pane, and take away those of negative sign.

        Parameters
        ----------
        make : an empty pane of the same specification
        """
        fill_rows(self.net, pane, slice_, make)
