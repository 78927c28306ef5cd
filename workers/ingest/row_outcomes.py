"""Outcomes of rows by id: counted, repeated, or rejected by a rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from calibrant.input.labels import MAX_NAMED
from calibrant_server.workers.ingest.entries import Places
from calibrant_server.workers.ingest.retained_record import (
    CONFLICT,
    DUPLICATE,
    EXPIRED,
    FULL,
    GONE,
    MAX_RATINGS_OF_CLASS,
    NEW,
    REVISED,
    STALE,
)
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

    def count_labels(self, joined: int, waiting: int) -> None:
        """Add rows of labels with and without their prediction."""
        self.joined = (self.joined or 0) + joined
        self.waiting = (self.waiting or 0) + waiting

    def note(self, column: str, row: int | None, result: str) -> None:
        """Record the result of one row; without a row number, that of the entry."""
        if result == NEW:
            self.n += 1
        elif result == DUPLICATE:
            self.duplicates += 1
        elif result == STALE:
            self.stale += 1
        else:
            pointer = f"/{column}" if row is None else f"/{column}/{row}"
            rule, detail = _RULES[result]
            self.errors.append({"pointer": pointer, "rule": rule, "detail": detail})


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
