"""A model's alarm as lines of an export, and its removal: detectors, cohort results, units of earlier cohorts, episodes.

Deliveries to receivers are not exported: each is made once. An episode's id names its partition, which may differ in the
store that imports it.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from math import exp
from struct import Struct
from typing import Any

from calibrant.core.packing import unpack
from calibrant.drift.unit_tables import UnitTable
from calibrant_server.workers.alarm.alarm_settings import ActiveMap, AlarmSettings
from calibrant_server.workers.alarm.alarm_state import AlarmState
from calibrant_server.workers.alarm.cohorts import (
    MAX_UNITS,
    UNIT_BYTES,
    CohortResult,
    PartialCohort,
    units_key,
)
from calibrant_server.workers.alarm.deliveries import WebhookDelivery
from calibrant_server.workers.alarm.detectors import MAX_BYTES, Detector
from calibrant_server.workers.alarm.episodes import (
    LAST_NUMBER,
    Episode,
    partition_in,
    read_episodes,
)
from calibrant_server.workers.store.commit import Commit, FencingToken
from calibrant_server.workers.store.key_names import ACTIVE_MAP, LAST_CHANGE, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig

DETECTOR, COHORT_RESULTS, PARTIAL_COHORT = "detector", "looks", "gathered"
EPISODE, SUMMARY, CHANGE = "episode", "alarm_summary", "alarm_change"
MAP, UNITS = "alarm_map", "alarm_units"
KINDS = frozenset({DETECTOR, COHORT_RESULTS, PARTIAL_COHORT, EPISODE, SUMMARY, CHANGE, MAP, UNITS})
Fields = dict[bytes, bytes]
# A hash of the store, and what is written into it.
Written = tuple[str, Mapping[str, bytes | str]]
# Exports of versions with another statistic than the rule of change.
FORMER, _FORMER_HEAD = 1, Struct("<Bdddd")
_COUNTERS = ("begun", "last", "episode", "map_version", "n_passed", "why_passed", "units", "n_left_out")  # fmt: skip


async def alarm_lines(
    client: Any, keys: PartitionKeys, config: ModelConfig
) -> AsyncIterator[dict[str, Any]]:
    """Return all lines of a model's alarm."""
    name = (config.key, config.generation)
    detectors: Fields = await client.hgetall(keys.detectors(*name))
    if LAST_CHANGE.encode() in detectors:
        yield {"type": CHANGE, "version": detectors.pop(LAST_CHANGE.encode()).decode()}
    if ACTIVE_MAP.encode() in detectors:
        yield {"type": MAP, "holds": json.loads(detectors.pop(ACTIVE_MAP.encode()))}
    for field, packed in sorted(detectors.items()):
        detector = field.decode()
        yield {"type": DETECTOR, "name": detector, "of": config.key, "packed": _text(packed)}
        results = await client.hgetall(keys.cohort_results(*name, detector))
        if results:
            yield {"type": COHORT_RESULTS, "detector": detector, "looks": _by_cohort(results)}
    units = await client.hgetall(units_key(keys, *name))
    if units:
        yield {"type": UNITS, "by_cohort": _by_cohort(units)}
    partial_cohort = await client.hget(keys.partial_cohorts, "|".join(name))
    if partial_cohort is not None:
        yield {"type": PARTIAL_COHORT, "packed": _text(partial_cohort)}
    for text in await episodes_of(client, keys, config):
        yield {"type": EPISODE, "holds": json.loads(text)}
    summary = json.loads(await client.hget(keys.summaries, config.key) or "{}")
    if summary.get("generation") == config.generation:
        yield {"type": SUMMARY, "holds": summary}


async def episodes_of(client: Any, keys: PartitionKeys, config: ModelConfig) -> list[bytes]:
    """Return the episodes of a generation by id."""
    found: Fields = await client.hgetall(keys.episodes)
    own = config.key, config.generation
    stored = (
        (text, Episode.from_json(text))
        for name, text in sorted(found.items())
        if name != LAST_NUMBER.encode()
    )
    return [text for text, each in stored if each.of == own]


def _text(packed: bytes) -> str:
    return b64encode(packed).decode()


def _packed(text: str) -> bytes:
    return b64decode(text, validate=True)


def _by_cohort(found: Fields) -> dict[str, str]:
    return {start.decode(): _text(found[start]) for start in sorted(found, key=int)}


def _detector_of(data: bytes, config: ModelConfig) -> Detector:
    """Read a detector; of the former statistic its counters only, because the tables are evaluated again at the next cohort."""
    arrays, about = unpack(data, largest=MAX_BYTES)
    if about.get("alarm") != FORMER:
        return Detector.unpack(data)
    counters = {name: about[name] for name in _COUNTERS if name in about}
    return Detector(AlarmSettings.of(config).made_of, **counters, total=UnitTable(*arrays["total"]))


def _result_of(cohort: int, data: bytes) -> CohortResult:
    """Read a cohort result; of the former statistic its tables and its level."""
    if not data or data[0] != FORMER:
        return CohortResult.unpack(cohort, data)
    *_, log_threshold, _ = _FORMER_HEAD.unpack_from(data)
    head = CohortResult.head_of(1.0, exp(-log_threshold))
    return CohortResult.unpack(cohort, head + zlib.compress(zlib.decompress(data[_FORMER_HEAD.size :]), 1))  # fmt: skip


