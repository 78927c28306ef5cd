"""Panes of a model one after the other, each complete: its sums and the rows that are not sums yet."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.stored_panes import (
    complete_pane,
    divided,
    fields_and_tail,
    pane_reads,
)
from calibrant_server.workers.store.keys import LAST_CHANGE, Keys, PaneKey
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.slice_names import is_live
from calibrant_server.workers.store.watermarks import Watermarks


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
