"""The configuration of a model, its text in the store, and how it is read; the stored definition of its baselines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from secrets import token_hex
from typing import Any, Literal, NotRequired, TypedDict

from calibrant.core.routing import Place
from calibrant.core.spec import PaneSpec
from calibrant_server.workers.store.key_names import Keys, PaneKey, model_key

MAX_PARSED = 20_000
Mode = Literal["serve", "observe"]
SERVE: Mode = "serve"
OBSERVE: Mode = "observe"
# Slice whose values are the labels of a multi-label model.
LABEL_SLICE = "label"


@dataclass(frozen=True)
class ModelConfig:
    """The configuration of a model. A new `generation` is a new model of the same name.

    Attributes
    ----------
    importing : identity of an incomplete import: its content and start. Until the import is complete, no request may read
        or change the model
    imported : the content of the import that the model came from
    cloudevents : how events of an inference server become predictions; None if not declared
    mode : "serve", or "observe": its maps are advice, none is promoted, handed out as current or applied
    tags : free texts by name, such as owner, team and site
    events : dated events, oldest first (`model_events.ModelEvent`)
    label_names : of a multi-label model, which is binary with a slice per label; None for other models
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
    tags: dict[str, str] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    label_names: list[str] | None = None

    @property
    def key(self) -> str:
        """`tenant/model`."""
        return model_key(self.tenant, self.model)

    @property
    def content(self) -> tuple[Any, ...]:
        """Task, classes and labels: what models must share to be compared or to take each other's batches."""
        return self.task, self.n_classes, self.label_names

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
        stored["created_at"] = self.created_at and self.created_at.astimezone(UTC).isoformat()
        return json.dumps(stored, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes | str) -> ModelConfig:
        """Read a configuration; skip names of other versions."""
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


@lru_cache(MAX_PARSED)
def parsed_config(text: bytes) -> ModelConfig:
    """Parse a stored configuration once: each batch and each look at its outcome read it again, and it changes rarely."""
    return ModelConfig.from_json(text)


class ConfigReader:
    """Reader of configurations for threads."""

    def __init__(self, client: Any, keys: Keys):
        self._client, self._keys = client, keys

    def read(self, model: str) -> ModelConfig | None:
        """Return the configuration of `tenant/model`; None if there is none."""
        text = self._client.hget(self._keys.of_model(model).models, model)
        return None if text is None else parsed_config(text)


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


class BaselineRecord(TypedDict):
    """A baseline. `window` has its start and end in seconds, `counts` is of the frozen pane.

    `content` is the digest of posted predictions or panes, whose window is that of their event times, or empty.
    """

    slice: str | None
    clock: str
    window: list[int]
    created_ms: int
    counts: dict[str, int]
    content: NotRequired[str]