class AlarmLines:
    """Writer of lines of an alarm into a commit."""

    def __init__(self, node: Any, keys: PartitionKeys, config: ModelConfig):
        self._state, self._keys, self._config = AlarmState(node, keys, config), keys, config
        self._name = (config.key, config.generation)

    def put(self, line: Mapping[str, Any], commit: Commit) -> None:
        """Write one line of `KINDS`, each by the method of its name; raise PackingError if it is not a line of an alarm."""
        commit.set_fields(*getattr(self, f"_{line['type']}")(line))

    def _alarm_change(self, line: Mapping[str, Any]) -> Written:
        return self._of_detectors(LAST_CHANGE, line["version"])

    def _of_detectors(self, field: str, value: bytes | str) -> Written:
        return self._keys.detectors(*self._name), {field: value}

    def _detector(self, line: Mapping[str, Any]) -> Written:
        detector = _detector_of(_packed(line["packed"]), self._config)
        if detector.episode is not None:
            detector = replace(detector, episode=self._id(detector.episode, line["of"]))
        return self._of_detectors(str(line["name"]), detector.pack())

    def _looks(self, line: Mapping[str, Any]) -> Written:
        found = [_result_of(int(start), _packed(text)) for start, text in line["looks"].items()]
        key = self._keys.cohort_results(*self._name, str(line["detector"]))
        return key, {str(each.cohort): each.pack() for each in found}

    def _alarm_map(self, line: Mapping[str, Any]) -> Written:
        version, until_s = line["holds"]["version"], line["holds"]["fitted_to_s"]
        active_map = ActiveMap(None if version is None else str(version), until_s)
        return self._of_detectors(ACTIVE_MAP, active_map.to_json())

    def _alarm_units(self, line: Mapping[str, Any]) -> Written:
        found = {str(int(start)): _packed(text) for start, text in line["by_cohort"].items()}
        n_bytes = [len(packed) for packed in found.values()]
        if any(each % UNIT_BYTES for each in n_bytes) or sum(n_bytes) > MAX_UNITS * UNIT_BYTES:
            raise ValueError(
                f"units of cohorts are at most {MAX_UNITS} hashes of {UNIT_BYTES} bytes"
            )
        return units_key(self._keys, *self._name), found

    def _gathered(self, line: Mapping[str, Any]) -> Written:
        cohort = PartialCohort.unpack(_packed(line["packed"]))
        return self._keys.partial_cohorts, {"|".join(self._name): cohort.pack()}

    def _alarm_summary(self, line: Mapping[str, Any]) -> Written:
        summary = {"p": {}, **line["holds"]}
        return self._keys.summaries, {self._config.key: json.dumps(summary).encode()}

    def _episode(self, line: Mapping[str, Any]) -> Written:
        """Return an episode under the next number; the partition counts changes."""
        found = Episode.from_json(json.dumps(line["holds"]))
        episode = replace(
            found,
            id=self._id(found.id, found.of[0]),
            tenant=self._config.tenant,
            model=self._config.model,
            number=self._state.next_number(),
        )
        return self._keys.episodes, episode.fields()

    def _id(self, alarm_id: str, of: str) -> str:
        """Return the local id of an imported episode: partition and model name are part of the id."""
        if partition_in(alarm_id) is None:
            raise ValueError(f"{alarm_id!r} is not the id of an alarm")
        head, _, tail = alarm_id.split("_")
        if of != self._config.key:
            tail = blake2b(f"{tail}|{self._config.key}".encode(), digest_size=10).hexdigest()
        return f"{head}_{self._keys.partition:03d}_{tail}"


def remove_alarm(
    node: Any, keys: PartitionKeys, fencing: FencingToken, model: str, generation: str
) -> list[str]:
    """Remove the fields of a generation in shared hashes; return its own keys, to be unlinked. Safe to repeat."""
    own, commit = (model, generation), Commit(keys)
    episodes = read_episodes(node.hgetall(keys.episodes))
    deliveries = map(WebhookDelivery.from_json, node.hvals(keys.deliveries))
    for key, items in ((keys.episodes, episodes), (keys.deliveries, deliveries)):
        found = [each.id for each in items if each.of == own]
        if found:
            commit.drop_fields(key, found)
    if json.loads(node.hget(keys.summaries, model) or "{}").get("generation") == generation:
        commit.drop_fields(keys.summaries, [model])
    commit.drop_fields(keys.statuses, [model])  # an entry of a later generation is computed again
    commit.drop_fields(keys.partial_cohorts, [f"{model}|{generation}"])
    fencing.send(commit, fencing.new_token())
    detectors = keys.detectors(model, generation)
    names = [name.decode() for name in node.hkeys(detectors) if b"|" in name]
    return [
        *(keys.cohort_results(model, generation, name) for name in names),
        units_key(keys, model, generation),
        detectors,
        keys.delivery_log(model, generation),
    ]
