"""The registry: the configuration of each model, changed optimistically."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from calibrant_server.workers.ingest.orders import delete_model
from calibrant_server.workers.store.key_names import Keys, PartitionKeys, model_key
from calibrant_server.workers.store.model_config import ModelConfig, parsed_config
from calibrant_server.workers.store.script import (
    AsyncScript,
    NotReplicated,
    read_replicated,
    scripts,
)

# Properties of panes: another value would make panes that cannot be added to existing ones.
FIXED = ("task", "n_classes", "grid", "pane_s", "listed_classes", "composites", "label_names")
# Reply of the script that deletes a model.
HAS_REPORTS = 2


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
        self._put = AsyncScript(client, scripts()["put_model"])
        self._delete = AsyncScript(client, scripts()["delete_model"])

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
        found = await self._stored(model_key(tenant, model))
        return None if found is None else parsed_config(found)

    async def _stored(self, model: str) -> bytes | None:
        """Return a configuration as stored."""
        found: bytes | None = await self._client.hget(self._keys.of_model(model).models, model)
        return found

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

        Generation, revision and time of creation are set here. Return the stored configuration.

        Raises
        ------
        RevisionConflict
            The stored revision differs (or is absent, or exists unexpectedly).
        FixedProperty
            The change concerns a property of panes.
        """
        stored = await self._stored(config.key)
        current = None if stored is None else ModelConfig.from_json(stored)
        if (current.revision if current else None) != expected_revision:
            raise RevisionConflict(current)
        new = config.made_now() if current is None else _revised(current, config)
        await self._replace(new, stored or b"")
        return new

    async def confirm(self, config: ModelConfig) -> None:
        """With durability `replicated`, wait until a replica has a configuration.

        An earlier attempt to write it may have ended before.

        Raises
        ------
        NotReplicated
            Also if a failover has undone it.
        """
        if self._durability != "replicated":
            return
        keys = self._keys.of(config)
        command = ("HGET", keys.models, config.key)
        if await read_replicated(self._client, keys.bytes_in, *command) is None:
            raise NotReplicated()

    async def restore(self, config: ModelConfig) -> ModelConfig:
        """Write a configuration from another store, including generation and revision; return it.

        Raises
        ------
        RevisionConflict
            There is a model of this name.
        """
        await self._replace(config, b"")
        return config

    async def finish_import(
        self, config: ModelConfig, new: ModelConfig, current_map: bytes
    ) -> None:
        """Make an imported model visible as `new`, with its current calibration map (empty: none).

        Raises
        ------
        RevisionConflict
            The model was deleted, or completed by a repeat of the import.
        """
        await self._replace(new, config.to_json(), current_map)

    async def _replace(
        self, new: ModelConfig, stored: bytes | str, current_map: bytes = b""
    ) -> None:
        partition = self._keys.of(new)
        keys = [partition.models, partition.current_maps]
        await self._write(self._put, partition, keys, [new.key, stored, new.to_json(), current_map])

    async def delete(self, config: ModelConfig, with_reports: bool = True) -> None:
        """Remove a model; its partition's worker removes its data.

        Raises
        ------
        RevisionConflict
            The stored revision differs or is absent.
        HasReports
            It has archived reports, and `with_reports` is False.
        """
        partition, stored = self._keys.of(config), await self._stored(config.key)
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
    )
