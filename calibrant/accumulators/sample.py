"""A bounded uniform sample of whole labelled predictions, for what no sum can answer.

Vector and Dirichlet scaling, the choice between maps and comparisons of frozen maps need rows. So every labelled
prediction whose id hash lies below a threshold is kept as it was sent; where the sample passes its bound in bytes the
threshold is halved until it fits, and it never rises. Which predictions are kept depends on nothing but their ids
(their rows and votes where they have none), therefore samples merge in any order, to the smaller threshold, and a
correction finds the row that it replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.base import Accumulator
from calibrant.accumulators.block import Block
from calibrant.batch import Batch, Votes
from calibrant.columns import MOST_LOGIT, MOST_WEIGHT
from calibrant.filling import Filling
from calibrant.hashing import U64, hash_rows, mix
from calibrant.packing import PackingError, pack
from calibrant.spec import PaneSpec

# What a pane's sample may take: with ten classes about 270 rows, and a packed pane stays below 1 MiB.
PANE_BYTES = 1 << 15
# A window is merged in memory and never kept; its sample may be that of many panes.
WINDOW_BYTES = 1 << 21
# Of so many classes a pane still holds four rows, and a window of many panes some hundred: enough to weigh a temperature or
# to compare two maps, and of no use for maps with parameters for every class.
MOST_CLASSES = 1000
ROW_BYTES, VOTE_BYTES = 32, 4
MOST_HALVINGS = 64
ROW_SUM = 1e-6
_COLUMNS = ("ids", "units", "logits", "weights", "scores", "counts")
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SampledBatch(Batch):
    """Kept predictions as a batch. Among logits, probabilities stand as their logarithms, minus infinity for 0.

    Attributes
    ----------
    hashes, unit_hashes : uint64 (n,), of the predictions and their units as they were sent
    weights : float64 (n,), times how often the very same prediction came
    """

    hashes: U64 | None = None
    unit_hashes: U64 | None = None

    @property
    def prediction_hash(self) -> U64:
        assert self.hashes is not None
        return self.hashes

    @property
    def unit_hash(self) -> U64:
        assert self.unit_hashes is not None
        return self.unit_hashes

    @property
    def unit_source(self) -> str:
        """Where units come from: "unit" where any differs from its prediction's own hash, else "id"."""
        assert self.hashes is not None and self.unit_hashes is not None
        return "id" if np.array_equal(self.hashes, self.unit_hashes) else "unit"

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> SampledBatch:
        """The predictions at `index`, with their hashes."""
        assert self.hashes is not None and self.unit_hashes is not None
        bare = Batch(self.task, self.scores, self.is_logits, self.votes, self.weights).take(index)
        where = np.arange(self.n)[index]
        return SampledBatch(
            bare.task, bare.scores, bare.is_logits, bare.votes, bare.weights,
            hashes=self.hashes[where], unit_hashes=self.unit_hashes[where],
        )  # fmt: skip


