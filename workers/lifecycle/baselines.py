"""Baselines: windows frozen permanently under a name, for comparisons.

A stream entry makes a baseline, so that it contains exactly what was merged before that entry, whichever worker reads it.
It is stored as one pane under its own slice name. It neither ages nor changes, and is removed with its model or by name. The
baseline `reference` also has the panes of its days, if its rows or its window have them: the rule of change compares live data with days.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from calibrant.accumulators.sample import MAX_PANE_BYTES, Sample
from calibrant_server.workers.ingest.baseline_samples import START_S
from calibrant_server.workers.ingest.commit_group import Item
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.reference import MIN_DAYS
from calibrant_server.workers.ingest.sample_reading import SampleSource, by_day, merged_sample
from calibrant_server.workers.ingest.stored_panes import read_pane
from calibrant_server.workers.queries.versions import panes_in
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.key_names import LAST_CHANGE, PaneKey, PartitionKeys
from calibrant_server.workers.store.model_config import BaselineRecord, ModelConfig
from calibrant_server.workers.store.slice_names import (
    REFERENCE,
    baseline_slice,
    reference_days_slice,
)
from calibrant_server.workers.store.watermarks import DAY_S, Watermarks, day_of
from calibrant_server.workers.store.windows import Window

MAX_BASELINES = 100
MAX_DAYS = 120  # of a reference that count as days: each costs a pane
SAMPLE, ANY_TIME = "sample", Window(START_S, 1 << 60)
_DEFINITION = ("slice", "clock", "window", "content")
Panes = dict[int, Any]  # by start


class _Requested(TypedDict):
    """A baseline as an entry requests it: of the slice `stored` whose panes are merged, or of what `packed` holds in base64."""

    slice: str | None
    clock: str
    window: list[int]
    stored: NotRequired[str]
    kind: NotRequired[Literal["rows", "pane"]]
    packed: NotRequired[str]
    content: NotRequired[str]


class BaselineMaker:
    """Maker and remover of the baselines of one partition."""

    def __init__(self, node: Any, keys: PartitionKeys, fencing: FencingToken, numerics: Numerics):
        self._node = node
        self._keys = keys
        self._fencing = fencing
        self._numerics = numerics

    def apply(self, item: Item, commit: Commit, token: bytes) -> None:
        """Write the effects of an entry into a commit and its outcome into the item."""
        assert item.entry is not None and item.config is not None
        try:
            requested = json.loads(item.entry.payload)
            name, op = str(requested["name"]), requested["op"]
        except (ValueError, KeyError, TypeError) as error:
            raise EntryError(f"the entry of a baseline cannot be read: {error}") from error
        existing = self._node.hgetall(self._keys.baselines(item.config.key, item.config.generation))
        if op == "remove":
            self._remove(item.config, name, commit, token)
        elif name.encode() in existing:
            self._repeat(item, requested, json.loads(existing[name.encode()]))
        elif len(existing) >= MAX_BASELINES:
            item.reject(
                "too_many_baselines",
                f"The model has {MAX_BASELINES} baselines, the maximum. Delete one first.",
                "/name",
            )
        else:
            self._freeze(item, name, requested, commit, token)

    def _repeat(self, item: Item, requested: _Requested, known: BaselineRecord) -> None:
        if any(requested.get(each) != known.get(each) for each in _DEFINITION):
            detail = "A baseline of this name has another window, and baselines do not change. Use another name, or delete it first."
            item.reject("baseline_exists", detail, "/name")

    def _freeze(
        self, item: Item, name: str, requested: _Requested, commit: Commit, token: bytes
    ) -> None:
        config = item.config
        assert config is not None and item.entry is not None
        model = (config.key, config.generation)
        if "packed" in requested:
            pane, days = self._posted(config, requested, name == REFERENCE)
        else:
            window = Window(*requested["window"])
            pane, days = self._merged(config, requested["stored"], window, name == REFERENCE)
        self._write(config, baseline_slice(name), {START_S: pane}, commit, token)
        if MIN_DAYS <= len(days) <= MAX_DAYS:
            self._write(config, reference_days_slice(), days, commit, token)
        self._note_change(config, name, commit, token)
        counts = getattr(pane, "counts", {})
        stored: BaselineRecord = {
            "slice": requested["slice"],
            "clock": requested["clock"],
            "window": requested["window"],
            "created_ms": item.entry.received_ms,
            "counts": counts,
        }
        if "content" in requested:
            stored["content"] = requested["content"]
        commit.set_fields(self._keys.baselines(*model), {name: json.dumps(stored).encode()})

    def _write(
        self, config: ModelConfig, slice_: str, panes: Panes, commit: Commit, token: bytes
    ) -> None:
        model = (config.key, config.generation)
        for start_s, pane in panes.items():
            parts = pane.parts()
            if start_s != START_S:
                parts.pop(SAMPLE, None)  # the baseline has that of all days
            if parts:
                commit.set_fields(self._keys.pane(PaneKey(*model, slice_, start_s)), parts)
        versions = dict.fromkeys((*map(str, panes), LAST_CHANGE), token)
        commit.set_fields(self._keys.versions(*model, slice_), versions)
        commit.add_member(self._keys.slices(*model), slice_)

    def _posted(
        self, config: ModelConfig, requested: _Requested, with_days: bool
    ) -> tuple[Any, Panes]:
        """Return the pane of posted predictions and, if wanted, those of their days; or the posted pane."""
        data = b64decode(requested["packed"], validate=True)
        if requested["kind"] == "pane":
            return self._numerics.pane.unpack(data), {}
        batch = self._numerics.batch.unpack(data)
        times = batch.event_times
        of_day = {} if times is None or not with_days else _rows_by_day(times)
        days = {day_s: self._filled(config, batch.take(rows)) for day_s, rows in of_day.items()}
        return self._filled(config, batch), days

    def _filled(self, config: ModelConfig, batch: Any) -> Any:
        pane = self._numerics.pane(self._numerics.spec(config))
        pane.fill_batch(batch)
        return pane

    def _merged(
        self, config: ModelConfig, slice_: str, window: Window, with_days: bool
    ) -> tuple[Any, Panes]:
        """Return the merge of the panes of a window and, if wanted, that of each of its days."""
        model = (config.key, config.generation)
        marks = Watermarks.of(slice_, self._node.hgetall(self._keys.marks(*model)))
        found = self._node.hgetall(self._keys.versions(*model, slice_))
        spec = self._numerics.spec(config)
        merged = self._numerics.empty(spec)
        starts = list(panes_in(found, marks.widened(window)))
        of_days: Panes = {}
        for start in starts:
            key = PaneKey(*model, slice_, start)
            pane = read_pane(self._node, self._keys, self._numerics, config, key)[0]
            merged.merge(pane)
            if with_days:
                of_days.setdefault(day_of(start), self._numerics.empty(spec)).merge(pane)
        if self._numerics.keeps_samples and Sample.applies(spec):
            source = SampleSource(self._keys, self._numerics, config, slice_, marks)
            days = (
                source.day(self._node, day_s, dict.fromkeys(some))
                for day_s, some in by_day(starts).items()
            )
            merged.replace_sample(merged_sample(spec, days, MAX_PANE_BYTES))
        return merged, of_days

    def _note_change(self, config: ModelConfig, name: str, commit: Commit, token: bytes) -> None:
        """Have the verdict computed again if the past of the model is another one."""
        if name == REFERENCE:
            detectors = self._keys.detectors(config.key, config.generation)
            commit.set_fields(detectors, {LAST_CHANGE: token})

    def _remove(self, config: ModelConfig, name: str, commit: Commit, token: bytes) -> None:
        model = (config.key, config.generation)
        for slice_ in (baseline_slice(name), *[reference_days_slice()] * (name == REFERENCE)):
            versions = self._keys.versions(*model, slice_)
            for start_s in panes_in(self._node.hgetall(versions), ANY_TIME):
                commit.unlink(self._keys.pane(PaneKey(*model, slice_, start_s)))
            commit.unlink(versions)
            commit.remove_member(self._keys.slices(*model), slice_)
        commit.drop_fields(self._keys.baselines(*model), [name])
        self._note_change(config, name, commit, token)


def _rows_by_day(times_us: Any) -> dict[int, Any]:
    """Return the rows of each UTC day, by its start in seconds."""
    day = times_us // (DAY_S * 10**6) * DAY_S
    return {int(each): np.flatnonzero(day == each) for each in np.unique(day)[: MAX_DAYS + 1]}
