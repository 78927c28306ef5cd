"""A complete model as lines, from one store to another.

Each line is a JSON object with a `type`: `model` first, then `marks`, `pane`, `sample`, `baseline`, `map`, `current_map`, those of the alarm
(`calibrant_server.workers.alarm.alarm_transfer`), with records `record`, `unit` and `tallies`, with reports `report`, last
`end`. Bytes of the store are base64. The
versions of panes are included, so that the results of the other store are the same to the last digit. A pane is exported as
sums: rows that are not sums yet are filled.

The export reads in pieces while entries continue to be merged. `end` reports whether everything belongs to one state, and how many
archived reports are left out. A table of panes reads them one after the other, each complete.
"""

from __future__ import annotations

import json
from asyncio import to_thread
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from calibrant.core.routing import ALL_ROWS
from calibrant_server.workers.alarm.alarm_transfer import alarm_lines, episodes_of
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_reading import (
    DaySample,
    SampleSource,
    SampleSteps,
    by_day,
)
from calibrant_server.workers.ingest.stored_panes import (
    complete_pane,
    divided,
    fields_and_tail,
    pane_reads,
)
from calibrant_server.workers.lifecycle.export_shapes import Line
from calibrant_server.workers.lifecycle.transfer_reports import report_lines
from calibrant_server.workers.store.frozen_maps import PromotedMap
from calibrant_server.workers.store.key_names import (
    LAST_CHANGE,
    RECORD_SHARDS,
    Keys,
    PaneKey,
    PartitionKeys,
)
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.read_together import ReadTogether
from calibrant_server.workers.store.slice_names import is_live, is_sealed, sealed_slice
from calibrant_server.workers.store.watermarks import Watermarks, fields_of

# 3: samples as rows are stored; format 2 is that of the version before (`former_exports`).
FORMATS = (2, 3)
FORMAT = FORMATS[-1]
MODEL, MARKS, PANE, SAMPLE, BASELINE, MAP, CURRENT_MAP, RECORD, UNIT, TALLY, END = (
    *(
        "model",
        "marks",
        "pane",
        "sample",
        "baseline",
        "map",
        "current_map",
        "record",
        "unit",
        "tallies",
        "end",
    ),
)
_A_SCAN = 500
# Current states of records are counted again; past events are carried over.
CARRIED = ("conflicts", "duplicates", "expired", "expired_unlabelled")


async def export_lines(
    client: Any,
    keys: Keys,
    config: ModelConfig,
    with_records: bool,
    numerics: Numerics = Numerics(),  # noqa: B008
    *,
    with_reports: bool = False,
) -> AsyncIterator[Line]:
    """Return all lines of a model; the last one is `end`."""
    source = _Source(client, keys.of(config), config, numerics)
    before = await source.stamp()
    yield {"type": MODEL, "format": FORMAT, "configuration": json.loads(config.to_json())}
    marks = await source.texts(source.keys.marks(*source.name))
    yield {"type": MARKS, "marks": marks}
    n_lines = 2
    parts = [
        source.panes(),
        source.samples(),
        source.baselines(),
        source.maps(),
        alarm_lines(client, source.keys, config),
    ]
    if with_records:
        parts += [source.records(), source.units(), source.tallies()]
    if with_reports:
        parts.append(report_lines(client, source.keys, config))
    for part in parts:
        async for line in part:
            n_lines += 1
            yield line
    consistent = before == await source.stamp()
    left_out = {"reports": 0 if with_reports else await source.n_reports()}
    yield {"type": END, "lines": n_lines, "consistent": consistent, "left_out": left_out}


