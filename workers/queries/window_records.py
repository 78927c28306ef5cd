"""Retained records of a window, found by scanning all records of the model: records are stored by id, not by time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.core.errors import CalibrationInputError
from calibrant.core.routing import ALL_ROWS, MICROSECONDS
from calibrant_server.workers.ingest.alike_records import labelled_blocks
from calibrant_server.workers.ingest.labelled_rows import LabelledRows, RowBlock
from calibrant_server.workers.ingest.retained_prediction import Slices
from calibrant_server.workers.ingest.retained_store import scanned
from calibrant_server.workers.store.keys import RECORD_SHARDS, PartitionKeys
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

    def read(self, share: int = 1) -> LabelledRows:
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
        found: list[RowBlock] = []
        names: set[str] = set()
        n_ratings = 0
        for page in self._pages() if n_records else ():
            for block in labelled_blocks(page):
                own = block.where(self._holds(block))
                n_ratings += sum(
                    len(each) for place, each in own.rated.items() if own.names[place] not in names
                )
                names.update(own.names)
                _reject_more(len(names), self.max_rows // share, "labelled records")
                _reject_more(n_ratings, MAX_RATINGS // share, "ratings by named raters")
                found.append(own)
        return LabelledRows.of(found, self.config.task)

    def _pages(self) -> Iterator[dict[bytes, bytes]]:
        for shard in range(RECORD_SHARDS):
            name = self.keys.records(self.config.key, self.config.generation, shard)
            yield from scanned(self.node, name, _A_SCAN)

    def _holds(self, block: RowBlock) -> NDArray[np.bool_]:
        """Return which predictions are in a pane of the window within its retention, and in the slice."""
        starts = block.event_us // (self.config.pane_s * MICROSECONDS) * self.config.pane_s
        now = self.marks.starts(starts)
        inside: NDArray[np.bool_] = (starts >= self.marks.kept_from) & (now >= self.window.from_s) & (now < self.window.to_s)  # fmt: skip
        if self.slice == ALL_ROWS:
            return inside
        known: dict[Slices, bool] = {}
        for _, _, slices in block.texts:
            if slices not in known:
                known[slices] = self.slice in {f"{key}:{value}" for key, value in slices}
        in_slice = np.array([known[slices] for _, _, slices in block.texts], np.bool_)
        return np.logical_and(inside, in_slice)


def _reject_more(n: int, most: int, what: str) -> None:
    if n > most:
        detail = f"The window contains more than {most} {what}, the maximum of one request. Request a shorter window."
        raise CalibrationInputError.at("/window", "too_many_records", detail)
