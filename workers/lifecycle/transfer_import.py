"""Import of an export's lines: one piece per commit.

Until the last piece arrives, the model is partly imported. It is not readable, does not age, and only the same import can
continue it. The batch id of a piece is made of the import's content, so that a repeat of the import finds the stored pieces
and continues with the others.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import numpy as np

from calibrant.accumulators.sample import MAX_PANE_BYTES, WINDOW_BYTES, Sample
from calibrant.core.packing import MAGIC, PackingError
from calibrant.core.routing import pane_start
from calibrant.core.sampled_rows import is_possible
from calibrant_server.workers.alarm.alarm_transfer import KINDS as ALARM_KINDS
from calibrant_server.workers.alarm.alarm_transfer import AlarmLines
from calibrant_server.workers.ingest.commit_group import Item
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.ingest.record_store import TALLIES, note, tallies_of
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.ingest.sample_cache import SampleCache, SampleKey
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.lifecycle.export_shapes import Line, shaped
from calibrant_server.workers.lifecycle.former_exports import former_sample
from calibrant_server.workers.lifecycle.transfer import (
    BASELINE,
    CARRIED,
    MAP,
    MARKS,
    PANE,
    RECORD,
    SAMPLE,
    TALLY,
    UNIT,
)
from calibrant_server.workers.lifecycle.transfer_maps import check_map_line
from calibrant_server.workers.lifecycle.transfer_reports import REPORT, put_report
from calibrant_server.workers.segments.rows import Rows
from calibrant_server.workers.segments.sampled import sampled_rows
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.key_names import (
    LAST_CHANGE,
    SOURCE_FIELD,
    PaneKey,
    PartitionKeys,
    with_tenant,
)
from calibrant_server.workers.store.watermarks import SEALED_TO


class ModelImport:
    """Writer of an export's lines into an empty model."""

    def __init__(
        self,
        node: Any,
        keys: PartitionKeys,
        fencing: FencingToken,
        numerics: Numerics,
        sample_bytes: int = MAX_PANE_BYTES,
    ):
        self._node = node
        self._keys = keys
        self._fencing = fencing
        self._numerics = numerics
        self._sample_bytes = sample_bytes
        self._put: dict[str, Callable[[Line], None]] = {
            MARKS: self._marks,
            PANE: self._pane,
            SAMPLE: self._sample,
            BASELINE: self._baseline,
            MAP: self._map,
            RECORD: self._record,
            UNIT: self._unit,
            TALLY: self._tally,
            REPORT: lambda line: put_report(line, self._keys, self._config, self._commit),
            **dict.fromkeys(ALARM_KINDS, lambda line: self._alarm.put(line, self._commit)),
        }

    def apply(self, item: Item, commit: Commit, token: bytes) -> None:
        """Write an entry's lines into a commit; reject an item that would overwrite anything."""
        assert item.entry is not None and item.config is not None
        self._config = item.config
        self._name = (item.config.key, item.config.generation)
        self._commit, self._token = commit, token
        self._alarm = AlarmLines(self._node, self._keys, item.config)
        self._samples = SampleCache(self._node, self._keys, self._sample_bytes)
        self._tallies = dict.fromkeys(TALLIES, 0)
        try:
            lines = [shaped(json.loads(line)) for line in item.entry.payload.split(b"\n")]
            if item.config.importing is None or not self._finds_room(lines):
                item.reject("not_empty", "something else has been merged into the model meanwhile")
                return
            marks = next((line["marks"] for line in lines if line["type"] == MARKS), None)
            sealed_to = (
                self._node.hget(self._keys.marks(*self._name), SEALED_TO)
                if marks is None
                else marks.get(SEALED_TO)
            )
            self._sealed_to = int(sealed_to or 0)
            for line in lines:
                self._put[line["type"]](line)
        except (KeyError, TypeError, AttributeError) as error:
            raise EntryError(f"a line of an export cannot be read: {error!r}") from error
        self._samples.commit_with(commit, token)
        commit.add_numbers(self._keys.tallies(*self._name), self._tallies)
        retained = {name: self._tallies[name] for name in ("records", "bytes")}
        commit.add_numbers(self._keys.retained, with_tenant(item.config.key, retained))
        item.n = len(lines)

    def _finds_room(self, lines: list[Line]) -> bool:
        with self._node.pipeline(transaction=False) as pipe:
            for line in lines:
                if line["type"] == PANE:
                    key = PaneKey(*self._name, line["slice"], int(line["start"]))
                    pipe.exists(self._keys.pane(key), self._keys.tail(key))
                elif line["type"] == RECORD:
                    pipe.hexists(self._keys.record_hash(*self._name, line["id"]), line["id"])
            return not any(pipe.execute())

    def _marks(self, line: Line) -> None:
        marks = {str(name): str(int(value)) for name, value in line["marks"].items()}
        if marks:
            self._commit.set_fields(self._keys.marks(*self._name), marks)

    def _baseline(self, line: Line) -> None:
        holds = json.dumps(line["holds"]).encode()
        self._commit.set_fields(self._keys.baselines(*self._name), {line["name"]: holds})

    def _map(self, line: Line) -> None:
        field, text = line["field"], line["text"]
        check_map_line(field, text, self._config)
        self._commit.set_fields(self._keys.map_versions(*self._name), {field: text.encode()})

    def _unit(self, line: Line) -> None:
        members = {line["unit"]: line["ids"].encode()}
        self._commit.set_fields(self._keys.unit_members(*self._name), members)

    def _tally(self, line: Line) -> None:
        for name in CARRIED:
            self._tallies[name] += int(line["tallies"].get(name, 0))

    def _record(self, line: Line) -> None:
        name, packed = line["id"], b64decode(line["packed"], validate=True)
        record = Records.read([packed])
        counted = tallies_of([name], record, np.zeros(1, np.int64), [packed])
        for state, n in counted.items():
            self._tallies[state] += n
        if record.has_prediction[0] and self._config.label_horizon_s is not None:
            start = pane_start(int(record.predictions.event_us[0]), self._config.pane_s)
            if start >= self._sealed_to:
                note(self._commit, self._keys, self._config, {start: [name]})
        self._commit.set_fields(self._keys.record_hash(*self._name, name), {name: packed})

    def _pane(self, line: Line) -> None:
        slice_, start = str(line["slice"]), int(line["start"])
        fields = {name: b64decode(value, validate=True) for name, value in line["packed"].items()}
        parts = {name: value for name, value in fields.items() if not name.startswith(SOURCE_FIELD)}
        # Read here, so that nothing enters the store that no query could read.
        self._numerics.pane.from_parts(self._numerics.spec(self._config), parts)
        if fields:
            self._commit.set_fields(self._keys.pane(PaneKey(*self._name, slice_, start)), fields)
        versions = self._keys.versions(*self._name, slice_)
        version = {str(start): str(line["version"]), LAST_CHANGE: self._token}
        self._commit.set_fields(versions, version)
        self._commit.add_member(self._keys.slices(*self._name), slice_)

    def _sample(self, line: Line) -> None:
        """Add the sample of a day; raise PackingError where it is damaged."""
        if not (self._numerics.keeps_samples and self._samples.max_bytes):
            return
        sample_of_day = self._samples[SampleKey(*self._name, line["day"], line["sealed"])]
        if line["packed"] is None:
            sample_of_day.fall_to(line["halvings"])
            return
        spec, packed = self._numerics.spec(self._config), b64decode(line["packed"], validate=True)
        is_former = packed.startswith(MAGIC)
        rows = former_sample(packed, spec.task) if is_former else Rows.unpack(packed)
        if rows.scores.n_classes != spec.n_classes or (rows.fixed["count"] < 1).any():
            raise PackingError("Received a sample of another model.")
        if not is_possible(Sample.of_rows(spec, sampled_rows(rows), 0, WINDOW_BYTES).rows):
            raise PackingError("Received a sample with invalid predictions.")
        sample_of_day.add(rows, line["halvings"])
