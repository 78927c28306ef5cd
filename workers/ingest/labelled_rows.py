"""Labelled predictions as columns, in blocks as they are read, and joined as one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.core.batch import Batch, Ratings
from calibrant.input.labels import WITHDRAWN
from calibrant_server.workers.ingest.record_columns import NARROW_FORM, SUM_FORM, LabelledRow
from calibrant_server.workers.ingest.retained_prediction import Slices, group_name

Ints = NDArray[np.int64]
Texts = tuple[str | None, str | None, Slices]


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Labelled predictions that count.

    Attributes
    ----------
    names : ids, each once
    scores : float64 (n, n_scores)
    is_logits : bool (n,)
    ratings : sorted by row, then class
    event_us : int64 (n,)
    delays : int64 (n,), of the first label, `UNKNOWN` if it is not known
    weights : float64 (n,), nan for none
    texts : unit, case and slices of each row
    rated : classes by named rater, withdrawn ones included, of the rows that have some
    """

    names: list[str]
    scores: NDArray[np.float64]
    is_logits: NDArray[np.bool_]
    ratings: Ratings
    event_us: Ints
    delays: Ints
    weights: NDArray[np.float64]
    texts: Sequence[Texts]
    rated: dict[int, Mapping[str, int]]

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, found: Mapping[str, LabelledRow]) -> RowBlock:
        """Return rows that were read one by one, at least one."""
        rows = list(found.values())
        weights = [np.nan if row.weight is None else row.weight for row in rows]
        return cls(
            names=list(found),
            scores=_scores(rows),
            is_logits=np.array([row.is_logits for row in rows]),
            ratings=_ratings(rows),
            event_us=np.array([row.event_us for row in rows], np.int64),
            delays=np.array([row.delay for row in rows], np.int64),
            weights=np.array(weights, np.float64),
            texts=[(row.unit, row.case, row.slices) for row in rows],
            rated={place: row.ratings for place, row in enumerate(rows) if row.ratings},
        )

    def where(self, mask: NDArray[np.bool_]) -> RowBlock:
        """Return the rows of a mask; itself if these are all."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def take(self, index: Ints) -> RowBlock:
        """Return rows in another order, each at most once."""
        places = index.tolist()
        to = np.full(len(self), -1)
        to[index] = np.arange(len(index))
        rows = to[self.ratings.row]
        order = np.argsort(rows, kind="stable")[np.count_nonzero(rows < 0) :]
        return RowBlock(
            names=[self.names[place] for place in places],
            scores=self.scores[index],
            is_logits=self.is_logits[index],
            ratings=Ratings(
                rows[order], self.ratings.class_index[order], self.ratings.count[order]
            ),
            event_us=self.event_us[index],
            delays=self.delays[index],
            weights=self.weights[index],
            texts=[self.texts[place] for place in places],
            rated={int(to[place]): each for place, each in self.rated.items() if to[place] >= 0},
        )

    @classmethod
    def together(cls, blocks: Sequence[RowBlock]) -> RowBlock:
        """Concatenate blocks, at least one.

        Raises
        ------
        ValueError
            They have other numbers of scores.
        """
        sizes = {each.scores.shape[1] for each in blocks}
        if len(sizes) > 1:
            raise ValueError(f"received rows of {' and '.join(map(str, sorted(sizes)))} scores")
        starts = np.cumsum([0, *map(len, blocks)]).tolist()
        each_from = list(zip(blocks, starts, strict=False))
        return cls(
            names=[name for each in blocks for name in each.names],
            scores=np.concatenate([each.scores for each in blocks]),
            is_logits=np.concatenate([each.is_logits for each in blocks]),
            ratings=Ratings(
                np.concatenate([each.ratings.row + start for each, start in each_from]),
                np.concatenate([each.ratings.class_index for each in blocks]),
                np.concatenate([each.ratings.count for each in blocks]),
            ),
            event_us=np.concatenate([each.event_us for each in blocks]),
            delays=np.concatenate([each.delays for each in blocks]),
            weights=np.concatenate([each.weights for each in blocks]),
            texts=[texts for each in blocks for texts in each.texts],
            rated={start + place: one for each, start in each_from for place, one in each.rated.items()},
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Labelled predictions in the order of their ids.

    Attributes
    ----------
    batch : None without a row
    raters : named raters with the number of rows that each rated, by name
    rated : classes by named rater, withdrawn ones included, of the rows that have some
    """

    batch: Batch | None
    raters: dict[str, int]
    rated: dict[int, Mapping[str, int]]

    def __len__(self) -> int:
        return 0 if self.batch is None else self.batch.n

    @classmethod
    def of(cls, blocks: Sequence[RowBlock], task: str) -> LabelledRows:
        """Return rows as one batch with uniformly named units, each with its weight, and with its case if all rows have one.

        Parameters
        ----------
        blocks : in the order in which they were read: of an id that was read twice, the last row counts
        """
        some = [each for each in blocks if len(each)]
        if not some:
            return cls(None, {}, {})
        rows = RowBlock.together(some)
        last = {name: place for place, name in enumerate(rows.names)}
        rows = rows.take(np.array([last[name] for name in sorted(last)]))
        raters: dict[str, int] = {}
        for ratings in rows.rated.values():
            for rater, class_index in ratings.items():
                if class_index != WITHDRAWN:
                    raters[rater] = raters.get(rater, 0) + 1
        return cls(_batch(rows, task), dict(sorted(raters.items())), rows.rated)

    def classes_of(self, rater: str) -> Ints:
        """Return a rater's class for every row, int64 (n,); -1 if they gave none or withdrew it."""
        found = np.full(len(self), WITHDRAWN, np.int64)
        if self.rated:
            found[list(self.rated)] = [each.get(rater, WITHDRAWN) for each in self.rated.values()]
        return found


