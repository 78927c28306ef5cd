"""Making a delta of the batches of one commit in a side partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.ingest.deltas import Delta, PackedPane, PackedSample, SentBatch
from calibrant_server.workers.ingest.reduce import NewRows, Numerics
from calibrant_server.workers.ingest.sample_cache import CachedSample
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import sampled
from calibrant_server.workers.store.commit import id_order
from calibrant_server.workers.store.keys import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import day_of


@dataclass
class OfModel:
    """The batches of a commit that belong to one model, and their rows by the pane of all rows of their time slice.

    Attributes
    ----------
    contains : rows of each batch, by batch id
    n_by_pane : rows in each pane that they fill, slices included
    since_ms : arrival of the first of them in the side partition
    """

    config: ModelConfig
    batches: list[SentBatch] = field(default_factory=list)
    contains: dict[str, int] = field(default_factory=dict)
    rows: dict[PaneKey, NewRows] = field(default_factory=dict)
    n_by_pane: list[int] = field(default_factory=list)
    since_ms: int = 0

    def add(self, batch: SentBatch, entry_id: str, batch_id: str, n: int) -> None:
        """Add a batch of so many rows, in the order of the stream."""
        if not self.batches:
            self.since_ms = id_order(entry_id)[0]
        self.batches.append(batch)
        self.contains[batch_id] = n


# How often the threshold of the stored sample of a model and day was halved, as far as it is known.
Halvings = Callable[[ModelConfig, int], int]


class DeltaMaker:
    """Makes deltas.

    Parameters
    ----------
    sample_bytes : bound of a stored sample; 0: none is stored
    halvings : rows above the present threshold of their sample are left out
    """

    def __init__(self, numerics: Numerics, sample_bytes: int, halvings: Halvings):
        self._numerics = numerics
        self._sample_bytes = sample_bytes if numerics.keeps_samples else 0
        self._halvings = halvings

    def make(self, of_model: OfModel) -> Delta:
        """Return the delta of a model's batches, which are filled into the panes of all rows already.

        Rows that the own partition would store as rows are sent as they came.
        """
        spec = self._numerics.spec(of_model.config)
        pane_bytes = sum(self._numerics.pane_bytes(spec, n) for n in of_model.n_by_pane)
        if sum(len(each.payload) for each in of_model.batches) <= pane_bytes:
            return Delta(batches=of_model.batches, contains=of_model.contains)
        panes: list[PackedPane] = []
        rows = {key: self._rows(new) for key, new in of_model.rows.items()}
        for key, some in sorted(rows.items(), key=lambda pair: pair[0].start_s):
            panes += self._panes(of_model, key.start_s, of_model.rows[key], some)
        samples = self._samples(of_model, rows)
        return Delta(panes=panes, samples=samples, contains=of_model.contains)

    def _rows(self, new: NewRows) -> Rows:
        kind = self._numerics.rows
        return kind.together([kind.of_batch(batch, i) for i, batch in enumerate(new.batches)])

    def _panes(
        self, of_model: OfModel, start_s: int, new: NewRows, rows: Rows
    ) -> Sequence[PackedPane]:
        spec = self._numerics.spec(of_model.config)
        found = []
        for slice_ in sorted(rows.n_by_slice):
            if slice_ == ALL_ROWS:
                pane = new.pane(self._numerics)
            else:
                pane = self._numerics.empty(spec)
                rows.fill_into(pane, slice_, lambda: self._numerics.empty(spec))
            found.append(PackedPane(slice_, start_s, pane.pack()))
        return found

    def _samples(self, of_model: OfModel, rows: Mapping[PaneKey, Rows]) -> Sequence[PackedSample]:
        if not self._sample_bytes:
            return ()
        by_day: dict[int, CachedSample] = {}
        starts: dict[int, int] = {}
        for key, some in rows.items():
            day_s = day_of(key.start_s)
            if day_s not in by_day:
                by_day[day_s] = CachedSample(self._sample_bytes)
                by_day[day_s].fall_to(self._halvings(of_model.config, day_s))
                starts[day_s] = key.start_s
            sample = by_day[day_s]
            sample.add(sampled(some.net, key.start_s, sample.halvings))
        return [
            PackedSample(starts[day_s], sample.halvings, rows_of_day.pack())
            for day_s, sample in by_day.items()
            if (rows_of_day := sample.all_rows()) is not None
        ]
