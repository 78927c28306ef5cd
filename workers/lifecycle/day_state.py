"""State and content of a model's days: what moves to files compare and read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calibrant.core.packing import PackingError
from calibrant_server.workers.ingest.sample_cache import SampleKey
from calibrant_server.workers.store.cold_days import ColdDay, of_files
from calibrant_server.workers.store.day_file import PANE, SEALED, DayItem
from calibrant_server.workers.store.keys import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.slice_names import is_baseline
from calibrant_server.workers.store.watermarks import day_of

_ITEMS_A_READ = 32

Name = tuple[str, str]


@dataclass(frozen=True)
class DayState:
    """What must be the same before and after a file is written.

    Attributes
    ----------
    panes : versions by pane
    samples : last change by sample
    has_rows : whether rows of the day are not sums yet
    text : the files of the day, as stored
    """

    panes: dict[DayItem, bytes]
    samples: dict[DayItem, bytes]
    has_rows: bool
    text: bytes | None

    @property
    def cold(self) -> ColdDay | None:
        """The files of the day, if it has any."""
        return ColdDay.read(self.text)


class DayReader:
    """Reader of the state and the content of days of one partition."""

    def __init__(self, node: Any, keys: PartitionKeys):
        self._node = node
        self._keys = keys

    def starts(self, name: Name) -> dict[int, list[DayItem]]:
        """Return the panes of a model by day, but baselines."""
        members = self._node.smembers(self._keys.slices(*name))
        slices = [each for each in sorted(m.decode() for m in members) if not is_baseline(each)]
        with self._node.pipeline(transaction=False) as pipe:
            for slice_ in slices:
                pipe.hkeys(self._keys.versions(*name, slice_))
            replies = pipe.execute() if slices else []
        found: dict[int, list[DayItem]] = {}
        for slice_, starts in zip(slices, replies, strict=True):
            for start in starts:
                if start != LAST_CHANGE.encode():
                    item = DayItem(PANE, slice_, int(start))
                    found.setdefault(day_of(item.start_s), []).append(item)
        return found

    def state(self, name: Name, day_s: int) -> DayState:
        """Return the state of a day at one moment."""
        panes = self.starts(name).get(day_s, [])
        samples = [SampleKey(*name, day_s, sealed) for sealed in (False, True)]
        starts = sorted({each.start_s for each in panes})
        reads = ReadTogether()
        reads.hget(self._keys.cold_days(*name), day_s)
        for sample in samples:
            reads.hget(sample.name(self._keys), LAST_CHANGE)
        for each in panes:
            reads.hget(self._keys.versions(*name, each.slice), each.start_s)
        for start in starts:
            reads.hgetall(self._keys.tail(PaneKey(*name, "", start)))
        text, event, sealed, *others = reads.run(self._node)
        versions, tails = others[: len(panes)], others[len(panes) :]
        changes = zip(samples, (event, sealed), strict=True)
        return DayState(
            {item: version for item, version in zip(panes, versions, strict=True) if version},
            {each.item: change for each, change in changes if change},
            any(tails),
            text,
        )

    def fields(
        self, name: Name, items: list[DayItem], cold: ColdDay | None
    ) -> Iterator[tuple[DayItem, dict[bytes, bytes]]]:
        """Yield the content of items, of the store or of files; raise PackingError if a file is damaged."""
        for at in range(0, len(items), _ITEMS_A_READ):
            run = items[at : at + _ITEMS_A_READ]
            with self._node.pipeline(transaction=False) as pipe:
                for item in run:
                    pipe.hgetall(self.key(name, item))
                stored = pipe.execute()
            found = of_files(self._keys.files, [(cold, item) for item in run])
            for item, fields, in_file in zip(run, stored, found, strict=True):
                if isinstance(in_file, PackingError):
                    raise in_file
                yield item, fields if in_file is None else in_file

    def key(self, name: Name, item: DayItem) -> str:
        """Return the hash of the store that has an item, unless a file has it."""
        if item.kind == PANE:
            return self._keys.pane(PaneKey(*name, item.slice, item.start_s))
        return SampleKey(*name, item.start_s, item.kind == SEALED).name(self._keys)
