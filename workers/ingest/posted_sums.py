"""Reduction of posted panes and histograms: they become deltas of the stored sums, not rows.

A running total becomes a claim: which part of it is new depends on the stored total of the same source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibrant.core.histogram import Histogram
from calibrant.core.pane import Pane
from calibrant.core.routing import ALL_ROWS, Place, pane_start
from calibrant_server.workers.ingest.entries import EntryError, IngestEntry
from calibrant_server.workers.ingest.payloads import PackedUpdate, unpack_updates
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import of_sample
from calibrant_server.workers.store.key_names import PaneKey
from calibrant_server.workers.store.model_config import ModelConfig

if TYPE_CHECKING:
    from calibrant_server.workers.ingest.reduce import Numerics, Reduction


@dataclass(frozen=True)
class Claim:
    """A running total that replaces an earlier one of the same name, if it is newer.

    Attributes
    ----------
    is_pane : whether it is a packed pane; else a packed histogram
    """

    pane: PaneKey
    name: str
    update: PackedUpdate
    is_pane: bool = False


@dataclass(frozen=True)
class LiftedSample:
    """Sample of a posted pane, to be stored once for its model and day.

    Attributes
    ----------
    key : pane of all rows of its time slice
    """

    key: PaneKey
    rows: Rows
    halvings: int

    @classmethod
    def of(cls, pane: Pane, keys: Sequence[PaneKey]) -> LiftedSample:
        """Return the sample of a posted pane; the first key is that of all rows, each other that of a slice."""
        pairs = [key.slice.partition(":") for key in keys[1:]]
        slices = {name: value for name, _, value in pairs}
        rows = of_sample(pane.sample, keys[0].start_s, slices)
        return cls(keys[0], rows, pane.sample.halvings)


def reduce_histograms(
    entry: IngestEntry, config: ModelConfig, numerics: Numerics, into: Reduction
) -> int:
    updates = unpack_updates(entry.payload)
    for update in updates:
        histogram = numerics.histogram.unpack(update.packed)
        at_us = histogram.event_time if update.event_time_us is None else update.event_time_us
        sent = update.slices or dict(histogram.slice)
        for place in _places(at_us, sent, entry, config, into):
            key = config.pane_key(place)
            if update.is_cumulative:
                name = _total_name(histogram, update, sent)
                into.claims.append((entry.id, Claim(key, name, update)))
            else:
                into.delta(key, config, numerics).fill_histogram(histogram)
    return len(updates)


def reduce_pane(
    entry: IngestEntry, config: ModelConfig, numerics: Numerics, into: Reduction
) -> int:
    updates = unpack_updates(entry.payload)
    for update in updates:
        pane = numerics.pane.unpack(update.packed)
        sent = update.slices or {}
        places = _places(update.event_time_us, sent, entry, config, into)
        if update.is_cumulative:
            if numerics.keeps_samples and pane.keeps("sample") and not pane.sample.is_empty:
                raise EntryError("a running total has a sample of rows, which cannot be replaced")
            name = _name(update, "pane", sent)
            for place in places:
                key = config.pane_key(place)
                into.claims.append((entry.id, Claim(key, name, update, is_pane=True)))
            continue
        if numerics.keeps_samples and pane.keeps("sample") and not pane.sample.is_empty:
            into.lifted.append(LiftedSample.of(pane, [config.pane_key(place) for place in places]))
        for place in places:
            into.delta(config.pane_key(place), config, numerics).merge(pane)
    return len(updates)


def _total_name(histogram: Histogram, update: PackedUpdate, slices: dict[str, str]) -> str:
    """Return the name under which running totals replace each other: source, epoch, subject and slices."""
    return _name(update, f"{histogram.key}|{_escaped(histogram.case or '')}", slices)


def _escaped(name: str) -> str:
    """Return a name in which the separator of names is doubled."""
    return name.replace("|", "||")


def _name(update: PackedUpdate, subject: str, slices: dict[str, str]) -> str:
    named = "".join(f"|{_escaped(key)}:{_escaped(value)}" for key, value in sorted(slices.items()))
    return f"{update.source}|{update.epoch}|{subject}{named}"


def _places(
    event_time_us: int | None,
    slices: dict[str, str],
    entry: IngestEntry,
    config: ModelConfig,
    into: Reduction,
) -> list[Place]:
    at_us = entry.received_ms * 1000 if event_time_us is None else event_time_us
    start = pane_start(at_us, config.pane_s)
    counted = into.reads.names.pairs(config, slices)
    other = into.other.setdefault(entry.id, {})
    for key in (key for key, name in counted.items() if name != slices[key]):
        other[key] = other.get(key, 0) + 1
    return [Place(name, start) for name in (ALL_ROWS, *(f"{k}:{v}" for k, v in counted.items()))]
