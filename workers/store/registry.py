"""The registry: the configuration of each model, changed optimistically."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError

from calibrant_server.workers.ingest.entries import delete_model
from calibrant_server.workers.store.connection import (
    AsyncScript,
    NotReplicated,
    read_replicated,
    scripts,
)
from calibrant_server.workers.store.keys import Keys, PartitionKeys, model_key
from calibrant_server.workers.store.model_config import ModelConfig, parsed_config
from calibrant_server.workers.store.model_places import ModelPlaces
from calibrant_server.workers.store.placement import Placement
from calibrant_server.workers.store.side_partitions import (
    after_loss,
    close_sides,
    open_sides,
    with_sides,
)

# Properties of panes: another value would make panes that cannot be added to existing ones.
FIXED = ("task", "n_classes", "grid", "pane_s", "listed_classes", "composites")
# Reply of the script that deletes a model.
HAS_REPORTS = 2

log = logging.getLogger(__name__)


class RevisionConflict(RuntimeError):
    """The model was changed meanwhile; `current` is its current configuration, or None."""

    def __init__(self, current: ModelConfig | None):
        super().__init__("the model was changed by another request")
        self.current = current


class HasReports(RuntimeError):
    """The model has archived reports, which its deletion would remove; `n_reports` is their number."""

    def __init__(self, n_reports: int):
        super().__init__(f"the model has {n_reports} archived reports")
        self.n_reports = n_reports


class HalfImported(RuntimeError):
    """An import of the model has started and is not complete."""


class FixedProperty(ValueError):
    """A property of panes cannot be changed; delete the model and create it again."""

    def __init__(self, names: list[str]):
        super().__init__(f"cannot be changed once a model exists: {', '.join(names)}")
        self.names = names


class Registry:
    """The models of a store, for the event loop. With durability `replicated`, a replica has what it has written."""

    def __init__(self, client: Any, keys: Keys, durability: str = "everysec"):
        self._client = client
        self._keys = keys
        self._durability = durability
        self._places = ModelPlaces(client, keys)
        self._placement = Placement(client, keys, durability)
        self._put = AsyncScript(client, scripts()["put_model"])
        self._delete = AsyncScript(client, scripts()["delete_model"])
        self._finish = AsyncScript(client, scripts()["finish_import"])

    async def get(self, tenant: str, model: str) -> ModelConfig | None:
        """Return the configuration of a model, or None.

        Raises
        ------
        HalfImported
        """
        found = await self.found(tenant, model)
        if found is not None and found.importing is not None:
            raise HalfImported(model)
        return found

    async def found(self, tenant: str, model: str) -> ModelConfig | None:
        """Like `get`, including partly imported models."""
        _, found = await self._places.find(model_key(tenant, model))
        return None if found is None else parsed_config(found)

    async def list(self, tenant: str) -> Sequence[ModelConfig]:
        """Return all models of a tenant by name."""
        async with self._client.pipeline(transaction=False) as pipe:
            for number in range(self._keys.partitions):
                pipe.hgetall(self._keys.partition(number).models)
            partitions = await pipe.execute()
        beginning = model_key(tenant, "").encode()
        mine: dict[str, ModelConfig] = {}
        for models in partitions:
            for name, text in models.items():
                if name.startswith(beginning):
                    each = parsed_config(text)
                    # Of a model that is being moved, two partitions may have a configuration.
                    if not each.has_left and each.moves >= mine.get(each.model, each).moves:
                        mine[each.model] = each
        return [each for _, each in sorted(mine.items()) if each.importing is None]

    async def count(self, tenant: str) -> int:
        """Return the number of models of a tenant. Only their names are read."""
        async with self._client.pipeline(transaction=False) as pipe:
            for number in range(self._keys.partitions):
                pipe.hkeys(self._keys.partition(number).models)
            partitions = await pipe.execute()
        beginning = model_key(tenant, "").encode()
        return len({name for models in partitions for name in models if name.startswith(beginning)})

    async def has_fewer(self, tenant: str, n_models: int) -> bool:
        """Return whether a tenant has fewer models than a number. Names are read only if all tenants together do not."""
        async with self._client.pipeline(transaction=False) as pipe:
            for number in range(self._keys.partitions):
                pipe.hlen(self._keys.partition(number).models)
            sizes = await pipe.execute()
        return sum(sizes) < n_models or await self.count(tenant) < n_models

    async def put(self, config: ModelConfig, expected_revision: int | None) -> ModelConfig:
        """Write a configuration: a new model if `expected_revision` is None, else over that revision.

        Generation, revision, time of creation and partition are set here. Return the stored configuration.

        Raises
        ------
        RevisionConflict
            The stored revision differs (or is absent, or exists unexpectedly).
        FixedProperty
            The change concerns a property of panes.
        TooManyPartitions
            The store has fewer than `fill_partitions`.
        """
        partition, stored = await self._places.find(config.key)
        current = None if stored is None else ModelConfig.from_json(stored)
        if (current.revision if current else None) != expected_revision:
            raise RevisionConflict(current)
        if current is not None:
            new = _revised(current, config)
        else:
            new = await self._placed(config.made_now())
            partition = self._keys.of(new)
        if new.fill_partitions > 1 or new.has_sides:
            new = with_sides(new, current, partition.partition, self._keys.partitions)
        names = [partition.models, partition.places]
        values = [config.key, stored or b"", new.to_json()]
        await self._write(self._put, partition, names, values)
        if new.has_sides:
            # Where this fails, the first batch under the new configuration does it.
            with suppress(RedisError, RevisionConflict):
                lost = await open_sides(self._client, self._keys, new, self._durability)
                if lost is not None:
                    return await self.write_lost(new, lost)
        return new

    async def write_lost(self, current: ModelConfig, lost: ModelConfig) -> ModelConfig:
        """Write a change again that side partitions of a model know, and that the server of its own partition has lost; return it.

        Parameters
        ----------
        current : what the own partition has

        Raises
        ------
        RevisionConflict
            The own partition has another one by now.
        """
        partition, stored = await self._places.find(current.key)
        found = None if stored is None else ModelConfig.from_json(stored)
        if found is None or (found.generation, found.revision) != (current.generation, current.revision):  # fmt: skip
            raise RevisionConflict(found)
        new = after_loss(found, lost)
        log.warning("lost_configuration_restored model=%s revision=%d", current.key, new.revision)
        names = [partition.models, partition.places]
        await self._write(self._put, partition, names, [current.key, stored, new.to_json()])
        return new

    async def confirm(self, config: ModelConfig) -> None:
        """With durability `replicated`, wait until a replica has a configuration, and where to find the model.

        An earlier attempt to write it may have ended before.

        Raises
        ------
        NotReplicated
            Also if a failover has undone it.
        """
        if self._durability != "replicated":
            return
        own, home = self._keys.of(config), self._keys.of_model(config.key)
        names = [(own, own.models)]
        if home.partition != own.partition:
            names.append((home, home.places))
        for keys, name in names:
            command = ("HGET", name, config.key)
            if await read_replicated(self._client, keys.bytes_in, *command) is None:
                raise NotReplicated()

    async def _placed(self, config: ModelConfig) -> ModelConfig:
        """Return the configuration of a new model with its partition."""
        return replace(config, partition=await self._placement.place(config.key))

    async def restore(self, config: ModelConfig) -> ModelConfig:
        """Write a configuration from another store, including generation and revision; return it with its partition.

        Raises
        ------
        RevisionConflict
            There is a model of this name.
        """
        new = await self._placed(config)
        partition = self._keys.of(new)
        names = [partition.models, partition.places]
        await self._write(self._put, partition, names, [new.key, b"", new.to_json()])
        return new

    async def finish_import(
        self, config: ModelConfig, new: ModelConfig, current_map: bytes
    ) -> None:
        """Make an imported model visible as `new`, with its current calibration map (empty: none).

        Raises
        ------
        RevisionConflict
            The model was deleted, or completed by a repeat of the import.
        """
        partition = self._keys.of(config)
        await self._write(
            self._finish,
            partition,
            [partition.models, partition.current_maps],
            [config.key, config.to_json(), new.to_json(), current_map],
        )

    async def delete(self, config: ModelConfig, with_reports: bool = True) -> None:
        """Remove a model; its partition's worker removes its data.

        Raises
        ------
        RevisionConflict
            The stored revision differs or is absent.
        HasReports
            It has archived reports, and `with_reports` is False.
        """
        partition, stored = await self._places.find(config.key)
        current = None if stored is None else ModelConfig.from_json(stored)
        if current is None or (current.generation, current.revision) != (
            config.generation,
            config.revision,
        ):
            raise RevisionConflict(current)
        entry = delete_model(config.key, config.generation)
        arguments = [part for pair in entry.to_fields().items() for part in pair]
        archive = partition.report_archive(config.key, config.generation)
        await self._write(
            self._delete,
            partition,
            [
                partition.models,
                partition.stream,
                partition.bytes_in,
                partition.current_maps,
                archive,
            ],
            [config.key, stored, entry.n_bytes, int(with_reports), *arguments],
        )
        # Where this fails, the worker of the side partition finds that the model is gone.
        with suppress(RedisError):
            await close_sides(self._client, self._keys, current)

    async def _write(
        self,
        script: AsyncScript,
        partition: PartitionKeys,
        keys: Sequence[str],
        args: Sequence[Any],
    ) -> None:
        reply = await script.run(keys, args, partition.bytes_in, self._durability)
        if reply[0] == 0:
            found = reply[1] if len(reply) > 1 else None
            raise RevisionConflict(None if found is None else ModelConfig.from_json(found))
        if reply[0] == HAS_REPORTS:
            raise HasReports(int(reply[1]))


def _revised(current: ModelConfig, config: ModelConfig) -> ModelConfig:
    changed = [name for name in FIXED if getattr(current, name) != getattr(config, name)]
    if changed:
        raise FixedProperty(changed)
    return replace(
        config,
        generation=current.generation,
        revision=current.revision + 1,
        created_at=current.created_at,
        imported=current.imported,
        partition=current.partition,
        moves=current.moves,
        side_partitions=current.side_partitions,
        former_side_partitions=current.former_side_partitions,
        have_shards_moved=current.have_shards_moved,
        own_shards=current.own_shards,
    )
