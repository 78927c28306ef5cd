"""Checked batch of predictions: converted to arrays once and validated once.

All input forms (probabilities, logits or binary confidences; one class, one class per rater, or label counts)
become the same few arrays here, or an error that names field, row and rule. Code below
this entry point does not check again. All tolerances are defined in this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calibrant.core.arrays import over_classes
from calibrant.core.batch_packing import TEXTS, batch_digest, columns_fit, pack_batch, unpack_fields
from calibrant.core.errors import Violation
from calibrant.core.hashing import U64, hash_names, hash_rows, mix
from calibrant.core.packing import PackingError
from calibrant.core.ratings import RatedRows
from calibrant.core.ratings import Ratings as Ratings
from calibrant.input.input_columns import InputColumns, Reading
from calibrant.input.notes import NO_NOTES, InputNotes
from calibrant.input.value_checks import MAX_STORED, ViolationCollector

TASKS = ("binary", "multiclass", "segmentation")
_NUMBERS = ("weights", "event_times", "delays", "edge_rules")
_HASHES = {"prediction_hash", "unit_hash"}


@dataclass(frozen=True)
class BatchResult:
    """Result of checking columns: the valid rows as a batch, their places, and the first violations of the others."""

    batch: Batch
    violations: list[Violation]
    accepted_rows: NDArray[np.int64]
    n_rows: int

    @property
    def n_rejected(self) -> int:
        """Number of invalid rows; `violations` has those of the first `MAX_STORED`."""
        return self.n_rows - self.batch.n

    def keeping(self, good: NDArray[np.bool_], violations: list[Violation]) -> BatchResult:
        """Return the rows marked in `good`; the others are invalid, too, because of `violations`."""
        selected = np.flatnonzero(good)
        return BatchResult(
            self.batch.take(selected),
            (self.violations + violations)[:MAX_STORED],
            self.accepted_rows[selected],
            self.n_rows,
        )


@dataclass(frozen=True, eq=False)
class Batch(RatedRows):
    """Predictions with their ratings; make one with `Batch.from_columns`.

    Attributes
    ----------
    task : "binary", "multiclass" or "segmentation"
    scores : float64 (n, n_classes); probabilities that sum to 1, or logits if `is_logits`
    ratings : the ratings, counted
    weights : float64 (n,) or None, one factor per prediction
    ids, units, cases : object arrays of str (n,) or None; with units a row's case may be None
    event_times : int64 (n,), microseconds since 1970 UTC, or None
    slices : key to object array of str (n,), or None
    delays : int64 (n,), delay of each row's first label (`accumulators.delays`), or None; not part of its content
    edge_rules : uint8 (n,), by which each row's scores are on an edge of bins (`core.edge_rules`), or None for `FLOAT32`; not part
        of its content
    notes : what was altered as the batch was read, and warnings; not part of its content
    """

    task: str
    scores: NDArray[np.float64]
    is_logits: bool
    ratings: Ratings
    weights: NDArray[np.float64] | None = None
    ids: NDArray[Any] | None = None
    units: NDArray[Any] | None = None
    cases: NDArray[Any] | None = None
    event_times: NDArray[np.int64] | None = None
    slices: Mapping[str, NDArray[Any]] | None = None
    delays: NDArray[np.int64] | None = None
    edge_rules: NDArray[np.uint8] | None = None
    notes: InputNotes = NO_NOTES

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.scores.shape[1])

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """Class probabilities, float64 (n, n_classes), rows summing to 1."""
        if not self.is_logits:
            return self.scores
        shifted = np.exp(self.scores - self.scores.max(axis=1, keepdims=True))
        return np.asarray(shifted / over_classes(np.ascontiguousarray(shifted.T))[:, None])

    @cached_property
    def prediction_hash(self) -> U64:
        """Hash of each prediction's id, else of its scores and ratings; uint64 (n,)."""
        if self.ids is not None:
            return hash_names(list(self.ids))
        return mix(hash_rows(self.scores) ^ self.ratings.hashed(self.n))

    @cached_property
    def unit_hash(self) -> U64:
        """Hash of each prediction's independent unit: the unit, else the case, else the prediction itself."""
        if self.units is not None:
            return hash_names(list(self.units))
        if self.cases is not None:
            return hash_names(list(self.cases))
        return self.prediction_hash

    @property
    def unit_key(self) -> U64:
        """Key of each prediction's unit within one fill; uint64 (n,).

        Rows of one key share the unit's weight. It is the unit's hash, unless the rows come of several batches.
        """
        return self.unit_hash

    @property
    def unit_source(self) -> str:
        """Origin of units: "unit", "case", "id" or "row"."""
        if self.units is not None:
            return "unit"
        if self.cases is not None:
            return "case"
        return "row" if self.ids is None else "id"

    @property
    def has_units(self) -> bool:
        """Whether the caller named units, so that several rows may share one."""
        return self.unit_source in ("unit", "case")

    @cached_property
    def unit_index(self) -> NDArray[np.int64]:
        """Unit of each row as a number from 0; every row is its own unit if none were named."""
        if not self.has_units:
            return np.arange(self.n)
        return np.unique(self.unit_key, return_inverse=True)[1].astype(np.int64)

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Any],
        *,
        task: str | None = None,
        n_classes: int | None = None,
        class_names: Sequence[Any] | None = None,
        partial: bool = False,
        ignored: Sequence[Any] = (),
        normalize: bool = False,
        has_named_raters: bool = False,
    ) -> BatchResult:
        """Check the columns of a `predictions` body and convert them to arrays.

        Parameters
        ----------
        columns : mapping with one of `probabilities` (n, K), `logits` (n, K), `confidences` (n,); `labels` or
            `label_counts`; optional `ids`, `units`, `cases`, `event_times`, `slices`, `weights`. Lists or arrays.
        task, n_classes : required by the model. Default: taken from the columns.
        class_names : names of the classes. Labels may then be names as well as indices, and are always names where the names are
            integers or truth values.
        partial : drop invalid rows instead of rejecting the batch.
        ignored : labels that are no rating, such as -100
        normalize : divide each row of probabilities by its sum, whatever it is
        has_named_raters : whether each rating has the name of its rater, so that rows cannot be one-hot

        Returns
        -------
        BatchResult

        Raises
        ------
        CalibrationInputError
            A rule about the complete batch is broken, or any row's and not `partial`.
        """
        violations = ViolationCollector()
        reading = Reading(class_names, ignored, normalize, has_named_raters)
        taken = InputColumns(columns, violations).read(task, n_classes, reading)
        complete = cls(
            task=taken.task,
            scores=taken.scores,
            is_logits=taken.is_logits,
            ratings=Ratings(*taken.ratings),
            weights=taken.weights,
            event_times=taken.event_times,
            slices=taken.slices,
            edge_rules=taken.edge_rules,
            notes=taken.notes,
            **taken.texts,
        )
        if not violations.n_rows:
            return BatchResult(complete, [], np.arange(complete.n), complete.n)
        if not partial:
            violations.reject()
        good = np.flatnonzero(~violations.bad_rows(complete.n))
        return BatchResult(complete.take(good), violations.found, good, complete.n)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        """Select predictions by index, keeping order and repeats. Boolean masks are accepted."""
        index = np.arange(self.n)[index]
        return self._selected(index, self.ratings.of_rows(index, self.n))

    def part(self, start: int, stop: int) -> Self:
        """Return consecutive predictions, without copying their columns."""
        return self._selected(slice(start, stop), self.ratings.between(start, stop))

    def _selected(self, index: slice | NDArray[np.int64], ratings: Ratings) -> Self:
        """Return the predictions at `index`, which have these ratings."""
        optional: dict[str, Any] = {
            name: _taken(getattr(self, name), index) for name in (*TEXTS, *_NUMBERS)
        }
        slices = (
            None
            if self.slices is None
            else {key: values[index] for key, values in self.slices.items()}
        )
        taken = replace(self, scores=self.scores[index], ratings=ratings, slices=slices, **optional)
        # A row's hashes depend only on the row: existing ones are reused.
        for name in _HASHES & self.__dict__.keys():
            taken.__dict__[name] = self.__dict__[name][index]
        return taken

    @classmethod
    def concatenate(cls, batches: Sequence[Batch]) -> Batch:
        """Concatenate the predictions of several batches of one shape.

        Raises
        ------
        ValueError
            There are none, or they differ in task, classes, kind of score or optional columns.
        """
        if not batches:
            raise ValueError("Received no batches; expected at least one.")
        first = batches[0]
        if any(batch.shape_key != first.shape_key for batch in batches):
            raise ValueError("Received batches of different shapes; expected equal ones.")
        ratings = Ratings.joined([b.ratings for b in batches], [b.n for b in batches])
        optional: dict[str, Any] = {
            name: np.concatenate([getattr(b, name) for b in batches])
            if getattr(first, name) is not None
            else None
            for name in (*TEXTS, *_NUMBERS)
        }
        slices = None
        if first.slices is not None:
            slices = {
                key: np.concatenate([(b.slices or {})[key] for b in batches])
                for key in first.slices
            }
        return replace(
            first,
            scores=np.concatenate([b.scores for b in batches]),
            ratings=ratings,
            slices=slices,
            **optional,
        )

    @cached_property
    def shape_key(self) -> tuple[Any, ...]:
        """Properties that batches must share to be concatenated."""
        present = tuple(name for name in (*TEXTS, *_NUMBERS) if getattr(self, name) is not None)
        slices = tuple(sorted(self.slices)) if self.slices is not None else None
        return self.task, self.n_classes, self.is_logits, present, slices

    def pack(self) -> bytes:
        """Return the batch as bytes, with its numbers exact."""
        return pack_batch(self)

    @classmethod
    def unpack(cls, data: bytes) -> Batch:
        """Return the batch that `pack` wrote.

        Raises
        ------
        PackingError
            Not a packed batch, or damaged.
        """
        ratings, fields = unpack_fields(data)
        batch = cls(ratings=Ratings(*ratings), **fields)
        if batch.task not in TASKS or not columns_fit(batch):
            raise PackingError("a packed batch whose columns do not fit each other")
        return batch

    def digest(self) -> bytes:
        """Return 16 bytes that identify the content of a batch."""
        return batch_digest(self)


def _taken(column: NDArray[Any] | None, index: slice | NDArray[np.int64]) -> NDArray[Any] | None:
    return None if column is None else column[index]
