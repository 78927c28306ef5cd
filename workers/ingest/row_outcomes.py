"""Outcomes of rows by id: counted, repeated, or rejected by a rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibrant.input.labels import MAX_NAMED
from calibrant_server.workers.ingest.entries import Places
from calibrant_server.workers.join.facts import (
    CONFLICT,
    DUPLICATE,
    EXPIRED,
    FULL,
    GONE,
    NEW,
    REVISED,
    STALE,
)
from calibrant_server.workers.join.record_format import MAX_RATINGS_OF_CLASS
from calibrant_server.workers.segments.ragged import Ints
from calibrant_server.workers.store.batch_records import BatchRecord, RowError


@dataclass
class RowOutcomes:
    """Outcomes of the rows of one entry.

    Attributes
    ----------
    joined, waiting : rows of labels whose prediction is stored, and whose prediction has not arrived; None for predictions
    """

    n: int = 0
    duplicates: int = 0
    stale: int = 0
    joined: int | None = None
    waiting: int | None = None
    errors: list[RowError] = field(default_factory=list)

    def placed(self, places: Places | None) -> RowOutcomes:
        """Return the same with pointers to rows as they were sent."""
        if places is None:
            return self
        errors = []
        for error in self.errors:
            _, column, row = error["pointer"].split("/")
            errors.append(error | {"pointer": places.pointer(column, int(row))})
        return replace(self, errors=errors)

    def counts_after(self, record: BatchRecord) -> dict[str, int]:
        """Return the row counts of a batch record after these outcomes."""
        n_errors = len(self.errors)
        return {
            "duplicate_rows": self.duplicates,
            "stale_rows": self.stale,
            "conflicts": n_errors,
            "accepted": max(record.accepted - n_errors, 0),
            "rejected": record.rejected + n_errors,
        } | ({} if self.joined is None else {"joined": self.joined, "waiting": self.waiting or 0})

    @classmethod
    def of(cls, outcome: Ints, is_of_rows: bool) -> RowOutcomes:
        """Return the outcomes of an entry's facts.

        Parameters
        ----------
        outcome : of each fact (`workers/join/outcomes`)
        is_of_rows : errors point to rows; a deletion has none
        """
        n = np.bincount(outcome, minlength=len(_RULES) + 3).tolist()
        found = cls(n[NEW], n[DUPLICATE], n[STALE])
        if sum(n) > n[NEW] + n[DUPLICATE] + n[STALE]:
            for row in np.flatnonzero(~np.isin(outcome, (NEW, DUPLICATE, STALE))).tolist():
                found.errors.append(_error(int(outcome[row]), row if is_of_rows else None))
        return found

    def count_labels(self, outcome: Ints, has_prediction: NDArray[np.bool_]) -> RowOutcomes:
        """Count the rows of labels that are stored with and without their prediction."""
        stored = np.isin(outcome, (NEW, DUPLICATE, STALE))
        self.joined = int(np.count_nonzero(stored & has_prediction))
        self.waiting = int(np.count_nonzero(stored & ~has_prediction))
        return self


def _error(outcome: int, row: int | None) -> RowError:
    rule, detail = _RULES[outcome]
    if row is None:
        return {"pointer": "/id", "rule": rule, "detail": detail}
    column = "revision" if outcome == REVISED else "ids"
    return {"pointer": f"/{column}/{row}", "rule": rule, "detail": detail}


_RULES = {
    CONFLICT: ("conflict", "this id was sent before with other content; the first is stored"),
    REVISED: (
        "revision_conflict",
        "this revision of the rater arrived before with another class; the first is stored",
    ),
    GONE: ("deleted", "the prediction of this id was deleted"),
    FULL: (
        "too_many_ratings",
        f"a prediction has at most {MAX_NAMED} named raters and {MAX_RATINGS_OF_CLASS} unnamed ratings of a class; this one has reached a limit",
    ),
    EXPIRED: ("retention", "the event time is before the model's retention"),
}
