"""Import of an export's lines: one piece per commit.

Until the last piece arrives, the model is partly imported. It is not readable, does not age, and only the same import can
continue it. The batch id of a piece is made of the import's content, so that a repeat of the import finds the stored pieces
and continues with the others.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.accumulators.sample import MAX_PANE_BYTES
from calibrant.core.routing import pane_start
from calibrant_server.workers.alarm.alarm_transfer import KINDS as ALARM_KINDS
from calibrant_server.workers.alarm.alarm_transfer import AlarmLines
from calibrant_server.workers.ingest.commit_group import Item
from calibrant_server.workers.ingest.entries import EntryError
from calibrant_server.workers.ingest.pane_ids import note
from calibrant_server.workers.ingest.record_store import TALLIES, tallies_of
from calibrant_server.workers.ingest.reduce import Numerics
from calibrant_server.workers.join.records import Records
from calibrant_server.workers.lifecycle.export_shapes import Line, shaped
from calibrant_server.workers.lifecycle.sample_import import ImportedSamples
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
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.keys import (
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

    def apply(self, item: Item, commit: Commit, token: bytes) -> None:
        """Write an entry's lines into a commit; reject an item that would overwrite anything."""
        assert item.entry is not None and item.config is not None
        self._config = item.config
        self._name = (item.config.key, item.config.generation)
        self._alarm = AlarmLines(self._node, self._keys, item.config)
        self._samples = ImportedSamples(
            self._node, self._keys, self._numerics, item.config, self._sample_bytes
        )
        tallies = dict.fromkeys(TALLIES, 0)
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
                self._line(line, commit, token, tallies)
        except (KeyError, TypeError, AttributeError) as error:
            raise EntryError(f"a line of an export cannot be read: {error!r}") from error
        self._samples.write(commit, token)
        commit.add_numbers(self._keys.tallies(*self._name), tallies)
        retained = {name: tallies[name] for name in ("records", "bytes")}
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

    def _line(
        self, line: Mapping[str, Any], commit: Commit, token: bytes, tallies: dict[str, int]
    ) -> None:
        kind = line["type"]
        if kind == PANE:
            self._pane(line, commit, token)
        elif kind == SAMPLE:
            self._samples.line(line)
        elif kind == MARKS:
            marks = {str(name): str(int(value)) for name, value in line["marks"].items()}
            if marks:
                commit.set_fields(self._keys.marks(*self._name), marks)
        elif kind == BASELINE:
            holds = json.dumps(line["holds"]).encode()
            commit.set_fields(self._keys.baselines(*self._name), {line["name"]: holds})
        elif kind == RECORD:
            self._record(line["id"], b64decode(line["packed"], validate=True), commit, tallies)
        elif kind == MAP:
            field, text = line["field"], line["text"]
            check_map_line(field, text, self._config)
            commit.set_fields(self._keys.map_versions(*self._name), {field: text.encode()})
        elif kind == REPORT:
            put_report(line, self._keys, self._config, commit)
        elif kind in ALARM_KINDS:
            self._alarm.put(line, commit)
        elif kind == UNIT:
            commit.set_fields(
                self._keys.unit_members(*self._name), {line["unit"]: line["ids"].encode()}
            )
        elif kind == TALLY:
            for name in CARRIED:
                tallies[name] += int(line["tallies"].get(name, 0))

    def _record(self, name: str, packed: bytes, commit: Commit, tallies: dict[str, int]) -> None:
        record = Records.read([packed])
        counted = tallies_of([name], record, np.zeros(1, np.int64), [packed])
        for state, n in counted.items():
            tallies[state] += n
        if record.has_prediction[0] and self._config.label_horizon_s is not None:
            start = pane_start(int(record.predictions.event_us[0]), self._config.pane_s)
            if start >= self._sealed_to:
                note(commit, self._keys, self._config, {start: [name]})
        commit.set_fields(self._keys.record_hash(*self._name, name), {name: packed})

    def _pane(self, line: Mapping[str, Any], commit: Commit, token: bytes) -> None:
        slice_, start = str(line["slice"]), int(line["start"])
        fields = {name: b64decode(value, validate=True) for name, value in line["packed"].items()}
        parts = {name: value for name, value in fields.items() if not name.startswith(SOURCE_FIELD)}
        # Read here, so that nothing enters the store that no query could read.
        self._numerics.pane.from_parts(self._numerics.spec(self._config), parts)
        if fields:
            commit.set_fields(self._keys.pane(PaneKey(*self._name, slice_, start)), fields)
        versions = self._keys.versions(*self._name, slice_)
        commit.set_fields(versions, {str(start): str(line["version"]), LAST_CHANGE: token})
        commit.add_member(self._keys.slices(*self._name), slice_)
