"""Finds the configurations of models: a directory says in which partition each is.

A model is found with one read where it was found before, or where it is at home.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from cachetools import LRUCache

from calibrant_server.workers.store.keys import Keys, PartitionKeys
from calibrant_server.workers.store.model_config import ModelConfig, may_have_left, parsed_config

MAX_PLACES = 20_000


def partition_in(place: bytes | None) -> int | None:
    """Return the partition in an entry of a directory; None if there is none.

    Examples
    --------
    >>> partition_in(b"12"), partition_in(b"12.3"), partition_in(None)
    (12, 12, None)
    """
    return None if place is None else int(place.partition(b".")[0])


def moves_in(place: bytes | None) -> int:
    """Return how often a model of this name was moved, by an entry of a directory; also models of this name that were deleted.

    Examples
    --------
    >>> moves_in(b"12"), moves_in(b"12.3"), moves_in(None)
    (0, 3, 0)
    """
    return 0 if place is None else int(place.partition(b".")[2] or 0)


class ModelPlaces:
    """Finds stored configurations, for the event loop: one read where the model was found before, or where it is at home."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys
        self._known: LRUCache[str, int] = LRUCache(MAX_PLACES)

    async def find(self, model: str) -> tuple[PartitionKeys, bytes | None]:
        """Return the keys of the partition of `tenant/model`, and its configuration as stored; None if there is none."""
        number = self._known.get(model)
        if number is not None:
            keys = self._keys.partition(number)
            text: bytes | None = await self._client.hget(keys.models, model)
            if text is not None and not may_have_left(text):
                return keys, text
        return await self.find_from_home(model)

    async def find_from_home(self, model: str) -> tuple[PartitionKeys, bytes | None]:
        """Return the same, whatever was found before."""
        keys = self._keys.of_model(model)
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.hget(keys.places, model)
            pipe.hget(keys.models, model)
            place, text = await pipe.execute()
        number = partition_in(place)
        if number is not None and number != keys.partition:
            keys = self._keys.partition(number)
            text = await self._client.hget(keys.models, model)
        if text is not None:
            self._known[model] = keys.partition
        return keys, text


class ConfigReader:
    """Reader of configurations for threads; like `ModelPlaces`."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys
        self._known: LRUCache[str, int] = LRUCache(MAX_PLACES)
        self._lock = Lock()

    def read(self, model: str) -> ModelConfig | None:
        """Return the configuration of `tenant/model`; None if there is none."""
        with self._lock:
            number = self._known.get(model)
        text = None if number is None else self._at(number, model)
        if text is None or may_have_left(text):
            text = self._from_home(model)
        return None if text is None else parsed_config(text)

    def _from_home(self, model: str) -> bytes | None:
        keys = self._keys.of_model(model)
        with self._client.pipeline(transaction=False) as pipe:
            pipe.hget(keys.places, model)
            pipe.hget(keys.models, model)
            place, text = pipe.execute()
        number = partition_in(place)
        if number is None:
            number = keys.partition
        if number != keys.partition:
            text = self._at(number, model)
        if text is not None:
            with self._lock:
                self._known[model] = number
        found: bytes | None = text
        return found

    def _at(self, number: int, model: str) -> bytes | None:
        found: bytes | None = self._client.hget(self._keys.partition(number).models, model)
        return found


def read_configs(client: Any, models_key: str, models: list[str]) -> dict[str, ModelConfig]:
    """Return configurations of models of a partition, for workers; deleted models are omitted."""
    if not models:
        return {}
    return parsed_configs(models, client.hmget(models_key, models))


def parsed_configs(models: list[str], texts: list[bytes | None]) -> dict[str, ModelConfig]:
    """Return the configurations that were read of models; deleted models are omitted."""
    return {
        model: parsed_config(text)
        for model, text in zip(models, texts, strict=True)
        if text is not None
    }