@dataclass(frozen=True)
class _Rows:
    """Distinct predictions, each with how often it came. Votes are sorted by row, then class."""

    ids: U64
    units: U64
    logits: NDArray[np.uint8]
    weights: Floats
    scores: Floats
    counts: Ints
    votes: Votes

    def __len__(self) -> int:
        return len(self.ids)

    def content(self) -> U64:
        """Hash of everything that makes two rows of one id different."""
        votes = self.votes
        each = mix(
            votes.klass.astype(np.uint64) * np.uint64(0x1F123BB5) + votes.count.astype(np.uint64)
        )
        total = np.zeros(len(self), np.uint64)
        np.add.at(total, votes.row, each)
        plain = np.column_stack([self.scores, self.weights, self.logits.astype(np.float64)])
        return mix(mix(hash_rows(plain) ^ total) ^ self.units)

    def take(self, index: Ints) -> _Rows:
        votes = Batch("multiclass", self.scores, False, self.votes).take(index).votes
        taken: dict[str, Any] = {name: getattr(self, name)[index] for name in _COLUMNS}
        return _Rows(**taken, votes=votes)

    def counted(self, counts: Ints) -> _Rows:
        """The same rows, come so often."""
        return _Rows(
            self.ids, self.units, self.logits, self.weights, self.scores, counts, self.votes
        )

    def first(self, n: int) -> _Rows:
        """The first n rows."""
        if n == len(self):
            return self
        entries = int(np.searchsorted(self.votes.row, n))
        columns: dict[str, Any] = {name: getattr(self, name)[:n] for name in _COLUMNS}
        votes = self.votes
        votes = Votes(votes.row[:entries], votes.klass[:entries], votes.count[:entries])
        return _Rows(**columns, votes=votes)

    @classmethod
    def together(cls, parts: Sequence[_Rows]) -> _Rows:
        """The rows of several, one after the other."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS
        }
        starts = np.cumsum([0, *(len(part) for part in parts)])
        votes = Votes(
            np.concatenate([part.votes.row + start for part, start in zip(parts, starts, strict=False)]),
            np.concatenate([part.votes.klass for part in parts]),
            np.concatenate([part.votes.count for part in parts]),
        )
        return cls(**columns, votes=votes)

    def bytes_at(self, halvings: int, *, every_version: bool) -> int:
        """Bytes of the rows below a threshold; of each id's longest version alone unless `every_version`."""
        size = (
            8 * self.scores.shape[1]
            + ROW_BYTES
            + VOTE_BYTES * np.bincount(self.votes.row, minlength=len(self))
        )
        keep = below(self.ids, halvings)
        if every_version or not keep.any():
            return int(size[keep].sum())
        ids, size = self.ids[keep], size[keep]
        order = np.lexsort((size, ids))
        last = np.append(ids[order][1:] != ids[order][:-1], True)
        return int(size[order][last].sum())


