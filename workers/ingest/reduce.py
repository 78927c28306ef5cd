"""Reduction of entries to what they add: rows by time slice, and deltas of panes. Independent of the store.

Predictions become rows of the tail of their time slice. An entry that cannot be filled is found before it is stored: its values
are checked, and rows with a value that is not known to fill are filled once into the pane of all rows. Posted
panes and histograms are deltas of the stored sums.

The classes of the library compute the numbers. They are passed in as `Numerics`, so that tests of exactly-once delivery
can count in integers instead.

The service has checked values by the same rules, and a tail stores rows without filling them. The joined rows of a time slice are
checked here; if they do not pass they are filled once before they are stored: the fill decides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrant.accumulators.delays import DELAY_BINS, UNKNOWN, delay_bin
from calibrant.core.batch import Batch
from calibrant.core.histogram import Histogram
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS, rows_by_pane
from calibrant.core.spec import PaneSpec
from calibrant.input.input_columns import MAX_WEIGHT, MIN_WEIGHT
from calibrant.input.score_columns import MAX_LOGIT
from calibrant_server.workers.ingest.cached_pane import estimated_pane_bytes
from calibrant_server.workers.ingest.entries import (
    HISTOGRAMS,
    LABELS,
    PANE,
    PREDICTIONS,
    REMOVAL,
    EntryError,
    IngestEntry,
)
from calibrant_server.workers.ingest.joined_model import ChangedRows
from calibrant_server.workers.ingest.label_join import LabelJoin, RecordReader
from calibrant_server.workers.ingest.payloads import check_labels, check_removal, unpack_labels
from calibrant_server.workers.ingest.posted_sums import (
    Claim,
    LiftedSample,
    reduce_histograms,
    reduce_pane,
)
from calibrant_server.workers.ingest.slices import ReadSlices, SliceNames
from calibrant_server.workers.join.facts import EntryFacts
from calibrant_server.workers.segments.row_codec import columns_fit
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.store.commit import id_order
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig

# Probabilities were divided by their sum where that was further from 1 than `calibrant.input.row_sums.SUM_EXACT`.
MAX_SUM_ERROR = 1e-6
Floats = NDArray[np.float64]


def are_valid_rows(rows: Rows, spec: PaneSpec) -> bool:
    """Return whether rows fill panes of a specification."""
    fixed, scores = rows.fixed, rows.scores.values
    return (
        (rows.task, scores.shape[1]) == (spec.task, spec.n_classes)
        and columns_fit(rows)
        and _logits_fit(scores[fixed["is_logits"]])
        and _probabilities_fit(scores[~fixed["is_logits"]])
        and _weights_fit(fixed["weight"])
        and bool(((fixed["delay"] >= UNKNOWN) & (fixed["delay"] < DELAY_BINS)).all())
    )


# With nan among the values no comparison holds.
def _logits_fit(scores: Floats) -> bool:
    return bool(
        scores.max(initial=-MAX_LOGIT) <= MAX_LOGIT and scores.min(initial=MAX_LOGIT) >= -MAX_LOGIT
    )


def _probabilities_fit(scores: Floats) -> bool:
    totals = np.einsum("ij->i", scores)
    return bool(
        scores.min(initial=0.0) >= 0.0
        and scores.max(initial=0.0) <= 1.0
        and (np.abs(totals - 1.0) <= MAX_SUM_ERROR).all()
    )


def _weights_fit(weights: Floats) -> bool:
    return bool(((weights == 0) | ((weights >= MIN_WEIGHT) & (weights <= MAX_WEIGHT))).all())


@dataclass(frozen=True)
class Numerics:
    """The classes that compute.

    Attributes
    ----------
    batch, pane, histogram : `calibrant.Batch`, `calibrant.Pane`, `calibrant.Histogram` or classes with their interface
    spec : specification of a model's panes
    rows : `Rows` or a class with its interface
    pane_bytes : estimated packed size of a pane of a number of rows
    keeps_samples : whether complete rows are stored for a model and day
    """

    batch: type[Batch] = Batch
    pane: type[Pane] = Pane
    histogram: type[Histogram] = Histogram
    spec: Callable[[ModelConfig], PaneSpec] = ModelConfig.spec
    rows: type[Rows] = Rows
    pane_bytes: Callable[[PaneSpec, int], int] = estimated_pane_bytes
    keeps_samples: bool = True

    def empty(self, spec: PaneSpec, sample_bytes: int = 0) -> Pane:
        """Return an empty pane of sums; the sample is stored by model and day."""
        return self.pane(spec, sample_bytes=sample_bytes) if self.keeps_samples else self.pane(spec)

    def of_parts(
        self, spec: PaneSpec, parts: Mapping[str, bytes], only: Collection[str] | None = None
    ) -> Pane:
        """Return a stored pane of sums, or the accumulators of it that are named in `only`.

        In the order of their names: a hash of the store and a file have orders of their own.

        Raises
        ------
        PackingError
            A part is damaged.
        """
        if parts:
            pane = self.pane.from_parts(spec, dict(sorted(parts.items())), only=only)
        else:
            pane = self.pane(spec) if only is None else self.pane(spec, only)
        return pane.drop_sample() if self.keeps_samples else pane

    def n_predictions(self, pane: Pane) -> int:
        """Return the number of predictions in the sums of a pane; 0 of other classes than the library's."""
        return pane.counts["n_predictions"] if self.pane is Pane else 0

    def fill_if_doubtful(self, rows: Rows, config: ModelConfig) -> None:
        """Fill rows into an empty pane, unless it is known that this cannot fail."""
        spec = self.spec(config)
        if self.pane is not Pane or not are_valid_rows(rows, spec):
            rows.fill_into(self.empty(spec), ALL_ROWS, lambda: self.empty(spec))

    def window(self, spec: PaneSpec) -> Pane:
        """Return an empty pane into which the panes of a window are merged."""
        return getattr(self.pane, "for_window", self.pane)(spec)


