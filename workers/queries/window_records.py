"""Retained records of a window, found by scanning all records of the model: records are stored by id, not by time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.core.routing import ALL_ROWS, MICROSECONDS
from calibrant_server.workers.ingest.record_store import scanned
from calibrant_server.workers.join.identified_rows import IdentifiedRows
from calibrant_server.workers.store.key_names import RECORD_SHARDS, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.watermarks import Watermarks
from calibrant_server.workers.store.windows import Window

# A scan of this many records takes about 10 s of a worker.
MAX_STORED_RECORDS = 1_000_000
# This many rows take some hundreds of megabytes while they are scored; fewer of them with many classes.
MAX_ROWS = 30_000
MAX_SCORES = 3_200_000
# Records of a scan of the store, most of which have less than 100 bytes: each scan takes a third of a millisecond beside them.
_A_SCAN = 2000
# Over all raters; each takes about 3 µs and a few hundred bytes.
MAX_RATINGS = 75_000


@dataclass(frozen=True)
class WindowRecords:
    """Reader of the records of one slice's window."""

    node: Any
    keys: PartitionKeys
    config: ModelConfig
    slice: str
    window: Window
    marks: Watermarks

    @property
    def max_rows(self) -> int:
        """Maximum number of rows scored at once."""
        return min(MAX_ROWS, MAX_SCORES // self.config.n_classes)

    def read(self, share: int = 1) -> IdentifiedRows:
        """Return the predictions of the window that have an id and a label, sorted by id.

        Parameters
        ----------
        share : 3 for a third of the most rows and ratings; a comparison reads two windows and computes differences

        Raises
        ------
        CalibrationInputError
            The model retains more records than are scanned, or the window contains more rows or ratings than are
            scored at once.
        """
        name = (self.config.key, self.config.generation)
        n_records = int(self.node.hget(self.keys.tallies(*name), "records") or 0)
        if n_records > MAX_STORED_RECORDS:
            detail = f"The model retains {n_records} records; at most {MAX_STORED_RECORDS} can be scanned. Set a shorter retention."
            raise CalibrationInputError.at("/model", "too_many_records", detail)
        found: dict[str, bytes] = {}
        n_ratings = 0
        for page in self._pages() if n_records else ():
            rows = IdentifiedRows.read({name.decode(): text for name, text in page.items()})
            rows = rows.where(self._holds(rows))
            n_ratings += _ratings_besides(found, rows)
            found |= {name: page[name.encode()] for name in rows.ids}
            _reject_more(len(found), self.max_rows // share, "labelled records")
            _reject_more(n_ratings, MAX_RATINGS // share, "ratings by named raters")
        return IdentifiedRows.read(found)

    def _pages(self) -> Iterator[dict[bytes, bytes]]:
        for shard in range(RECORD_SHARDS):
            name = self.keys.records(self.config.key, self.config.generation, shard)
            yield from scanned(self.node, name, _A_SCAN)

    def _holds(self, rows: IdentifiedRows) -> NDArray[np.bool_]:
        """Return which rows have a label, are in a pane of the window within its retention, and in the slice."""
        pane_s = self.config.pane_s
        starts = rows.predictions.event_us // (pane_s * MICROSECONDS) * pane_s
        now = self.marks.starts(starts)
        inside: NDArray[np.bool_] = (rows.records.n_active > 0) & (starts >= self.marks.kept_from)
        inside &= (now >= self.window.from_s) & (now < self.window.to_s)
        if self.slice == ALL_ROWS:
            return inside
        slices = [{f"{key}:{value}" for key, value in pairs} for pairs in rows.names.slice_sets]
        in_slice = np.array([self.slice in each for each in slices], np.bool_)
        return inside & in_slice[rows.names.slices]


def _ratings_besides(found: Mapping[str, bytes], rows: IdentifiedRows) -> int:
    """Return the number of named ratings of ids that were not found before."""
    is_new = np.array([name not in found for name in rows.ids], np.bool_)
    return int(np.count_nonzero(is_new[rows.records.ratings.row]))


def _reject_more(n: int, most: int, what: str) -> None:
    if n > most:
        detail = f"The window contains more than {most} {what}, the maximum of one request. Request a shorter window."
        raise CalibrationInputError.at("/window", "too_many_records", detail)