class Sample(Accumulator):
    """Labelled predictions with hashes below 2^(64 - halvings), in the order of their hashes.

    After a subtraction the threshold stays where it was, so the sample can be smaller than that of the remaining
    predictions alone; it remains a uniform one. While a correction is under way both versions of a prediction may be
    held; they count once towards the bound.

    Attributes
    ----------
    halvings : how often the threshold was halved; 0 where everything is kept
    most_bytes : the bound
    """

    name = "sample"

    def __init__(self, spec: PaneSpec) -> None:
        super().__init__(spec)
        self.halvings = 0
        self.most_bytes = PANE_BYTES
        self._rows = _none(spec.n_classes)

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.n_classes <= MOST_CLASSES

    def zero(self) -> dict[str, Block]:
        """Rows are no cells; they are kept beside the blocks."""
        return {}

    @property
    def is_empty(self) -> bool:
        return len(self._rows) == 0 and self.halvings == 0

    @property
    def n(self) -> int:
        """Predictions in the sample."""
        return int(self._rows.counts.sum())

    @property
    def threshold(self) -> float:
        """Share of all ids that fall into the sample."""
        return 2.0**-self.halvings

    @property
    def weight(self) -> float:
        """Sum of the predictions' weights."""
        return float(self._rows.weights @ self._rows.counts)

    @property
    def n_ratings(self) -> int:
        """Ratings of the predictions in the sample."""
        votes = self._rows.votes
        return int(votes.count @ self._rows.counts[votes.row])

    def fill(self, filling: Filling) -> None:
        batch = filling.batch
        if not batch.n:
            return
        hashes = batch.prediction_hash
        self._fall_below(hashes)
        index = np.flatnonzero(below(hashes, self.halvings))
        if len(index):
            self._add(_rows_of(batch.take(index), hashes[index], batch.unit_hash[index]))

    def merge(self, other: Accumulator) -> None:
        self.merge_all([other])

    def merge_all(self, others: Sequence[Accumulator]) -> None:
        """Add several samples in one sort, of their rows below the common threshold alone."""
        given = [other for other in others if isinstance(other, Sample)]
        self.halvings = max([self.halvings, *(other.halvings for other in given)])
        rows = [self._rows, *(other._rows for other in given)]
        self._fall_below(np.concatenate([each.ids[: _n_below(each.ids, self.halvings)] for each in rows]))
        kept = [each.first(_n_below(each.ids, self.halvings)) for each in rows]
        self._rows = kept[0]
        self._add(_Rows.together(kept[1:]))

    def subtract(self, other: Accumulator) -> None:
        """Take the other's predictions away, each with the very scores and votes that it was filled with."""
        assert isinstance(other, Sample)
        self.halvings = max(self.halvings, other.halvings)
        self._add(other._rows.counted(-other._rows.counts))

    def copy(self) -> Self:
        twin = type(self)(self.spec)
        twin._rows, twin.halvings, twin.most_bytes = self._rows, self.halvings, self.most_bytes
        return twin

    def batch(self) -> SampledBatch:
        """The kept predictions as a batch: as they were sent where all are of one kind, else as log-probabilities."""
        rows = self._rows
        scores, is_logits = rows.scores, bool(len(rows) and rows.logits.all())
        if rows.logits.any() and not is_logits:
            plain = rows.logits[:, None] == 0
            with np.errstate(divide="ignore"):
                logarithms = np.log(np.where(plain, rows.scores, 1.0))
            scores, is_logits = np.where(plain, logarithms, rows.scores), True
        return SampledBatch(
            self.spec.task, scores, is_logits, rows.votes, rows.weights * rows.counts,
            hashes=rows.ids, unit_hashes=rows.units,
        )  # fmt: skip

    @property
    def is_plain(self) -> bool:
        """Whether every prediction came once, all as probabilities or all as logits: `batch` is what was sent."""
        rows = self._rows
        one_kind = not rows.logits.any() or bool(rows.logits.all())
        return one_kind and bool((rows.counts == 1).all())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The rows by column."""
        rows = self._rows
        return {
            "ids": rows.ids,
            "units": rows.units,
            "counts": rows.counts,
            "logits": rows.logits,
            "weights": rows.weights,
            "scores": rows.scores,
            "vote_row": rows.votes.row,
            "vote_class": rows.votes.klass,
            "vote_count": rows.votes.count,
        }

    def pack(self) -> bytes:
        return pack(self.arrays(), self._described() | {"halvings": self.halvings})

    @classmethod
    def unpack(cls, spec: PaneSpec, data: bytes) -> Self:
        arrays, about = cls._own_arrays(spec, data, 12 * PANE_BYTES)
        whole = cls(spec)
        try:
            votes = Votes(*(arrays[f"vote_{name}"] for name in ("row", "class", "count")))
            columns: dict[str, Any] = {name: arrays[name] for name in _COLUMNS}
            whole._rows = _Rows(**columns, votes=votes)
            whole.halvings = about["halvings"]
        except KeyError as missing:
            raise PackingError(f"a sample without {missing}") from missing
        if not whole._is_sound():
            raise PackingError("a sample that no predictions fill")
        return whole

    def _is_sound(self) -> bool:
        rows = self._rows
        return (
            type(self.halvings) is int
            and 0 <= self.halvings <= MOST_HALVINGS
            and _fits(rows, self.spec.n_classes)
            and _is_possible(rows)
            and bool(below(rows.ids, self.halvings).all())
            and rows.bytes_at(0, every_version=True) <= 2 * self.most_bytes
        )

    def _fall_below(self, hashes: U64) -> None:
        """Lower the threshold on the evidence of a few rows, so that not all are sorted.

        More distinct ids than fit below it can only become more.
        """
        fewest = 8 * self.spec.n_classes + ROW_BYTES + VOTE_BYTES
        few = self.most_bytes // fewest + 1
        hashes = hashes[below(hashes, self.halvings)]
        while len(hashes) >= few and _n_distinct(hashes[: 2 * few]) >= few:
            self.halvings += 1
            hashes = hashes[below(hashes, self.halvings)]

    def _add(self, new: _Rows) -> None:
        """Add rows to the same rows, drop what came to nothing, and lower the threshold until the rest fits."""
        both = _Rows.together([self._rows, new])
        order = np.argsort(both.ids, kind="stable")
        ids, content = both.ids[order], np.zeros(len(both), np.uint64)
        again = np.append(False, ids[1:] == ids[:-1])[: len(ids)]
        again[:-1] |= again[1:].copy()
        if again.any():  # only rows of one id need to be told apart by what they hold
            several = order[again]
            content[several] = both.take(several).content()
            order = np.lexsort((content, both.ids))
        content = content[order]
        first = np.append(True, (ids[1:] != ids[:-1]) | (content[1:] != content[:-1]))[: len(order)]
        group = np.cumsum(first) - 1
        total = np.bincount(group, both.counts[order]).astype(np.int64) if len(order) else group
        keep = (total > 0) & below(ids[first], self.halvings)
        rows = both.take(order[first][keep]).counted(total[keep])
        while self.halvings < MOST_HALVINGS and (
            rows.bytes_at(self.halvings, every_version=False) > self.most_bytes
            or rows.bytes_at(self.halvings, every_version=True) > 2 * self.most_bytes
        ):
            self.halvings += 1
        fits = below(rows.ids, self.halvings)
        self._rows = rows if fits.all() else rows.take(np.flatnonzero(fits))


def below(hashes: U64, halvings: int) -> NDArray[np.bool_]:
    """Whether each hash lies below 2^(64 - halvings); none does at 64."""
    if halvings >= MOST_HALVINGS:
        return np.zeros(len(hashes), np.bool_)
    return np.asarray(hashes <= np.uint64((1 << (64 - halvings)) - 1))


def _n_distinct(hashes: U64) -> int:
    """How many different ones there are; sorting finds it faster than numpy's table of hashes does."""
    ordered = np.sort(hashes)
    return int((ordered[1:] != ordered[:-1]).sum()) + (len(ordered) > 0)