def _batch(rows: RowBlock, task: str) -> Batch:
    units = cases = None
    if any(unit is not None or case is not None for unit, case, _ in rows.texts):
        groups = [group_name(unit, case) for unit, case, _ in rows.texts]
        own = [group or f"i{name}" for group, name in zip(groups, rows.names, strict=True)]
        units = np.array(own, dtype=object)
        named = [case for _, case, _ in rows.texts]
        if any(named) and None not in named:
            cases = np.array(named, dtype=object)
    scores, is_logits = _as_one_kind(rows)
    weights = None
    if not (missing := np.isnan(rows.weights)).all():
        weights = np.where(missing, 1.0, rows.weights)
    return Batch(
        task=task,
        scores=scores,
        is_logits=is_logits,
        ratings=rows.ratings,
        weights=weights,
        ids=np.array(rows.names, dtype=object),
        delays=rows.delays,
        units=units,
        cases=cases,
    )


def _as_one_kind(rows: RowBlock) -> tuple[NDArray[np.float64], bool]:
    """Return scores, and whether they are logits: probabilities if some rows have these."""
    scores, are_logits = rows.scores, rows.is_logits
    if are_logits.all():
        return scores, True
    none = np.zeros(0, np.int64)
    for place in np.flatnonzero(are_logits):
        own = Batch("multiclass", scores[place][None, :], True, Ratings(none, none, none))
        scores[place] = own.probabilities[0]
    return scores, False


def _scores(rows: list[LabelledRow]) -> NDArray[np.float64]:
    """Return the scores of rows as they were filled."""
    n_scores = rows[0].n_scores
    places: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        if row.n_scores != n_scores:
            raise ValueError(f"received rows of {row.n_scores} and {n_scores} scores")
        places.setdefault(row.form, []).append(place)
    scores = np.empty((len(rows), n_scores))
    for form, own in places.items():
        packed = b"".join([rows[place].scores for place in own])
        raw = np.frombuffer(packed, np.uint8).reshape(len(own), -1)
        width = n_scores * (4 if form & NARROW_FORM else 8)
        kind = "<f4" if form & NARROW_FORM else "<f8"
        values = raw[:, :width].copy().view(kind).astype(np.float64)
        if form & SUM_FORM:
            values /= raw[:, width:].copy().view("<f8")
        scores[own] = values
    return scores


def _ratings(rows: list[LabelledRow]) -> Ratings:
    entries: list[int] = []
    for place, row in enumerate(rows):
        totals = row.totals
        for class_index in sorted(totals) if len(totals) > 1 else totals:
            if totals[class_index]:
                entries += (place, class_index, totals[class_index])
    columns = np.array(entries, np.int64).reshape(-1, 3).T
    return Ratings(*(np.ascontiguousarray(column) for column in columns))
