"""Request and response of the list of models."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrant.results.estimate_values import EstimateValues
from calibrant_server.service.http.lists import ListPage, PageQuery
from calibrant_server.service.ingest.cloudevents import CloudEventSettings
from calibrant_server.service.reads.representations import part_of
from calibrant_server.workers.store.model_config import SERVE, Mode, ModelConfig


def has_tag(config: ModelConfig, tag: str | None) -> bool:
    """Return whether a model has a tag, as `name:text`; None: any."""
    name, _, text = (tag or "").partition(":")
    return tag is None or config.tags.get(name) == text


class ModelListQuery(PageQuery):
    """The requested page, and what it has of each model."""

    view: Literal["settings", "status"] = Field(
        "settings", description="status: adds the status of each model over the last 7 days."
    )
    tag: str | None = Field(
        None,
        pattern=r"^[^:]{1,60}:.",
        max_length=320,
        description="Only models that have this tag, such as `owner:ann`.",
    )
    false_flags: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Maximum expected share of false flags in `flagged` (with view=status).",
    )


class ModelOverview(BaseModel):
    """The settings of a model that every list has."""

    model: str
    task: str
    n_classes: int
    pane: str
    label_horizon: str | None
    mode: Mode = SERVE
    tags: dict[str, str] | None = Field(None, description="Free texts by name; absent without any.")
    revision: int


class ModelResponse(ModelOverview):
    """A model with its settings."""

    classes: list[str] | None
    grid: int
    retention: str | None
    slices: dict[str, list[str] | None]
    unit: str | None
    listed_classes: list[int] | None
    composites: dict[str, list[int]] | None = None
    alarm: dict[str, Any] = Field(
        description="Alarm settings; secrets are hidden. Keys without the scope `admin` receive scheme and host of receivers' URLs only."
    )
    cloudevents: CloudEventSettings | None = None
    created_at: str | None
    records: dict[str, int] | None = Field(
        None,
        description="Counts of records retained by id: pending, waiting, joined, expired, conflicts and others.",
    )


class ModelQuery(BaseModel):
    """The settings of a model, without parameters."""

    model_config = ConfigDict(extra="forbid")


class FlaggedDetector(BaseModel):
    """A detector that is flagged in the complete fleet."""

    scope: str | None = Field(description="Class of the detector; null: the score.")
    slice: str | None = Field(description="Slice of the detector; null: all rows.")
    p: float = Field(description="P-value of a change for the worse.")


class ModelStatus(ModelOverview):
    """A model with its status, for `view=status`; all settings are in `GET /v1/models/{model}`."""

    status: str | None = Field(
        None, description="Derived from the words: insufficient_data, ok, watch or alarm."
    )
    calibration: dict[str, Any] | None = Field(
        None, description="`word` (good, off, unknown) with its sentence and its number."
    )
    change: dict[str, Any] | None = Field(
        None,
        description="`word` (none_seen, changed, not_armed, no_recent_predictions, no_recent_labels) with its sentence.",
    )
    scores: dict[str, Any] | None = Field(
        None, description="`word` (shifted, none_seen, unknown) with its sentence and its number."
    )
    error: part_of(EstimateValues, "Estimate") | None = Field(  # type: ignore[valid-type]
        None, description="Expected calibration error of the last 7 days, with its null reference."
    )
    temperature: float | None = Field(
        None, description="Temperature that fits the labels of the last 7 days."
    )
    map_version: int | None = Field(
        None, description="Version of the current map; null if none was promoted."
    )
    label_coverage: float | None = Field(
        None, description="Share of the predictions of the last 7 days that have a label."
    )
    last_seen: str | None = Field(
        None, description="Start of the newest pane that has data; null if none has."
    )
    turned_at: str | None = Field(
        None,
        description="When the status was first found to be another than before; null if it was not.",
    )
    as_of: str | None = Field(
        None,
        description="When the status was computed. A page computes at most 50 statuses that are missing or older than the data.",
    )
    flagged: list[FlaggedDetector] | None = Field(
        None,
        description="Detectors that changed, among all detectors of all models of the tenant (Benjamini–Yekutieli), smallest p-value first.",
    )
    reason: str | None = Field(
        None,
        description="Why a result is missing: `not_ready` within 5 s (repeat the request), or `not_computed`.",
    )


class ModelsResponse(ListPage):
    """Models, sorted by id."""

    models: list[ModelStatus] | list[ModelResponse]


def overview_of(model: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a model that an overview has."""
    return {name: model[name] for name in ModelOverview.model_fields if name in model}