class _Source:
    """One model in a store, for the event loop."""

    def __init__(self, client: Any, keys: PartitionKeys, config: ModelConfig, numerics: Numerics):
        self.numerics = numerics
        self.client = client
        self.keys = keys
        self.config = config
        self.name = (config.key, config.generation)

    async def texts(self, name: str) -> dict[str, str]:
        return {
            field.decode(): value.decode()
            for field, value in (await self.client.hgetall(name)).items()
        }

    async def slices(self) -> list[str]:
        return sorted(
            member.decode() for member in await self.client.smembers(self.keys.slices(*self.name))
        )

    async def n_reports(self) -> int:
        """Return the number of archived reports."""
        return int(await self.client.hget(self.keys.report_archive(*self.name), "n") or 0)

    async def stamp(self) -> list[Any]:
        """Return a value that differs if related data changed."""
        slices = await self.slices()
        reads = ReadTogether()
        reads.hgetall(self.keys.marks(*self.name))
        reads.hgetall(self.keys.tallies(*self.name))
        reads.hgetall(self.keys.baselines(*self.name))
        reads.hmget(self.keys.map_versions(*self.name), ("n", "p"))
        reads.hget(self.keys.detectors(*self.name), LAST_CHANGE)
        reads.hget(self.keys.partial_cohorts, "|".join(self.name))
        for slice_ in slices:
            reads.hget(self.keys.versions(*self.name, slice_), LAST_CHANGE)
        found = await reads.run_async(self.client)
        return [slices, *found, await episodes_of(self.client, self.keys, self.config)]

    async def panes(self) -> AsyncIterator[Line]:
        for slice_ in await self.slices():
            versions = await self.texts(self.keys.versions(*self.name, slice_))
            for start in sorted(int(each) for each in versions if each != LAST_CHANGE):
                fields = await self._pane(PaneKey(*self.name, slice_, start))
                packed = {name: b64encode(value).decode() for name, value in fields.items()}
                yield {
                    "type": PANE, "slice": slice_, "start": start, "version": versions[str(start)], "packed": packed,
                }  # fmt: skip

    async def _pane(self, key: PaneKey) -> dict[str, bytes]:
        """Return a pane's sums and running totals. Rows that are not sums yet are filled in a thread."""
        replies = await pane_reads(self.keys, key).run_async(self.client)
        fields, tail = await to_thread(fields_and_tail, self.keys, key, replies)
        parts, sources = divided(fields)
        if tail and is_live(key.slice):
            pane = await to_thread(
                complete_pane, self.numerics, self.config, key.slice, parts, tail
            )
            parts = await to_thread(pane.parts)
        return dict(sorted((parts | sources).items()))

    async def samples(self) -> AsyncIterator[Line]:
        """Yield the sample of each day, of rows that are not sums yet too, and that of sealed cohorts."""
        if not self.numerics.keeps_samples:
            return
        for slice_ in (ALL_ROWS, sealed_slice(ALL_ROWS)):
            versions = await self.texts(self.keys.versions(*self.name, slice_))
            marks = await self.client.hmget(self.keys.marks(*self.name), fields_of(slice_))
            source = SampleSource(
                self.keys, self.numerics, self.config, slice_, Watermarks.read(marks)
            )
            starts = sorted(int(each) for each in versions if each != LAST_CHANGE)
            for day_s, some in by_day(starts).items():
                day = await self._day(source.steps(day_s, dict.fromkeys(some)))
                if day.rows is not None or day.halvings:
                    packed = None if day.rows is None else b64encode(day.rows.pack()).decode()
                    yield {
                        "type": SAMPLE, "sealed": is_sealed(slice_), "day": day_s,
                        "halvings": day.halvings, "packed": packed,
                    }  # fmt: skip

    async def _day(self, steps: SampleSteps) -> DaySample:
        reads = next(steps)
        while True:
            # In a thread: a sample may be in a file.
            found = await to_thread(_sent, steps, await reads.run_async(self.client))
            if isinstance(found, DaySample):
                return found
            reads = found

    async def baselines(self) -> AsyncIterator[Line]:
        for name, text in sorted((await self.texts(self.keys.baselines(*self.name))).items()):
            yield {"type": BASELINE, "name": name, "holds": json.loads(text)}

    async def maps(self) -> AsyncIterator[Line]:
        """Return frozen maps field by field, and the current one."""
        for name, text in sorted((await self.texts(self.keys.map_versions(*self.name))).items()):
            yield {"type": MAP, "field": name, "text": text}
        raw = await self.client.hget(self.keys.current_maps, self.config.key)
        if raw is not None and PromotedMap.from_bytes(raw).generation == self.config.generation:
            yield {"type": CURRENT_MAP, "text": raw.decode()}

    async def records(self) -> AsyncIterator[Line]:
        for shard in range(RECORD_SHARDS):
            async for name, packed in self._scanned(self.keys.records(*self.name, shard)):
                yield {"type": RECORD, "id": name, "packed": b64encode(packed).decode()}

    async def units(self) -> AsyncIterator[Line]:
        async for name, text in self._scanned(self.keys.unit_members(*self.name)):
            yield {"type": UNIT, "unit": name, "ids": text.decode()}

    async def tallies(self) -> AsyncIterator[Line]:
        retained = await self.texts(self.keys.tallies(*self.name))
        yield {"type": TALLY, "tallies": {name: int(retained.get(name, 0)) for name in CARRIED}}

    async def _scanned(self, name: str) -> AsyncIterator[tuple[str, bytes]]:
        """Return each field once, although a scan may return some twice while the table grows."""
        seen: set[bytes] = set()
        cursor = 0
        while True:
            cursor, fields = await self.client.hscan(name, cursor, count=_A_SCAN)
            for field in fields.keys() - seen:
                yield field.decode(), fields[field]
            seen |= fields.keys()
            if cursor == 0:
                return


def _sent(steps: SampleSteps, replies: list[Any]) -> ReadTogether | DaySample:
    """Return what to read next, or the sample; no StopIteration leaves a thread."""
    try:
        return steps.send(replies)
    except StopIteration as end:
        return DaySample(*end.value)


class StoredPane(NamedTuple):
    """A pane of a slice, `""` for all rows; `pane` as `calibrant.Pane.from_bytes` reads it."""

    slice: str
    from_s: int
    to_s: int
    counts: dict[str, int]
    pane: bytes


async def stored_panes(
    client: Any,
    keys: Keys,
    config: ModelConfig,
    numerics: Numerics = Numerics(),  # noqa: B008
) -> AsyncIterator[StoredPane]:
    """Yield the panes of each slice that batches fill, oldest first.

    Running totals and stored samples are not in them: samples are stored by day, and `export` has both.
    """
    name, own = (config.key, config.generation), keys.of(config)
    marks = await client.hgetall(own.marks(*name))
    slices = sorted(member.decode() for member in await client.smembers(own.slices(*name)))
    for slice_ in filter(is_live, slices):
        found = Watermarks.of(slice_, marks)
        versions = await client.hkeys(own.versions(*name, slice_))
        for start in sorted(int(each) for each in versions if each.decode() != LAST_CHANGE):
            key = PaneKey(*name, slice_, start)
            replies = await pane_reads(own, key).run_async(client)
            fields, tail = await to_thread(fields_and_tail, own, key, replies)
            parts, _ = divided(fields)
            pane = await to_thread(complete_pane, numerics, config, slice_, parts, tail)
            packed = await to_thread(pane.pack)
            end = start + found.length(start, config.pane_s)
            yield StoredPane(slice_, start, end, pane.counts, packed)
