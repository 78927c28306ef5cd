"""Predictions with an id as they are read from their records: for metrics of single raters, and for the rows of a cohort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import UNKNOWN
from calibrant.core.batch import Batch, Ratings
from calibrant.core.edge_rules import stated_rules
from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.join.predictions import Predictions
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.join.row_names import RowNames
from calibrant_server.workers.segments.ragged import Ints

_NO_RATINGS = Ratings.none()


@dataclass(frozen=True, eq=False)
class IdentifiedRows:
    """Predictions that count, in ascending order of their ids.

    Attributes
    ----------
    ids : of each row
    records : of each row
    """

    ids: list[str]
    records: Records

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def read(cls, packed: Mapping[str, bytes]) -> IdentifiedRows:
        """Read the records of some ids; those without a prediction, and deleted ones, are left out.

        Raises
        ------
        RecordError
            Damaged bytes, or a record of another format.
        """
        ids = sorted(packed)
        records = Records.read([packed[name] for name in ids])
        return cls(ids, records).where(records.counts_in_pane)

    def where(self, mask: NDArray[np.bool_]) -> IdentifiedRows:
        """Return the rows of a mask, bool (n,)."""
        index = np.flatnonzero(mask)
        return IdentifiedRows([self.ids[i] for i in index.tolist()], self.records.take(index))

    @cached_property
    def predictions(self) -> Predictions:
        """The prediction of each row."""
        return self.records.predictions.take(self.records.prediction)

    @property
    def names(self) -> RowNames:
        """Unit, case and slices of each row."""
        return self.predictions.names

    @cached_property
    def raters(self) -> dict[str, int]:
        """Named raters with the number of rows that each rated, by name."""
        ratings = self.records.ratings
        active = ratings.rater[ratings.class_index != WITHDRAWN]
        n = np.bincount(active, minlength=len(ratings.raters)).tolist()
        return {name.decode(): k for name, k in zip(ratings.raters, n, strict=True) if k}

    def classes_of(self, rater: str) -> Ints:
        """Return a rater's class for every row, int64 (n,); `WITHDRAWN` if they gave none or withdrew it."""
        found = np.full(len(self), WITHDRAWN, np.int64)
        ratings = self.records.ratings
        if rater.encode() in ratings.raters:
            own = ratings.rater == ratings.raters.index(rater.encode())
            found[ratings.row[own]] = ratings.class_index[own]
        return found

    def batch(self, task: str) -> Batch | None:
        """Return one batch with uniformly named units, weights if some row has one, and cases if each row has one; None without a row.

        If only some rows have logits, the batch has probabilities.

        Raises
        ------
        ValueError
            Rows have different numbers of scores.
        """
        if not len(self):
            return None
        delays, weights = self.records.delay, self.predictions.weights
        is_weighted = ~np.isnan(weights)
        scores, is_logits = self._scores()
        units, cases = self._units_and_cases()
        counts = self.records.ratings_by_class(np.arange(len(self)))
        return Batch(
            task,
            scores,
            is_logits,
            Ratings(counts.row, counts.class_index, counts.n),
            weights=np.where(is_weighted, weights, 1.0) if is_weighted.any() else None,
            ids=np.array(self.ids, dtype=object),
            delays=np.where(delays < 0, UNKNOWN, delays),
            edge_rules=stated_rules(self.predictions.edge_rules),
            units=units,
            cases=cases,
        )

    def _scores(self) -> tuple[NDArray[np.float64], bool]:
        """Return scores, and whether they are logits."""
        scores, are_logits = self.predictions.scores.values, self.predictions.is_logits
        if are_logits.all() or not are_logits.any():
            return scores, bool(are_logits[0])
        scores = scores.copy()
        for i in np.flatnonzero(are_logits):
            own = Batch("multiclass", scores[i][None, :], True, _NO_RATINGS)
            scores[i] = own.probabilities[0]
        return scores, False

    def _units_and_cases(self) -> tuple[NDArray[np.object_] | None, NDArray[np.object_] | None]:
        groups, cases = self.names.groups(), self.names.cases()
        if not any(group is not None for group in groups):
            return None, None
        own = [group or f"i{name}" for group, name in zip(groups, self.ids, strict=True)]
        has_cases = any(cases) and None not in cases
        return np.array(own, dtype=object), np.array(cases, dtype=object) if has_cases else None