def _n_below(ids: U64, halvings: int) -> int:
    """How many of ids in rising order lie below the threshold."""
    if not 0 < halvings < MOST_HALVINGS:
        return 0 if halvings else len(ids)
    return int(np.searchsorted(ids, np.uint64(1 << (64 - halvings))))


def _none(n_classes: int) -> _Rows:
    hashes, ints = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    votes = Votes(ints, ints, ints)
    return _Rows(
        hashes, hashes, np.zeros(0, np.uint8), np.zeros(0), np.zeros((0, n_classes)), ints, votes
    )


def _rows_of(batch: Batch, hashes: U64, units: U64) -> _Rows:
    logits = np.full(batch.n, batch.is_logits, np.uint8)
    weights = np.ones(batch.n) if batch.weights is None else batch.weights
    # Minus zero hashes as zero, and so is kept as it.
    scores = batch.scores + 0.0
    return _Rows(
        hashes, units, logits, weights + 0.0, scores, np.ones(batch.n, np.int64), batch.votes
    )


def _fits(rows: _Rows, n_classes: int) -> bool:
    """Whether the columns have their types and lengths."""
    n, votes = len(rows.ids), rows.votes
    columns = ((rows.ids, np.uint64), (rows.units, np.uint64), (rows.logits, np.uint8), (rows.weights, np.float64),
               (rows.counts, np.int64))  # fmt: skip
    if any(column.dtype != dtype or column.shape != (n,) for column, dtype in columns):
        return False
    if rows.scores.dtype != np.float64 or rows.scores.shape != (n, n_classes):
        return False
    entries = (votes.row, votes.klass, votes.count)
    return len({each.shape for each in entries}) == 1 and all(
        each.dtype == np.int64 and each.ndim == 1 for each in entries
    )


def _is_possible(rows: _Rows) -> bool:
    """Whether predictions can have these values, each row once and in order."""
    n, n_classes = rows.scores.shape
    votes = rows.votes
    if not (np.isfinite(rows.scores).all() and np.isfinite(rows.weights).all()):
        return False
    if (rows.logits > 1).any() or (rows.counts < 1).any() or (rows.counts > 2**53).any():
        return False
    if ((rows.weights < 0) | (rows.weights > MOST_WEIGHT)).any():
        return False
    inside = [(each >= low) & (each < high) for each, low, high in zip(
        (votes.row, votes.klass, votes.count), (0, 0, 1), (n, n_classes, 2**53), strict=True)]  # fmt: skip
    if not np.all(inside) or (np.diff(votes.row * n_classes + votes.klass) <= 0).any():
        return False
    if len(np.unique(votes.row)) != n:
        return False
    plain = rows.scores[rows.logits == 0]
    if ((plain < 0) | (plain > 1)).any() or (np.abs(plain.sum(axis=1) - 1.0) > ROW_SUM).any():
        return False
    if (np.abs(rows.scores) > MOST_LOGIT).any():
        return False
    content = rows.content()
    ids = rows.ids
    rising = (ids[1:] > ids[:-1]) | ((ids[1:] == ids[:-1]) & (content[1:] > content[:-1]))
    return bool(rising.all())


ACCUMULATOR = Sample
