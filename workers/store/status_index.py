"""Statuses of models in the store, shared by all processes: each is valid until the state that it was computed from changes.

A list of many models reads the index, one field per model, and computes only what is missing or outdated. Any service process
may write it: an entry that is lost or old costs a computation, no correctness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, TypedDict

import orjson

from calibrant.core.documents import Result
from calibrant_server.workers.store.key_names import LAST_CHANGE, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.script import StorePart

# Models of one pipeline: a store that serves others meanwhile answers a few thousand reads within some milliseconds.
_TOGETHER = 500


class StatusFields(TypedDict):
    """The status of a model in an overview; what is not known is None, with the `reason` of the first part that is missing.

    The words have their sentences. `error` is the estimate of the calibration error, `errors` that of each of the last cohorts,
    `turned_at` when the status was first found to be another than before.
    """

    status: str | None
    calibration: Result | None
    change: Result | None
    scores: Result | None
    error: Result | None
    temperature: float | None
    map_version: int | None
    label_coverage: float | None
    last_seen: str | None
    reason: str | None
    errors: list[float]
    turned_at: str | None


UNKNOWN_STATUS: StatusFields = {
    "status": None,
    "calibration": None,
    "change": None,
    "scores": None,
    "error": None,
    "temperature": None,
    "map_version": None,
    "label_coverage": None,
    "last_seen": None,
    "reason": None,
    "errors": [],
    "turned_at": None,
}


@dataclass(frozen=True)
class IndexedStatus:
    """Status of a model: its fields, the state that they were computed from, and when (seconds since the epoch)."""

    state: str
    at_s: float
    fields: StatusFields

    @property
    def decisions(self) -> str:
        """Return the part of the state that decisions change: settings, a promoted map, the alarm."""
        return decisions_in(self.state)


def decisions_in(state: str) -> str:
    """Return the part of a state that predictions and labels alone do not change, unless they change the alarm."""
    return state.partition("|")[0]


class StatusIndex(StorePart):
    """The index, for the event loop."""

    async def read(self, configs: Sequence[ModelConfig]) -> list[tuple[str, IndexedStatus | None]]:
        """Return the name of each model's current state, and its entry: None if there is none of this generation."""
        found: list[tuple[str, IndexedStatus | None]] = []
        for first in range(0, len(configs), _TOGETHER):
            part = configs[first : first + _TOGETHER]
            replies = await self._retried(partial(self._replies, part))
            for config, reply in zip(part, zip(*[iter(replies)] * 4, strict=True), strict=True):
                found.append(_of_reply(config, *reply))
        return found

    async def write(self, entries: Mapping[str, tuple[ModelConfig, IndexedStatus]]) -> None:
        """Store entries by `tenant/model`."""

        async def once() -> None:
            async with self._client.pipeline(transaction=False) as pipe:
                for key, (config, entry) in entries.items():
                    text = orjson.dumps({**vars(entry), "generation": config.generation})
                    pipe.hset(self._keys.of(config).statuses, key, text)
                await pipe.execute()

        if entries:
            await self._retried(once)

    async def _replies(self, configs: Sequence[ModelConfig]) -> list[Any]:
        async with self._client.pipeline(transaction=False) as pipe:
            for config in configs:
                keys: PartitionKeys = self._keys.of(config)
                pipe.hget(keys.statuses, config.key)
                pipe.hget(keys.versions(config.key, config.generation, ""), LAST_CHANGE)
                pipe.hget(keys.detectors(config.key, config.generation), LAST_CHANGE)
                pipe.hget(keys.current_maps, config.key)
            return list(await pipe.execute())


def _of_reply(
    config: ModelConfig,
    stored: bytes | None,
    panes: bytes | None,
    alarm: bytes | None,
    current_map: bytes | None,
) -> tuple[str, IndexedStatus | None]:
    state = f"{_decisions(config, alarm, current_map)}|{_digest(panes or b'')}"
    if stored is None:
        return state, None
    found = orjson.loads(stored)
    if found.pop("generation") != config.generation:
        return state, None
    return state, IndexedStatus(**found)


def _decisions(config: ModelConfig, alarm: bytes | None, current_map: bytes | None) -> str:
    named = f"{config.generation}|{config.revision}|{_digest(alarm or b'')}|{_digest(current_map or b'')}"
    return _digest(named.encode())


def _digest(text: bytes) -> str:
    return blake2b(text, digest_size=12).hexdigest()
