"""A bounded uniform sample of complete labelled predictions, for what sums cannot give.

Vector and Dirichlet scaling, the choice between maps and comparisons of frozen maps need rows. Every labelled prediction whose id
hash is below a threshold is stored as it was sent. Where the sample exceeds its bound in bytes, the threshold is halved until it
fits, and it never rises. The choice depends only on the predictions' ids (on their rows and ratings where they have none).
Therefore samples merge in any order, to the smaller threshold, and a correction finds the row that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.accumulator import Accumulator
from calibrant.core.batch import Batch
from calibrant.core.batch_sums import BatchSums
from calibrant.core.hashing import U64
from calibrant.core.packing import PackingError, pack
from calibrant.core.sampled_rows import (
    MAX_HALVINGS,
    RATING_BYTES,
    ROW_BYTES,
    SampledBatch,
    SampledRows,
    below,
    first_format,
    fits,
    is_possible,
    n_below,
    n_distinct,
    no_rows,
    packed_columns,
    rows_of,
    unpacked_columns,
)
from calibrant.core.spec import PaneSpec

# Default bound of a pane's sample: with ten classes 270 to 430 rows.
PANE_BYTES = 1 << 15
# Maximum of it, and default bound of what the service stores for a model and day.
MAX_PANE_BYTES = 1 << 20
# A window is merged in memory and never stored; its sample may be that of many panes.
WINDOW_BYTES = 1 << 23
# With so many classes a pane still holds four rows, and a window of many panes about a hundred: enough to evaluate a temperature
# or to compare two maps, but of no use for maps with parameters for every class.
MAX_CLASSES = 1000
# Numbers in the scores of the rows that wait to be chosen from, at most: 64 KiB.
MAX_WAITING = 1 << 13


class Sample(Accumulator):
    """Labelled predictions with hashes below 2^(64 - halvings), in the order of their hashes.

    After a subtraction the threshold stays where it was, so the sample can be smaller than that of the remaining predictions alone.
    It remains uniform. During a correction both versions of a prediction may be present. They count once towards the bound.

    Attributes
    ----------
    halvings : how often the threshold was halved; 0 where everything is stored
    max_bytes : the bound; with 0 nothing is stored
    """

    name = "sample"
    # 2: four bytes for a score that came as float32, and the bound.
    format = 2

    def __init__(self, spec: PaneSpec) -> None:
        super().__init__(spec)
        self._halvings = 0
        self.max_bytes = PANE_BYTES
        self._merged = no_rows(spec.n_classes)
        self._waiting: list[Batch] = []
        self._n_waiting = 0

    @classmethod
    def applies(cls, spec: PaneSpec) -> bool:
        return spec.n_classes <= MAX_CLASSES

    def shares(self) -> dict[str, tuple[float, str]]:
        return {
            "predictions": (self.n, "n_labelled"),
            "ratings": (self.n_ratings, "n_ratings"),
            "weight": (self.weight, "weight"),
        }

    @property
    def is_empty(self) -> bool:
        return len(self._rows) == 0 and self.halvings == 0

    def stored_arrays(self) -> Iterator[NDArray[Any]]:
        yield from self.arrays().values()
        yield from self._rows.cached_arrays()

    @property
    def n(self) -> int:
        """Number of predictions in the sample."""
        return int(self._rows.counts.sum())

    @property
    def threshold(self) -> float:
        """Share of all ids that are in the sample."""
        return 2.0**-self.halvings

    @property
    def weight(self) -> float:
        """Sum of the predictions' weights."""
        return float(self._rows.weights @ self._rows.counts)

    @property
    def n_ratings(self) -> int:
        """Number of ratings of the predictions in the sample."""
        ratings = self._rows.ratings
        return int(ratings.count @ self._rows.counts[ratings.row])

    @property
    def halvings(self) -> int:
        self._merge_waiting()
        return self._halvings

    @halvings.setter
    def halvings(self, halvings: int) -> None:
        self._halvings = halvings

    @property
    def _rows(self) -> SampledRows:
        """Rows of the sample, after those that wait."""
        self._merge_waiting()
        return self._merged

    @_rows.setter
    def _rows(self, rows: SampledRows) -> None:
        self._merged = rows

    def fill(self, batch_sums: BatchSums) -> None:
        """Add a batch. Batches of few rows wait until the sample is read or enough have come: sorting is the cost of a small one."""
        if not batch_sums.batch.n or not self.max_bytes:
            return
        batch = batch_sums.batch
        if self._halvings:
            # The threshold never rises: a row above it is never chosen.
            index = np.flatnonzero(below(batch.prediction_hash, self._halvings))
            if len(index) < batch.n:
                if not len(index):
                    return
                batch = batch.take(index)
        self._waiting.append(batch)
        self._n_waiting += batch.scores.size
        if self._n_waiting >= MAX_WAITING:
            self._merge_waiting()

    def _merge_waiting(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        together: dict[Any, list[Batch]] = {}
        for number, batch in enumerate(waiting):
            # Hashes of a subclass are not those of its columns: such a batch stays alone.
            together.setdefault(batch.shape_key if type(batch) is Batch else number, []).append(
                batch
            )
        for batches in together.values():
            self._choose(batches[0] if len(batches) == 1 else _concatenated(batches))

    def _choose(self, batch: Batch) -> None:
        hashes = batch.prediction_hash
        self._fall_below(hashes)
        index = np.flatnonzero(below(hashes, self.halvings))
        if len(index) == batch.n:
            self._add(rows_of(batch, hashes, batch.unit_hash))
        elif len(index):
            self._add(rows_of(batch.take(index), hashes[index], batch.unit_hash[index]))

    def merge(self, other: Accumulator) -> None:
        self.merge_all([other])

    def merge_all(self, others: Sequence[Accumulator]) -> None:
        """Add several samples in one sort, only their rows below the common threshold."""
        if not self.max_bytes:
            return
        given = [other for other in others if isinstance(other, Sample)]
        self.halvings = max([self.halvings, *(other.halvings for other in given)])
        rows = [self._rows, *(other._rows for other in given)]
        self._fall_below(
            np.concatenate([each.ids[: n_below(each.ids, self.halvings)] for each in rows])
        )
        rows_below = [each.first(n_below(each.ids, self.halvings)) for each in rows]
        self._rows = rows_below[0]
        self._add(SampledRows.together(rows_below[1:]))

    def subtract(self, other: Accumulator) -> None:
        """Subtract the other's predictions, each with exactly the scores and ratings that it was filled with."""
        assert isinstance(other, Sample)
        if not self.max_bytes:
            return
        self.halvings = max(self.halvings, other.halvings)
        self._add(other._rows.counted(-other._rows.counts))

    def shrink(self, max_bytes: int) -> None:
        """Lower the bound, and the threshold until the rows fit."""
        self.max_bytes = max_bytes
        self._add(no_rows(self.spec.n_classes))

    def copy(self) -> Self:
        self._merge_waiting()
        twin = type(self)(self.spec)
        twin._rows, twin.halvings, twin.max_bytes = self._rows, self.halvings, self.max_bytes
        return twin

    def batch(self) -> SampledBatch:
        """Return the stored predictions as a batch: as sent where all are of one kind, else as log-probabilities."""
        rows = self._rows
        scores, is_logits = rows.scores, bool(len(rows) and rows.logits.all())
        if rows.logits.any() and not is_logits:
            plain = rows.logits[:, None] == 0
            with np.errstate(divide="ignore"):
                logarithms = np.log(np.where(plain, rows.scores, 1.0))
            scores, is_logits = np.where(plain, logarithms, rows.scores), True
        return SampledBatch(
            self.spec.task, scores, is_logits, rows.ratings, rows.weights * rows.counts,
            hashes=rows.ids, unit_hashes=rows.units,
        )  # fmt: skip

    @property
    def is_plain(self) -> bool:
        """Whether every prediction was received once, all as probabilities or all as logits, so that `batch` is what was sent."""
        rows = self._rows
        one_kind = not rows.logits.any() or bool(rows.logits.all())
        return one_kind and bool((rows.counts == 1).all())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the rows by column."""
        rows = self._rows
        return {
            "ids": rows.ids,
            "units": rows.units,
            "counts": rows.counts,
            "logits": rows.logits,
            "weights": rows.weights,
            "scores": rows.scores,
            "vote_row": rows.ratings.row,
            "vote_class": rows.ratings.class_index,
            "vote_count": rows.ratings.count,
        }

    def pack(self) -> bytes:
        bounds = {"halvings": self.halvings, "most_bytes": self.max_bytes}
        return pack(packed_columns(self._rows), self._described() | bounds)

    @classmethod
    def unpack(cls, spec: PaneSpec, data: bytes) -> Self:
        # Twice the bound with every version of its rows; a rating takes 16 bytes in memory and counts for four.
        arrays, about = cls._own_arrays(spec, data, 8 * MAX_PANE_BYTES)
        unpacked = cls(spec)
        try:
            is_first = about["format"] == 1
            unpacked._rows = (first_format if is_first else unpacked_columns)(arrays)
            unpacked.halvings = about["halvings"]
            # A window in memory may have more; what is packed of it must fit a pane.
            max_bytes = PANE_BYTES if is_first else about["most_bytes"]
            unpacked.max_bytes = min(max_bytes, MAX_PANE_BYTES)
        except KeyError as missing:
            detail = f"Expected a sample with {missing}; the bytes have none."
            raise PackingError(detail) from missing
        except (ValueError, IndexError, TypeError) as error:
            raise PackingError("Received a sample whose columns do not fit.") from error
        if not unpacked._is_sound():
            raise PackingError("Received a sample with invalid predictions.")
        return unpacked

    @classmethod
    def of_rows(cls, spec: PaneSpec, rows: SampledRows, halvings: int, max_bytes: int) -> Self:
        """Return a sample of rows that are chosen already, in any order."""
        sample = cls(spec)
        sample.halvings, sample.max_bytes = halvings, max_bytes
        sample._add(rows)
        return sample

    @property
    def rows(self) -> SampledRows:
        """Rows of the sample."""
        return self._rows

    def _is_sound(self) -> bool:
        rows = self._rows
        return (
            type(self.halvings) is int
            and 0 <= self.halvings <= MAX_HALVINGS
            and type(self.max_bytes) is int
            and 0 <= self.max_bytes <= MAX_PANE_BYTES
            and fits(rows, self.spec.n_classes)
            and is_possible(rows)
            and bool(below(rows.ids, self.halvings).all())
            and rows.bytes_at(0, every_version=True) <= 2 * self.max_bytes
        )

    def _fall_below(self, hashes: U64) -> None:
        """Lower the threshold from a few rows first, so that not all are sorted.

        If more distinct ids than fit are below it, more rows can only add to them.
        """
        fewest = 4 * self.spec.n_classes + ROW_BYTES + RATING_BYTES
        few = self.max_bytes // fewest + 1
        hashes = hashes[below(hashes, self.halvings)]
        while len(hashes) >= few and n_distinct(hashes[: 2 * few]) >= few:
            self.halvings += 1
            hashes = hashes[below(hashes, self.halvings)]

    def _add(self, new: SampledRows) -> None:
        """Add rows to equal rows, drop those that cancel, and lower the threshold until the rest fits."""
        both = SampledRows.together([self._rows, new])
        order = np.argsort(both.ids, kind="stable")
        ids, content = both.ids[order], np.zeros(len(both), np.uint64)
        again = np.append(False, ids[1:] == ids[:-1])[: len(ids)]
        again[:-1] |= again[1:].copy()
        if again.any():  # only rows with the same id need to be distinguished by content
            several = order[again]
            content[several] = both.take(several).content()
            order = np.lexsort((content, both.ids))
        content = content[order]
        first = np.append(True, (ids[1:] != ids[:-1]) | (content[1:] != content[:-1]))[: len(order)]
        group = np.cumsum(first) - 1
        total = np.bincount(group, both.counts[order]).astype(np.int64) if len(order) else group
        keep = (total > 0) & below(ids[first], self.halvings)
        rows = both.take(order[first][keep]).counted(total[keep])
        if rows.max_bytes <= self.max_bytes:
            self._rows = rows
            return
        while self.halvings < MAX_HALVINGS and (
            rows.bytes_at(self.halvings, every_version=False) > self.max_bytes
            or rows.bytes_at(self.halvings, every_version=True) > 2 * self.max_bytes
        ):
            self.halvings += 1
        inside = below(rows.ids, self.halvings)
        self._rows = rows if inside.all() else rows.take(np.flatnonzero(inside))


def _concatenated(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches with the hashes that were computed for each of them."""
    complete = Batch.concatenate(batches)
    complete.__dict__["prediction_hash"] = np.concatenate([b.prediction_hash for b in batches])
    return complete


ACCUMULATOR = Sample
