"""One entry into panes: decode, find its panes, fill deltas. Knows no store.

The numbers are made by the ground floor's classes, which come in through `Ground`, so that tests of exactly-once can
count in integers instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from workers.entries import HISTOGRAMS, PANE, PREDICTIONS, Entry, EntryError, Update, unpack_updates
from workers.state.keys import PaneKey
from workers.state.registry import ModelConfig
from workers.windows import ALL_ROWS, PaneRef, pane_start, panes_of


@dataclass(frozen=True)
class Ground:
    """The classes that make numbers.

    Attributes
    ----------
    batch, pane, histogram : `calibrant.Batch`, `calibrant.Pane`, `calibrant.Histogram` or what behaves like them
    spec : what a model's panes are made of
    path : `module:function` that makes this very object in another process
    """

    batch: Any
    pane: Any
    histogram: Any
    spec: Callable[[ModelConfig], Any] = ModelConfig.spec
    path: str = "workers.filling:ground"


def ground() -> Ground:
    """The classes of the ground floor."""
    from calibrant.batch import Batch
    from calibrant.histogram import Histogram
    from calibrant.pane import Pane

    return Ground(Batch, Pane, Histogram)


def ground_at(path: str) -> Ground:
    """The ground that `module:function` makes."""
    module, name = path.split(":")
    return getattr(import_module(module), name)()


@dataclass(frozen=True)
class Claim:
    """A running total that replaces an earlier one of the same name, if it is newer."""

    pane: PaneKey
    name: str
    update: Update


@dataclass
class Reduction:
    """What entries add: a delta a pane, and claims that need the state to be judged."""

    deltas: dict[PaneKey, Any] = field(default_factory=dict)
    claims: list[tuple[str, Claim]] = field(default_factory=list)
    touched: set[PaneKey] = field(default_factory=set)

    def delta(self, key: PaneKey, config: ModelConfig, ground: Ground) -> Any:
        """The delta of a pane, begun if need be."""
        pane = self.deltas.get(key)
        if pane is None:
            pane = self.deltas[key] = ground.pane(ground.spec(config))
            self.touched.add(key)
        return pane


def reduce_entry(entry: Entry, config: ModelConfig, ground: Ground, into: Reduction) -> int:
    """Fill an entry into the deltas of a reduction; returns the number of predictions (or updates).

    Any exception leaves `into` half filled: the caller begins anew without the entry.
    """
    return _KINDS[entry.kind](entry, config, ground, into)


def _predictions(entry: Entry, config: ModelConfig, ground: Ground, into: Reduction) -> int:
    batch = ground.batch.unpack(entry.payload)
    for ref, rows in panes_of(batch, config, entry.received_at).items():
        part = batch if rows is None else batch.take(rows)
        into.delta(_key(config, ref), config, ground).fill(part)
    return batch.n


def _histograms(entry: Entry, config: ModelConfig, ground: Ground, into: Reduction) -> int:
    updates = unpack_updates(entry.payload)
    for update in updates:
        histogram = ground.histogram.unpack(update.packed)
        for ref in _refs(histogram.event_time, dict(histogram.slice), entry, config):
            key = _key(config, ref)
            if update.is_cumulative:
                into.claims.append((entry.id, Claim(key, _total_name(histogram, update), update)))
                into.touched.add(key)
            else:
                into.delta(key, config, ground).fill_histogram(histogram)
    return len(updates)


def _pane(entry: Entry, config: ModelConfig, ground: Ground, into: Reduction) -> int:
    updates = unpack_updates(entry.payload)
    for update in updates:
        if update.is_cumulative:
            raise EntryError("a packed pane cannot be a running total")
        pane = ground.pane.unpack(update.packed)
        for ref in _refs(update.event_time_us, update.slices or {}, entry, config):
            into.delta(_key(config, ref), config, ground).merge(pane)
    return len(updates)


_KINDS = {PREDICTIONS: _predictions, HISTOGRAMS: _histograms, PANE: _pane}


def _total_name(histogram: Any, update: Update) -> str:
    """Which running totals of a pane replace each other: an epoch's, of one source, about one thing."""
    return f"{update.source}|{update.epoch}|{histogram.key}|{histogram.case or ''}"


def _refs(
    event_time_us: int | None, slices: dict[str, str], entry: Entry, config: ModelConfig
) -> list[PaneRef]:
    at_us = entry.received_ms * 1000 if event_time_us is None else event_time_us
    start = pane_start(at_us, config.pane_s)
    named = [f"{key}:{value}" for key, value in sorted(slices.items())]
    return [PaneRef(name, start) for name in (ALL_ROWS, *named)]


def _key(config: ModelConfig, ref: PaneRef) -> PaneKey:
    return PaneKey(config.key, config.generation, ref.slice, ref.start_s)