class StoreReads:
    """What entries of one commit read from the store and change in it: records by id, and names of slices.

    Parameters
    ----------
    records : retained records
    slices_of : slices of a model that have panes, `key:value`
    max_values : values of an open slice key
    """

    def __init__(
        self,
        records: RecordReader,
        slices_of: ReadSlices,
        max_values: int,
    ) -> None:
        self._records = records
        self._slices_of = slices_of
        self._max_values = max_values
        self.opened_join: LabelJoin | None = None

    @property
    def join(self) -> LabelJoin:
        """The join of labels, opened by the first entry with ids."""
        if self.opened_join is None:
            self.opened_join = LabelJoin(self._records)
        return self.opened_join

    @cached_property
    def names(self) -> SliceNames:
        """Names of slices, opened by the first entry with slices."""
        return SliceNames(self._slices_of, self._max_values)

    def again(self) -> StoreReads:
        """Return the same without what entries have changed."""
        return StoreReads(self._records, self._slices_of, self._max_values)


@dataclass
class NewRows:
    """Rows that predictions of one time slice add.

    Attributes
    ----------
    batches : in the order of the stream
    rows : of all of them, once they were checked; each batch has its number
    """

    config: ModelConfig
    batches: list[Batch] = field(default_factory=list)
    rows: Rows | None = None

    def close(self, numerics: Numerics) -> None:
        """Join the batches and check their values, so that an error is found before they are stored."""
        parts = [numerics.rows.of_batch(batch, i) for i, batch in enumerate(self.batches)]
        self.rows = numerics.rows.together(parts)
        numerics.fill_if_doubtful(self.rows, self.config)


