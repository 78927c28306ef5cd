"""A model's alarm as lines of an export: detectors, cohort results, units of earlier cohorts, episodes.

Deliveries to receivers are not exported: each is made once. An episode's id names its partition, which may differ in the
store that imports it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from calibrant_server.workers.alarm.active_map import ActiveMap
from calibrant_server.workers.alarm.alarm_settings import AlarmSettings
from calibrant_server.workers.alarm.cohorts import PartialCohort
from calibrant_server.workers.alarm.episodes import LAST_NUMBER, Episode, partition_in
from calibrant_server.workers.alarm.former_alarm import (
    current_detector,
    current_result,
    current_summary,
)
from calibrant_server.workers.alarm.seen_units import MAX_UNITS, UNIT_BYTES, units_key
from calibrant_server.workers.store.commit import Commit
from calibrant_server.workers.store.keys import ACTIVE_MAP, LAST_CHANGE, PartitionKeys, model_key
from calibrant_server.workers.store.model_config import ModelConfig

DETECTOR, COHORT_RESULTS, RATERS, PARTIAL_COHORT, EPISODE, SUMMARY, CHANGE, MAP, UNITS = (
    *(
        "detector",
        "looks",
        "rater_looks",
        "gathered",
        "episode",
        "alarm_summary",
        "alarm_change",
        "alarm_map",
        "alarm_units",
    ),
)
KINDS = frozenset(
    {DETECTOR, COHORT_RESULTS, RATERS, PARTIAL_COHORT, EPISODE, SUMMARY, CHANGE, MAP, UNITS}
)


async def alarm_lines(
    client: Any, keys: PartitionKeys, config: ModelConfig
) -> AsyncIterator[dict[str, Any]]:
    """Return all lines of a model's alarm."""
    name = (config.key, config.generation)
    detectors = await client.hgetall(keys.detectors(*name))
    for field, packed in sorted(detectors.items()):
        if field == LAST_CHANGE.encode():
            yield {"type": CHANGE, "version": packed.decode()}
            continue
        if field == ACTIVE_MAP.encode():
            yield {"type": MAP, "holds": json.loads(packed)}
            continue
        detector = field.decode()
        yield {
            "type": DETECTOR,
            "name": detector,
            "of": config.key,
            "packed": b64encode(packed).decode(),
        }
        cohort_results = await client.hgetall(keys.cohort_results(*name, detector))
        if cohort_results:
            in_order = {
                at.decode(): b64encode(cohort_results[at]).decode()
                for at in sorted(cohort_results, key=int)
            }
            yield {"type": COHORT_RESULTS, "detector": detector, "looks": in_order}
    units = await client.hgetall(units_key(keys, config))
    if units:
        in_order = {at.decode(): b64encode(units[at]).decode() for at in sorted(units, key=int)}
        yield {"type": UNITS, "by_cohort": in_order}
    partial_cohort = await client.hget(keys.partial_cohorts, "|".join(name))
    if partial_cohort is not None:
        yield {"type": PARTIAL_COHORT, "packed": b64encode(partial_cohort).decode()}
    for text in await episodes_of(client, keys, config):
        yield {"type": EPISODE, "holds": json.loads(text)}
    summary = await client.hget(keys.summaries, config.key)
    if summary is not None and json.loads(summary)["generation"] == config.generation:
        yield {"type": SUMMARY, "holds": json.loads(summary)}


async def episodes_of(client: Any, keys: PartitionKeys, config: ModelConfig) -> list[bytes]:
    """Return the episodes of a generation by id."""
    found = await client.hgetall(keys.episodes)
    return [
        text
        for field, text in sorted(found.items())
        if field != LAST_NUMBER.encode() and json.loads(text)["generation"] == config.generation
        and (json.loads(text)["tenant"], json.loads(text)["model"]) == (config.tenant, config.model)
    ]  # fmt: skip


