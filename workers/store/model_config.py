"""The configuration of a model, and its text in the store."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from secrets import token_hex
from typing import Any, Literal

from calibrant.core.routing import Place
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.store.keys import PaneKey, model_key

MAX_PARSED = 20_000
# Stages of a move. DRAINING: batches are no longer accepted, those accepted before are merged, then the data are copied.
# ARRIVING: all is copied, and the move can no longer be cancelled. LEFT: what remains until the former data are removed.
DRAINING, ARRIVING, LEFT = "draining", "arriving", "left"
_IS_MOVING = b'"moving":{"id":"'
Mode = Literal["serve", "observe"]
SERVE: Mode = "serve"
OBSERVE: Mode = "observe"


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
    own_shards : shards of batches that its own partition has, if others have some; None: as many as each of these
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
    own_shards: int | None = None

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
    "own_shards": None,
}


def may_have_left(text: bytes) -> bool:
    """Return whether a stored configuration says that the model is being moved, or was moved: its home knows where it is."""
    return _IS_MOVING in text


@lru_cache(MAX_PARSED)
def parsed_config(text: bytes) -> ModelConfig:
    """Parse a stored configuration once: each batch and each look at its outcome read it again, and it changes rarely."""
    return ModelConfig.from_json(text)
