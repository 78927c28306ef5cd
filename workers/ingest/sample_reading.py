"""The stored sample of a window: rows of its days and rows that are not sums yet, filtered by slice and pane.

A commit that makes rows sums moves them from the tail of their time slice to the sample of their day. Both are therefore
read at one moment; where a day has too many tails for one transaction, the sample's last change must be the same in each. The
sample of a cold day may be in a file, which does not change.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.accumulators.sample import Sample
from calibrant_server.workers.ingest.sample_cache import (
    SampleKey,
    halvings_of,
    stored_rows,
)
from calibrant_server.workers.ingest.stored_panes import read_rows
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import (
    counted,
    occurring,
    row_bytes,
    sample_of,
    sampled,
)
from calibrant_server.workers.store.cold_days import ColdDay, of_file
from calibrant_server.workers.store.day_file import sample_item
from calibrant_server.workers.store.key_names import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.slice_names import is_live, is_sealed, plain_slice
from calibrant_server.workers.store.watermarks import Watermarks, day_of

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.reduce import Numerics

# What to read next, the replies to it, and at the end rows and threshold.
SampleSteps = Generator[ReadTogether, list[Any], tuple[Rows | None, int]]
_TRIES = 20
# A day of hourly panes is read in one transaction; tails have at most `MAX_TAIL_BYTES`, so it has at most 96 MiB.
_TAILS_A_RUN = 24


class SampleChangedError(RuntimeError):
    """The panes of a window changed while its sample was read."""


@dataclass(frozen=True)
class DaySample:
    """Net rows of a slice of one day, and the threshold of the day.

    Attributes
    ----------
    rows : None where there are none
    """

    rows: Rows | None
    halvings: int

    def size_of(self) -> int:
        """Return the bytes that it counts for in a cache."""
        return 500 + (0 if self.rows is None else 3 * int(row_bytes(self.rows).sum()))


@dataclass(frozen=True)
class SampleSource:
    """Samples of a model's generation.

    Attributes
    ----------
    slice : live or sealed
    marks : of the slice
    """

    keys: PartitionKeys
    numerics: Numerics
    config: ModelConfig
    slice: str
    marks: Watermarks = field(default_factory=Watermarks)

    def day(self, node: Any, day_s: int, versions: Mapping[int, bytes | None]) -> DaySample:
        """Return the sample of one day; SampleChangedError or PackingError where it cannot be read.

        Parameters
        ----------
        versions : starts of panes, all of that day, each with its expected version, or None if any will do
        """
        steps = self.steps(day_s, versions)
        try:
            reads = next(steps)
            while True:
                reads = steps.send(reads.run(node))
        except StopIteration as end:
            return DaySample(*end.value)

    def steps(self, day_s: int, versions: Mapping[int, bytes | None]) -> SampleSteps:
        """Yield what to read next, and return the rows and the threshold."""
        starts = sorted(versions)
        runs = [starts[at : at + _TAILS_A_RUN] for at in range(0, len(starts), _TAILS_A_RUN)]
        if not is_live(self.slice):
            runs = [starts]
        for _ in range(_TRIES):
            fields: dict[bytes, bytes] = {}
            last: bytes | None = None
            parts: list[Rows] = []
            for number, run in enumerate(runs):
                cold, found, stored_fields, *tails = yield self._reads(day_s, run, number == 0)
                self._compare(run, found, versions)
                if number == 0:
                    last = stored_fields.get(LAST_CHANGE.encode())
                    fields = self._fields(day_s, cold, stored_fields)
                    stored = stored_rows(fields)
                    parts += [] if stored is None else [stored]
                elif stored_fields != last:
                    break
                read = [read_rows(self.numerics, each) for each in tails]
                parts += sampled_tails(zip(run, read, strict=False), halvings_of(fields))
            else:
                return self._chosen(parts, starts), halvings_of(fields)
        raise RuntimeError("the sample changed faster than it could be read")

    def _reads(self, day_s: int, run: Sequence[int], is_first: bool) -> ReadTogether:
        model = (self.config.key, self.config.generation)
        key = SampleKey(*model, day_s, is_sealed(self.slice))
        name = key.name(self.keys)
        reads = ReadTogether()
        reads.hget(self.keys.cold_days(*model), day_s)
        reads.hmget(self.keys.versions(*model, self.slice), run)
        if is_first:
            reads.hgetall(name)
        else:
            reads.hget(name, LAST_CHANGE)
        if is_live(self.slice):
            for start in run:
                reads.hgetall(self.keys.tail(PaneKey(*model, "", start)))
        return reads

    def _fields(
        self, day_s: int, cold: bytes | None, stored: dict[bytes, bytes]
    ) -> dict[bytes, bytes]:
        """Return the fields of the sample, of the store or of a file."""
        item = sample_item(day_s, is_sealed(self.slice))
        found = of_file(self.keys.files, ColdDay.read(cold), item)
        return stored if found is None else found

    def _compare(
        self,
        run: Sequence[int],
        found: Sequence[bytes | None],
        versions: Mapping[int, bytes | None],
    ) -> None:
        for start, version in zip(run, found, strict=True):
            if versions[start] is not None and version != versions[start]:
                raise SampleChangedError(f"the pane {start} changed")

    def _chosen(self, parts: list[Rows], starts: Sequence[int]) -> Rows | None:
        """Return the rows of the slice and of panes; each copy of the parts is dropped when the next one is made."""
        if not parts:
            return None
        rows = Rows.together(parts)
        parts.clear()
        rows = rows.in_slice(plain_slice(self.slice))
        rows = rows.where(np.isin(self.marks.starts(rows.starts), starts))
        return occurring(counted(rows))


def sampled_tails(tails: Iterable[tuple[int, Any]], halvings: int) -> list[Rows]:
    """Return the rows of a sample of tails, each with the start of its pane, in their order."""
    return [sampled(rows.net, start_s, halvings) for start_s, rows in tails if rows is not None]


def by_day(starts: Iterable[int]) -> dict[int, list[int]]:
    """Return starts of panes by the start of their day."""
    days: dict[int, list[int]] = {}
    for start in starts:
        days.setdefault(day_of(start), []).append(start)
    return days


def merged_sample(spec: Any, days: Iterable[DaySample], max_bytes: int) -> Sample:
    """Return samples of days as one, below the lowest threshold of them and within a bound."""
    sample = Sample(spec)
    sample.max_bytes = max_bytes
    parts = [
        sample_of(day.rows, spec, day.halvings, max_bytes)
        if day.rows is not None
        else _none(spec, day.halvings)
        for day in days
    ]
    if parts:
        sample.merge_all(parts)
    return sample


def _none(spec: Any, halvings: int) -> Sample:
    empty = Sample(spec)
    empty.halvings = halvings
    return empty
