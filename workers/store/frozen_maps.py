"""Frozen calibration maps of a model: versions that never change, and the current one.

A version is written once. The current map is complete in one field of one hash, so that a poll costs one read and no
reader sees half of a promotion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from calibrant_server.workers.alarm.alarm_commit import promotion
from calibrant_server.workers.ingest.orders import alarm_order
from calibrant_server.workers.store.key_names import Keys, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig
from calibrant_server.workers.store.script import run_async

MAX_VERSIONS = 500
MAX_PROMOTIONS = 200
_MADE, _KNOWN, _FULL = 1, 2, 3


class NoSuchModel(RuntimeError):
    """The model was deleted or created again meanwhile."""


class NoSuchMap(LookupError):
    """The model has no version with this number."""


class NoRoom(RuntimeError):
    """The model has the maximum number of versions, or of their bytes: `args[0]` are stored."""


class PromotionConflict(RuntimeError):
    """Another version was promoted meanwhile."""


@dataclass(frozen=True)
class PromotedMap:
    """The current map of a model.

    Attributes
    ----------
    generation : of the model
    promotion : number of promotions so far
    body : the current map as JSON; empty if there is none
    """

    generation: str
    promotion: int
    body: bytes = b""

    @property
    def etag(self) -> str:
        """Strong ETag: it changes with each promotion, and equal tags mean equal bytes."""
        return f'"{self.generation}.map.{self.promotion}"'

    def to_bytes(self) -> bytes:
        """Return the stored form. The parts of the tag come first, so that it is read without the map."""
        return f"{self.generation} {self.promotion}\n".encode() + self.body

    @classmethod
    def from_bytes(cls, raw: bytes) -> PromotedMap:
        head, _, body = raw.partition(b"\n")
        generation, promotion = head.decode().split(" ")
        return cls(generation, int(promotion), body)


# A frozen map: the result of a fit with its query, as the fields that the engine and the service read. `class` is a keyword.
FrozenMap = TypedDict(
    "FrozenMap",
    {
        "version": int,
        "method": str,
        "scope": str,
        "class": int | None,
        "parameters": dict[str, Any] | None,
        "window": dict[str, str],
        "slice": NotRequired[str | None],
        "clock": NotRequired[str],
        "raters": NotRequired[str],
        "fit": NotRequired[dict[str, Any]],
        "warnings": NotRequired[list[str]],
    },
)


async def add_version(
    client: Any,
    config: ModelConfig,
    keys: Sequence[str],
    identity: str,
    bounds: tuple[int, int, int],
    fields: Mapping[str, bytes],
) -> tuple[int, bool]:
    """Store the next version of a hash; return its number and whether it is new.

    Parameters
    ----------
    keys : of the models of the partition, and of the hash
    identity : the same for a repeat of the same version
    bounds : maximum of versions, maximum of their bytes, and the bytes of this one; 0: they are not counted
    fields : content by the letter of its field

    Raises
    ------
    NoSuchModel, NoRoom
    """
    pairs = [part for pair in fields.items() for part in pair]
    values = [config.key, config.generation, identity, *bounds, *pairs]
    status, *number = await run_async(client, "add_version", keys, values)
    if status == _FULL:
        raise NoRoom(int(number[0]))
    if status not in (_MADE, _KNOWN):
        raise NoSuchModel(config.key)
    return int(number[0]), status == _MADE


class MapVersions:
    """The frozen maps of a store, for the event loop."""

    def __init__(self, client: Any, keys: Keys):
        self._client = client
        self._keys = keys

    async def current(self, config: ModelConfig) -> PromotedMap | None:
        """Return the current map of a model in one read; None if there is no map or no model."""
        raw = await self._client.hget(self._keys.of(config).current_maps, config.key)
        return None if raw is None else PromotedMap.from_bytes(raw)

    async def current_maps(self, configs: Sequence[ModelConfig]) -> list[PromotedMap | None]:
        """Return the current map of each model in one read."""
        async with self._client.pipeline(transaction=False) as pipe:
            for config in configs:
                pipe.hget(self._keys.of(config).current_maps, config.key)
            replies = await pipe.execute()
        return [None if raw is None else PromotedMap.from_bytes(raw) for raw in replies]

    async def version(self, config: ModelConfig, number: int) -> FrozenMap:
        """A version.

        Raises
        ------
        NoSuchMap
        """
        found = await self._client.hget(self._versions(config), f"v{number}")
        if found is None:
            raise NoSuchMap(number)
        version: FrozenMap = {"version": number, **json.loads(found)}  # type: ignore[typeddict-item]
        return version

    async def listed(
        self, config: ModelConfig
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return summaries of all versions and records of the last promotions, each oldest first."""
        name = self._versions(config)
        n, promotions = (int(each or 0) for each in await self._client.hmget(name, "n", "p"))
        summaries = await self._some(name, "s", 1, n)
        records = await self._some(name, "h", max(1, promotions - MAX_PROMOTIONS + 1), promotions)
        return (
            [{"version": number, **each} for number, each in summaries],
            [{"promotion": number, **each} for number, each in records],
        )

    async def _some(
        self, name: str, prefix: str, first: int, last: int
    ) -> list[tuple[int, dict[str, Any]]]:
        numbers = range(first, last + 1)
        if not numbers:
            return []
        found = await self._client.hmget(name, [f"{prefix}{number}" for number in numbers])
        return [(n, json.loads(text)) for n, text in zip(numbers, found, strict=True) if text]

    async def add(
        self, config: ModelConfig, identity: str, body: bytes, summary: bytes
    ) -> tuple[int, bool]:
        """Freeze a version; return its number and whether it is new.

        Raises
        ------
        NoSuchModel, NoRoom
        """
        keys, fields = (
            [self._keys.of(config).models, self._versions(config)],
            {"v": body, "s": summary},
        )
        return await add_version(self._client, config, keys, identity, (MAX_VERSIONS, 0, 0), fields)

    async def promote(
        self, config: ModelConfig, number: int, new: PromotedMap, record: bytes
    ) -> None:
        """Make a version current after the promotion before `new`; the alarm's detectors restart.

        Raises
        ------
        PromotionConflict, NoSuchModel, NoSuchMap
        """
        partition = self._keys.of(config)
        order = alarm_order(config.key, config.generation, promotion(str(number)))
        fields = [part for pair in order.to_fields().items() for part in pair]
        keys = [
            partition.models, partition.current_maps, self._versions(config), partition.stream, partition.bytes_in,
        ]  # fmt: skip
        values = [
            config.key, config.generation, new.promotion - 1, number, new.to_bytes(), record, MAX_PROMOTIONS,
            order.n_bytes, *fields,
        ]  # fmt: skip
        status, *_ = await run_async(self._client, "promote_map", keys, values)
        if status == -1:
            raise NoSuchModel(config.key)
        if status == -2:
            raise NoSuchMap(number)
        if status == 0:
            raise PromotionConflict(config.key)

    def _versions(self, config: ModelConfig) -> str:
        partition: PartitionKeys = self._keys.of(config)
        return partition.map_versions(config.key, config.generation)
