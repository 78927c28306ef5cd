"""The registry: the configuration of each model, changed optimistically."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from secrets import token_hex
from threading import Lock
from typing import Any, Literal

from cachetools import LRUCache
from redis.exceptions import RedisError

from calibrant.core.routing import Place
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.ingest.entries import delete_model
from calibrant_server.workers.store.connection import (
    AsyncScript,
    NotReplicated,
    read_replicated,
    scripts,
)
from calibrant_server.workers.store.keys import Keys, PaneKey, PartitionKeys, model_key
from calibrant_server.workers.store.placement import Placement
from calibrant_server.workers.store.side_partitions import close_sides, open_sides, with_sides

# Properties of panes: another value would make panes that cannot be added to existing ones.
FIXED = ("task", "n_classes", "grid", "pane_s", "listed_classes", "composites")
MAX_PARSED, MAX_PLACES = 20_000, 20_000
# Reply of the script that deletes a model.
HAS_REPORTS = 2
# Stages of a move. DRAINING: batches are no longer accepted, those accepted before are merged, then the data are copied.
# ARRIVING: all is copied, and the move can no longer be cancelled. LEFT: what remains until the former data are removed.
DRAINING, ARRIVING, LEFT = "draining", "arriving", "left"
_IS_MOVING = b'"moving":{"id":"'
Mode = Literal["serve", "observe"]
SERVE: Mode = "serve"
OBSERVE: Mode = "observe"


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


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of a model. A new `generation` is a new model of the same name.

    Attributes
    ----------
    importing : identity of an incomplete import: its content and start. Until the import is complete, no request may read
        or change the model
    imported : the content of the import that the model came from
    cloudevents : how events of an inference server become predictions; None if not declared
    partition : where its stream and its data are; None: in its home (`Keys.partition_of`), as in stores of earlier versions
    moves : how often it has been moved to another partition
    moving : the move to another partition that is under way: `id`, `stage`, `to`; nothing of the model changes meanwhile
    mode : "serve", or "observe": its maps are advice, none is promoted, handed out as current or applied
    fill_partitions : partitions that fill batches of the model; above 1, some are side partitions
    side_partitions, former_side_partitions : present ones, and earlier ones that are none now
    have_shards_moved : whether records of batches may be in other partitions than the present ones of their shards
    """

    tenant: str
    model: str
    task: str
    n_classes: int
    generation: str = ""
    revision: int = 0
    classes: list[str] | None = None
    grid: int = 3600
    pane_s: int = 3600
    retention_s: int | None = None
    label_horizon_s: int | None = None
    slices: dict[str, list[str] | None] = field(default_factory=dict)
    unit: str | None = None
    listed_classes: list[int] | None = None
    composites: dict[str, list[int]] | None = None
    alarm: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    importing: str | None = None
    imported: str | None = None
    cloudevents: dict[str, Any] | None = None
    mode: Mode = SERVE
    partition: int | None = None
    moves: int = 0
    moving: dict[str, Any] | None = None
    fill_partitions: int = 1
    side_partitions: list[int] = field(default_factory=list)
    former_side_partitions: list[int] = field(default_factory=list)
    have_shards_moved: bool = False

    @property
    def has_sides(self) -> bool:
        """Whether some of its batches are, or were, in side partitions."""
        return bool(self.side_partitions or self.former_side_partitions)

    @property
    def key(self) -> str:
        """`tenant/model`."""
        return model_key(self.tenant, self.model)

    @property
    def has_left(self) -> bool:
        """Whether the model is in another partition by now."""
        return self.moving is not None and self.moving["stage"] == LEFT

    def unplaced(self) -> ModelConfig:
        """Return the configuration without what concerns its store only."""
        kept = {name: value for name, value in vars(self).items() if name in _FIELDS}
        return ModelConfig(**{**kept, **_DEFAULTS})

    def spec(self) -> PaneSpec:
        """Return the specification of the model's panes."""
        return self._spec

    @cached_property
    def _spec(self) -> PaneSpec:
        listed = None if self.listed_classes is None else tuple(self.listed_classes)
        composites = tuple((name, tuple(each)) for name, each in (self.composites or {}).items())
        return PaneSpec(self.task, self.n_classes, self.grid, listed, composites)

    def pane_key(self, place: Place) -> PaneKey:
        """Return the key of the model's pane of a slice and time slice."""
        return PaneKey(self.key, self.generation, place.slice, place.start_s)

    def to_json(self) -> bytes:
        """Return the stored form; equal configurations give equal bytes."""
        return self._stored

    @cached_property
    def _stored(self) -> bytes:
        stored = asdict(self)
        for name, default in _DEFAULTS.items():
            if stored[name] == default:
                del stored[name]
        stored["created_at"] = self.created_at and self.created_at.astimezone(UTC).isoformat()
        return json.dumps(stored, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes | str) -> ModelConfig:
        """Read a configuration; skip names of later versions."""
        stored = json.loads(text)
        if stored.get("created_at"):
            stored["created_at"] = datetime.fromisoformat(stored["created_at"])
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in known})

    def made_now(self, now: datetime | None = None) -> ModelConfig:
        """Return the configuration of a new model: generation, first revision, time."""
        return replace(
            self, generation=token_hex(6), revision=1, created_at=now or datetime.now(UTC)
        )


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


def may_have_left(text: bytes) -> bool:
    """Return whether a stored configuration says that the model is being moved, or was moved: its home knows where it is."""
    return _IS_MOVING in text


_FIELDS = frozenset(each.name for each in fields(ModelConfig))
# Where a model is concerns its store only. Not stored where they have their defaults: as in stores of earlier versions.
# Scripts look for `"moving":{"id":"` in the text.
_DEFAULTS: dict[str, Any] = {
    "partition": None,
    "moves": 0,
    "moving": None,
    "fill_partitions": 1,
    "side_partitions": [],
    "former_side_partitions": [],
    "have_shards_moved": False,
}


@lru_cache(MAX_PARSED)
def parsed_config(text: bytes) -> ModelConfig:
    """Parse a stored configuration once: each batch and each look at its outcome read it again, and it changes rarely."""
    return ModelConfig.from_json(text)


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
            with suppress(RedisError):
                await open_sides(self._client, self._keys, new, self._durability)
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
    )


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
    found = client.hmget(models_key, models)
    return {
        model: parsed_config(text)
        for model, text in zip(models, found, strict=True)
        if text is not None
    }