def _units(by_cohort: Mapping[str, str]) -> dict[str, bytes]:
    """Return the hashes of units by cohort, as stored; each takes eight bytes."""
    found = {str(int(at)): b64decode(packed, validate=True) for at, packed in by_cohort.items()}
    n_bytes = [len(packed) for packed in found.values()]
    if any(each % UNIT_BYTES for each in n_bytes) or sum(n_bytes) > MAX_UNITS * UNIT_BYTES:
        raise ValueError(f"units of cohorts are at most {MAX_UNITS} hashes of {UNIT_BYTES} bytes")
    return found


class AlarmLines:
    """Writer of lines of an alarm into a commit."""

    def __init__(self, node: Any, keys: PartitionKeys, config: ModelConfig):
        self._node, self._keys, self._config = node, keys, config
        self._name = (config.key, config.generation)
        self._number: int | None = None

    def put(self, line: Mapping[str, Any], commit: Commit) -> None:
        """Write one line; raise PackingError if it is not a line of an alarm."""
        kind, keys = line["type"], self._keys
        if kind == CHANGE:
            commit.set_fields(
                keys.detectors(*self._name), {LAST_CHANGE: str(line["version"]).encode()}
            )
        elif kind == DETECTOR:
            packed = b64decode(line["packed"], validate=True)
            detector = current_detector(packed, AlarmSettings.of(self._config))
            if detector.episode is not None:
                detector = replace(detector, episode=self._id(detector.episode, line["of"]))
            commit.set_fields(keys.detectors(*self._name), {str(line["name"]): detector.pack()})
        elif kind == COHORT_RESULTS:
            cohort_results = {
                str(int(at)): current_result(int(at), b64decode(packed, validate=True)).pack()
                for at, packed in line["looks"].items()
            }
            commit.set_fields(
                keys.cohort_results(*self._name, str(line["detector"])), cohort_results
            )
        elif kind == MAP:
            holds = line["holds"]
            active_map = ActiveMap(
                None if holds["version"] is None else str(holds["version"]), holds["fitted_to_s"]
            )
            commit.set_fields(keys.detectors(*self._name), {ACTIVE_MAP: active_map.to_json()})
        elif kind == UNITS:
            commit.set_fields(units_key(keys, self._config), _units(line["by_cohort"]))
        elif kind == PARTIAL_COHORT:
            packed = b64decode(line["packed"], validate=True)
            PartialCohort.unpack(packed)
            commit.set_fields(keys.partial_cohorts, {"|".join(self._name): packed})
        elif kind == EPISODE:
            self._episode(line["holds"], commit)
        elif kind == SUMMARY:
            commit.set_fields(
                keys.summaries,
                {self._config.key: json.dumps(current_summary(line["holds"])).encode()},
            )

    def _episode(self, holds: Mapping[str, Any], commit: Commit) -> None:
        """Return an episode under the next number; the partition counts changes."""
        if self._number is None:
            self._number = int(self._node.hget(self._keys.episodes, LAST_NUMBER) or 0)
        self._number += 1
        episode = replace(
            Episode.from_json(json.dumps(dict(holds))),
            id=self._id(holds["id"], model_key(holds["tenant"], holds["model"])),
            tenant=self._config.tenant,
            model=self._config.model,
            number=self._number,
        )
        fields = {episode.id: episode.to_json(), LAST_NUMBER: str(self._number).encode()}
        commit.set_fields(self._keys.episodes, fields)

    def _id(self, alarm_id: str, of: str) -> str:
        """Return the local id of an imported episode: partition and model name are part of the id."""
        if partition_in(alarm_id) is None:
            raise ValueError(f"{alarm_id!r} is not the id of an alarm")
        head, _, tail = alarm_id.split("_")
        if of != self._config.key:
            tail = blake2b(f"{tail}|{self._config.key}".encode(), digest_size=10).hexdigest()
        return f"{head}_{self._keys.partition:03d}_{tail}"
