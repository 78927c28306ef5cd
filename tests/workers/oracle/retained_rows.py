"""Retained predictions as batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Batch, Ratings
from tests.workers.oracle.retained_prediction import (
    group_name,
    scores_of,
)
from tests.workers.oracle.retained_record import RetainedRecord


class FilledRow(NamedTuple):
    """A retained prediction in the form in which it is filled."""

    name: str
    record: RetainedRecord
    scores: NDArray[np.float64]
    is_logits: bool
    weight: float | None = None
    unit: str | None = None
    case: str | None = None

    @property
    def group(self) -> str | None:
        """Name of the unit that it shares, or None if it is a separate unit."""
        return group_name(self.unit, self.case)


def filled_rows(records: Sequence[tuple[str, RetainedRecord]]) -> list[FilledRow]:
    """Return the predictions that count, as they were sent, in the given order."""
    counted = [(name, each, each.prediction) for name, each in records if each.counts]
    rows = [(name, each, one) for name, each, one in counted if one is not None]
    if not rows:
        return []
    scores = scores_of([one for _, _, one in rows])
    return [
        FilledRow(name, each, values, one.is_logits, one.weight, one.unit, one.case)
        for (name, each, one), values in zip(rows, scores, strict=True)
    ]


def batches_of(rows: Sequence[FilledRow], task: str) -> list[Batch]:
    """Return rows as batches of one shape each, in the given order.

    A unit's rows share its weight and therefore are in one batch. If some of them were sent as logits and some as probabilities,
    the batch has probabilities.
    """
    forms: dict[str, set[bool]] = {}
    for row in rows:
        if row.group is not None:
            forms.setdefault(row.group, set()).add(row.is_logits)
    shapes: dict[Any, list[FilledRow]] = {}
    for sent in rows:
        is_mixed = sent.group is not None and len(forms[sent.group]) > 1
        row = as_probabilities(sent) if is_mixed and sent.is_logits else sent
        named = "unit" if sent.unit is not None else "case" if sent.case is not None else None
        shapes.setdefault((row.is_logits, named), []).append(row)
    return [_batch(some, task) for some in shapes.values()]


def as_probabilities(row: FilledRow) -> FilledRow:
    """Return a row of logits with the probabilities that they stand for."""
    none = np.zeros(0, np.int64)
    batch = Batch("multiclass", row.scores[None, :], True, Ratings(none, none, none))
    return row._replace(scores=batch.probabilities[0], is_logits=False)


def _batch(rows: list[FilledRow], task: str) -> Batch:
    entries = [
        (i, class_index, n)
        for i, row in enumerate(rows)
        for class_index, n in sorted(row.record.totals.items())
        if n
    ]
    columns = np.array(entries, np.int64).reshape(-1, 3).T
    first = rows[0]
    weighted = any(row.weight is not None for row in rows)
    delays = [row.record.delay for row in rows]
    return Batch(
        task=task,
        scores=np.stack([row.scores for row in rows]),
        is_logits=first.is_logits,
        ratings=Ratings(*(np.ascontiguousarray(column) for column in columns)),
        weights=np.array([1.0 if row.weight is None else row.weight for row in rows])
        if weighted
        else None,
        ids=np.array([row.name for row in rows], dtype=object),
        delays=np.array([UNKNOWN if delay is None else delay for delay in delays]),
        units=None if first.unit is None else np.array([row.unit for row in rows], dtype=object),
        cases=np.array([row.case for row in rows], dtype=object)
        if any(row.case for row in rows)
        else None,
    )