class Reduction:
    """What entries add: rows by time slice, deltas of stored sums, and claims that depend on the state.

    Batches are collected and checked at `close`, many at a time.

    Attributes
    ----------
    rows : by the pane of all rows of their time slice
    lifted : samples of posted panes
    """

    def __init__(self, reads: StoreReads) -> None:
        self.reads = reads
        self.other: dict[str, dict[str, int]] = {}
        self.rows: dict[PaneKey, NewRows] = {}
        self.deltas: dict[PaneKey, Pane] = {}
        self.lifted: list[LiftedSample] = []
        self.claims: list[tuple[str, Claim]] = []

    def delta(self, key: PaneKey, config: ModelConfig, numerics: Numerics) -> Pane:
        """Return the delta of a pane, an empty one at first."""
        if key not in self.deltas:
            self.deltas[key] = numerics.empty(numerics.spec(config))
        return self.deltas[key]

    def add_batch(self, key: PaneKey, config: ModelConfig, batch: Batch) -> None:
        """Collect the rows of one time slice, to be checked at `close`."""
        self.rows.setdefault(key, NewRows(config)).batches.append(batch)

    def close(self, numerics: Numerics) -> None:
        """Check that the collected batches can be filled."""
        for new in self.rows.values():
            new.close(numerics)

    def changes(self, numerics: Numerics) -> dict[PaneKey, ChangedRows]:
        """Return what time slices lose and gain by joined labels, after checking that it can be filled."""
        join = self.reads.opened_join
        changes = {} if join is None else join.changes()
        for change in changes.values():
            change.check(numerics.fill_if_doubtful)
        return changes

    def erased(self) -> dict[PaneKey, tuple[list[str], ModelConfig]]:
        """Return the ids that were deleted, by the pane of all rows of their time slice."""
        join = self.reads.opened_join
        return {} if join is None else join.erased()


def reduce_entry(
    entry: IngestEntry, config: ModelConfig, numerics: Numerics, into: Reduction
) -> int:
    """Add an entry to a reduction that is not closed yet; return the number of predictions or updates.

    Any exception, here or at the close, leaves `into` half filled: nothing of it is committed.
    """
    return _KINDS[entry.kind](entry, config, numerics, into)


def _predictions(
    entry: IngestEntry, config: ModelConfig, numerics: Numerics, into: Reduction
) -> int:
    sent = numerics.batch.unpack(entry.payload)
    has_ids = getattr(sent, "ids", None) is not None
    counts = (
        into.reads.join.new_rows(config, sent, entry.received_ms)
        if has_ids and sent.slices
        else None
    )
    batch = sent
    if sent.slices:
        batch, into.other[entry.id] = into.reads.names.batch(config, sent, counts)
    if has_ids:
        facts = EntryFacts.of_predictions(entry.id, batch, entry.received_ms, sent)
        into.reads.join.add(config, facts)
        return int(batch.n)
    _add_rows(batch, entry.received_ms, config, into)
    return int(batch.n)


def _add_rows(batch: Batch, received_ms: int, config: ModelConfig, into: Reduction) -> None:
    """Collect rows without ids, to be filled together with others."""
    batch = _timed(batch, received_ms)
    for place, rows in rows_by_pane(batch, config.pane_s, received_ms * 1000):
        key = config.pane_key(place)
        if place.slice == ALL_ROWS:
            some = batch if rows is None else batch.take(rows)
            into.add_batch(key, config, some)


def _timed(batch: Batch, received_ms: int) -> Batch:
    """Return a batch with the delays of the labels that it contains."""
    if not isinstance(batch, Batch) or batch.event_times is None:
        return batch
    return replace(batch, delays=delay_bin(received_ms / 1000 - batch.event_times / 1e6))


def _labels(entry: IngestEntry, config: ModelConfig, numerics: Numerics, into: Reduction) -> int:
    sent = unpack_labels(entry.payload)
    check_labels(sent, config.n_classes)
    milliseconds, sequence = id_order(entry.first_id or entry.id or "0-0")
    order = milliseconds << 20 | sequence
    into.reads.join.add(config, EntryFacts.of_labels(entry.id, sent, entry.received_ms, order))
    return len(sent)


def _removal(entry: IngestEntry, config: ModelConfig, numerics: Numerics, into: Reduction) -> int:
    try:
        names = json.loads(entry.payload)["ids"]
    except (ValueError, KeyError, TypeError) as error:
        raise EntryError(f"the removal cannot be read: {error}") from error
    check_removal(names)
    into.reads.join.add(config, EntryFacts.of_deletion(entry.id, names, entry.received_ms))
    return len(names)


_KINDS = {
    PREDICTIONS: _predictions,
    HISTOGRAMS: reduce_histograms,
    PANE: reduce_pane,
    LABELS: _labels,
    REMOVAL: _removal,
}
